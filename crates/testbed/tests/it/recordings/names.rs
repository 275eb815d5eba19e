//! Names in the sources: the environment variables that programs read, and the span attributes and headers
//! that no other recording shows.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;

use super::assert_recorded;

/// Literals by their meaning. Other upper-case literals are constants of protocols.
const KINDS: [(&str, &str); 3] = [
    (
        "environment variables",
        r#""((?:ANTHROPIC|BOOKING|CONFORMANCE|EVERTURN|GEMINI|GENKIT|GOOGLE|GROQ|JWT|LOG|MODEL|OLLAMA|OPENAI|OTEL|TURN)_[A-Z0-9_]+)""#,
    ),
    (
        "span attributes",
        r#""((?:gen_ai|everturn|genkit)[.:][A-Za-z_.:]+)""#,
    ),
    ("headers", r#""((?i:x-(?:everturn|genkit|request)-[a-z-]+))""#),
];

#[test]
fn names_in_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = String::new();
    for folder in ["crates", "examples"] {
        for package in std::fs::read_dir(root.join(folder)).unwrap() {
            read(&package.unwrap().path().join("src"), &mut sources);
        }
    }
    let kinds = KINDS.map(|(kind, pattern)| {
        let found = Regex::new(pattern).unwrap();
        let names: BTreeSet<&str> = found
            .captures_iter(&sources)
            .map(|name| name.get(1).unwrap().as_str())
            .collect();
        let names: Vec<String> = names.iter().map(|name| format!("{name}\n")).collect();
        format!("=== {kind}\n\n{}\n", names.concat())
    });
    assert_recorded("names.txt", &kinds.concat());
}

fn read(path: &Path, sources: &mut String) {
    if let Ok(entries) = std::fs::read_dir(path) {
        for entry in entries {
            read(&entry.unwrap().path(), sources);
        }
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        sources.push_str(&std::fs::read_to_string(path).unwrap());
    }
}
