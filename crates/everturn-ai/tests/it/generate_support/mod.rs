//! A scripted model, recordings of the reference implementation, and comparing with them.

#![allow(
    clippy::needless_pass_by_value,
    reason = "scripts read better without borrows"
)]

mod script;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{env, fs};

use everturn_ai::{Generate, ModelInfo, ModelResponseChunk, ModelSupports, Tool, ToolContext};
use everturn_core::{Emitter, Error, Registry, Schema};
use serde_json::{Map, Value, json};

use self::script::PROGRAMMABLE;
pub(crate) use self::script::{Reply, Script};

/// One reply of a scripted model, as JSON.
pub(crate) struct Step {
    pub(crate) chunks: Vec<Value>,
    pub(crate) response: Value,
}

impl From<Step> for Reply {
    fn from(step: Step) -> Self {
        Self {
            chunks: step
                .chunks
                .into_iter()
                .map(|chunk| serde_json::from_value(chunk).expect("a chunk"))
                .collect(),
            result: serde_json::from_value(step.response).map_err(Error::from),
        }
    }
}

/// A step that streams nothing.
pub(crate) fn step(response: Value) -> Step {
    Step {
        chunks: Vec::new(),
        response,
    }
}

/// A step that streams texts first.
pub(crate) fn streaming(texts: &[&str], response: Value) -> Step {
    Step {
        chunks: texts
            .iter()
            .map(|text| json!({ "content": [{ "text": text }] }))
            .collect(),
        response,
    }
}

/// A complete answer of one text.
pub(crate) fn says(text: &str) -> Value {
    message(json!([{ "text": text }]))
}

/// A complete answer with this content.
pub(crate) fn message(content: Value) -> Value {
    json!({ "message": { "role": "model", "content": content }, "finishReason": "stop" })
}

/// A tool request part.
pub(crate) fn request(name: &str, reference: &str, input: Value) -> Value {
    json!({ "toolRequest": { "name": name, "ref": reference, "input": input } })
}

/// A registry with a scripted model, and a generation that uses it.
pub(crate) fn scripted(steps: impl IntoIterator<Item = Step>) -> (Registry, Script, Generate) {
    let supports = ModelSupports {
        tools: Some(true),
        multiturn: Some(true),
        ..ModelSupports::default()
    };
    scripted_with(
        ModelInfo {
            supports: Some(supports),
            ..ModelInfo::default()
        },
        steps,
    )
}

pub(crate) fn scripted_with(
    info: ModelInfo,
    steps: impl IntoIterator<Item = Step>,
) -> (Registry, Script, Generate) {
    let registry = Registry::new();
    let script = Script::define(&registry, info, steps);
    let generate = Generate::new(&registry).model(PROGRAMMABLE);
    (registry, script, generate)
}

/// A tool without schemas that always gives the same output.
pub(crate) fn constant(name: &str, output: impl Into<Value>) -> Tool {
    let output = output.into();
    Tool::dynamic(name, "d", None, move |_input, _cx: ToolContext| {
        let output = output.clone();
        async move { Ok(output) }
    })
}

/// An object schema as the reference implementation writes it.
pub(crate) fn object_schema(property: &str, kind: &str) -> Schema {
    Schema::from_json(json!({
        "type": "object",
        "properties": { property: { "type": kind } },
        "required": [property],
        "additionalProperties": true,
        "$schema": "http://json-schema.org/draft-07/schema#",
    }))
    .expect("a schema")
}

/// Collects what a generation streams.
#[derive(Clone, Default)]
pub(crate) struct Chunks(Arc<Mutex<Vec<Value>>>);

impl Chunks {
    pub(crate) fn emitter(&self) -> Emitter<ModelResponseChunk> {
        let chunks = self.clone();
        Emitter::new(move |chunk| {
            chunks.0.lock().unwrap().push(json!(chunk));
            async { Ok(()) }
        })
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap().clone()
    }
}

/// A file of the published data; `None`, with a note, where it is missing.
pub(crate) fn published(name: &str) -> Option<String> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let path = env::var_os("CONFORMANCE_DIR")
        .map_or_else(beside, PathBuf::from)
        .join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) => {
            assert!(
                env::var("CI").as_deref() != Ok("true"),
                "cannot read {}: {error}",
                path.display()
            );
            println!("skipped: cannot read {}: {error}", path.display());
            None
        }
    }
}

/// All recordings of the reference implementation.
pub(crate) fn recordings() -> Option<Map<String, Value>> {
    Some(serde_json::from_str(&published("observed/js-generate.json")?).expect("the recordings are JSON"))
}

/// One recording of the reference implementation, in the form in which values are compared.
pub(crate) fn recording(name: &str) -> Option<Value> {
    let recording = recordings()?
        .remove(name)
        .unwrap_or_else(|| panic!("there is no recording '{name}'"));
    Some(comparable(recording))
}

/// A value without what recordings do not have or rules set aside: measurements, and what is `null` or, as
/// metadata or configuration, empty (rule: `config` is omitted when empty).
pub(crate) fn comparable(value: impl Into<Value>) -> Value {
    match value.into() {
        Value::Object(members) => members
            .into_iter()
            .filter(|(key, member)| !is_set_aside(key, member))
            .map(|(key, member)| {
                if key == "usage" {
                    (key, json!({}))
                } else {
                    (key, comparable(member))
                }
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(comparable).collect(),
        other => other,
    }
}

fn is_set_aside(key: &str, member: &Value) -> bool {
    let is_empty = member.as_object().is_some_and(Map::is_empty);
    member.is_null() || key == "latencyMs" || (is_empty && matches!(key, "metadata" | "config"))
}

/// The recorded status of a failure and what it is about must be this error's.
#[track_caller]
pub(crate) fn assert_fails_as_recorded(name: &str, error: &Error) {
    let Some(recorded) = recording(name) else { return };
    let recorded = recorded.get("error").unwrap_or(&recorded);
    assert_eq!(json!(error.status()), recorded["status"], "{error}");
}
