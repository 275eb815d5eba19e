//! The protocol's published data, and values to hold against it.

pub(crate) mod values;

use std::{env, fs, path::PathBuf};

use jsonschema::Validator;
use serde_json::Value;

/// A file of the conformance data; `None`, with a note, where the data is missing.
pub(crate) fn read(name: &str) -> Option<Value> {
    let folder = env::var_os("CONFORMANCE_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).expect("conformance data is JSON")),
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

pub(crate) fn schema() -> Option<Value> {
    read("genkit-schema.json")
}

pub(crate) fn validator(schema: &Value, definition: &str) -> Validator {
    assert!(
        schema["$defs"].get(definition).is_some(),
        "{definition} is not defined"
    );
    let root = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": format!("#/$defs/{definition}"),
        "$defs": schema["$defs"],
    });
    jsonschema::validator_for(&root).expect("the definition is a schema")
}
