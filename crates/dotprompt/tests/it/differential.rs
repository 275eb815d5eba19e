//! Random templates, rendered by this crate and by the npm package `dotprompt`, come out the same.
//!
//! Ignored by default, because it needs `node` and the package:
//!
//! ```text
//! npm install --prefix .tools/npm dotprompt@1.1.2
//! cargo test -p dotprompt --test it -- --ignored differential
//! ```
//!
//! `DIFFERENTIAL_COUNT` and `DIFFERENTIAL_SEED` choose other templates.

use std::env;
use std::path::Path;
use std::process::Command;

use dotprompt::{Data, Dotprompt};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Recording {
    partials: Map<String, Value>,
    input: Value,
    context: Map<String, Value>,
    cases: Vec<(String, Value)>,
}

#[test]
#[ignore = "needs node and the npm package"]
fn random_templates_render_as_the_npm_package_renders_them() {
    let recording = record();
    let dotprompt = recording
        .partials
        .iter()
        .fold(Dotprompt::new(), |dotprompt, (name, source)| {
            dotprompt.define_partial(name, source.as_str().unwrap())
        });

    let mut differences = Vec::new();
    for (template, expected) in &recording.cases {
        if is_exempt(expected) {
            continue;
        }
        let data = Data::new().input(&recording.input).context(&recording.context);
        let actual = match dotprompt.render(template, &data) {
            Ok(rendered) => serde_json::to_value(rendered.messages).unwrap(),
            Err(error) => Value::from(error.to_string()),
        };
        if actual != *expected {
            differences.push(format!("{template:?}\n  npm  {expected}\n  here {actual}"));
        }
    }

    differences.sort_by_key(String::len);
    let shown = differences.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{shown}",
        differences.len(),
        recording.cases.len()
    );
}

/// The package prints `undefined` for missing values in JSON, and turns a text or list that is the context of
/// a partial with named arguments into an object with indices as keys. Both are known differences.
fn is_exempt(expected: &Value) -> bool {
    let text = expected.to_string();
    text.contains("undefined") || text.contains("<{}") || text.contains(r#"<{\"0\""#)
}

fn record() -> Recording {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let setting = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let output = Command::new("node")
        .arg(root.join("tests/differential/generate.mjs"))
        .arg(root.join("../../.tools/npm"))
        .args([
            setting("DIFFERENTIAL_COUNT", "2000"),
            setting("DIFFERENTIAL_SEED", "1"),
        ])
        .output()
        .expect("node is installed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("the generator prints JSON")
}
