//! Runs the format's own specification: every suite of `dotprompt/**/*.yaml` in the directory that the
//! environment variable `CONFORMANCE_DIR` names, by default the folder `../shared/conformance`, relative to
//! the repository.
//!
//! Each case is held to all three assertions of the reference runner: (a) what `render` returns, (b) `raw`
//! where it is expected, (c) what `render_metadata` returns.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use dotprompt::{Data, Dotprompt, Message, Metadata, ToolDefinition};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Suite {
    name: String,
    template: String,
    #[serde(default)]
    schemas: HashMap<String, Value>,
    #[serde(default)]
    resolver_schemas: HashMap<String, Value>,
    #[serde(default)]
    tools: HashMap<String, Value>,
    #[serde(default)]
    partials: HashMap<String, String>,
    #[serde(default)]
    resolver_partials: HashMap<String, String>,
    #[serde(default)]
    data: Map<String, Value>,
    tests: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(default)]
    desc: String,
    #[serde(default)]
    data: Map<String, Value>,
    #[serde(default)]
    options: Map<String, Value>,
    expect: Map<String, Value>,
}

#[test]
fn every_published_case_holds_under_the_full_assertions() {
    let Some(directory) = directory() else { return };
    let mut files = Vec::new();
    collect(&directory, &mut files);
    files.sort();

    let mut passed = 0;
    let mut failures = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        let suites: Vec<Suite> =
            yaml_serde::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for suite in &suites {
            let dotprompt = dotprompt_for(suite);
            for case in &suite.tests {
                match run(&dotprompt, suite, case) {
                    Ok(()) => passed += 1,
                    Err(failure) => {
                        failures.push(format!(
                            "{} / {} / {}: {failure}",
                            file.display(),
                            suite.name,
                            case.desc
                        ));
                    }
                }
            }
        }
    }

    println!("{passed} cases of {} files passed", files.len());
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(passed > 0, "no case found in {}", directory.display());
}

fn directory() -> Option<PathBuf> {
    let root = env::var_os("CONFORMANCE_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    let inner = root.join("dotprompt");
    let directory = if inner.is_dir() { inner } else { root };
    if directory.is_dir() {
        return Some(directory);
    }
    let reason = format!("no conformance data at {}", directory.display());
    assert!(env::var("CI").as_deref() != Ok("true"), "{reason}");
    println!("skipped: {reason}");
    None
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
}

fn dotprompt_for(suite: &Suite) -> Dotprompt {
    let mut dotprompt = Dotprompt::new();
    for (name, schema) in &suite.schemas {
        dotprompt = dotprompt.define_schema(name, schema.clone());
    }
    for (name, source) in &suite.partials {
        dotprompt = dotprompt.define_partial(name, source);
    }
    for (name, tool) in &suite.tools {
        let mut tool = tool.clone();
        if tool.get("name").is_none() {
            tool["name"] = json!(name);
        }
        dotprompt = dotprompt
            .define_tool(serde_json::from_value::<ToolDefinition>(tool).expect("a tool is well formed"));
    }
    if !suite.resolver_partials.is_empty() {
        let partials = suite.resolver_partials.clone();
        dotprompt = dotprompt.partial_resolver(move |name| Ok(partials.get(name).cloned()));
    }
    if !suite.resolver_schemas.is_empty() {
        let schemas = suite.resolver_schemas.clone();
        dotprompt = dotprompt.schema_resolver(move |name| Ok(schemas.get(name).cloned()));
    }
    dotprompt
}

fn run(dotprompt: &Dotprompt, suite: &Suite, case: &Case) -> Result<(), String> {
    let mut data = suite.data.clone();
    data.extend(case.data.clone());
    let input = data.get("input").cloned().unwrap_or(Value::Null);
    let context = data
        .get("context")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let messages = data.get("messages").cloned().unwrap_or_else(|| json!([]));
    let messages: Vec<Message> = serde_json::from_value(messages).map_err(|error| error.to_string())?;
    let docs = data
        .get("docs")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let options = Metadata::from(case.options.clone());
    let request = Data::new()
        .input(&input)
        .context(&context)
        .messages(&messages)
        .docs(&docs);

    let rendered = dotprompt
        .render_with(&suite.template, &request, &options)
        .map_err(|error| error.to_string())?;
    let Value::Object(rendered) = serde_json::to_value(rendered).expect("messages are JSON") else {
        panic!("an object")
    };
    compare(
        "render",
        &without(&rendered, &["raw"]),
        &expected(case, &["raw", "input"]),
    )?;
    if let Some(raw) = case.expect.get("raw") {
        let actual = rendered.get("raw").cloned().unwrap_or_default();
        compare("raw", &actual, raw)?;
    }
    let metadata = dotprompt
        .render_metadata(&suite.template, &options)
        .map_err(|error| error.to_string())?;
    compare(
        "metadata",
        &without(metadata.as_map(), &["raw"]),
        &expected(case, &["raw", "messages"]),
    )
}

fn expected(case: &Case, removed: &[&str]) -> Value {
    let mut expected = without(&case.expect, removed);
    for key in ["ext", "config", "metadata"] {
        if expected.get(key).is_none() {
            expected[key] = json!({});
        }
    }
    expected
}

fn without(map: &Map<String, Value>, removed: &[&str]) -> Value {
    map.iter()
        .filter(|(key, _)| !removed.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn compare(what: &str, actual: &Value, expected: &Value) -> Result<(), String> {
    if same(actual, expected) {
        Ok(())
    } else {
        Err(format!("{what}\n  actual   {actual}\n  expected {expected}"))
    }
}

/// Equality as the reference runner has it: the order of keys does not matter, and there is one kind of
/// number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
