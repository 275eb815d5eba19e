//! Reading the cases.

use std::fs;

use everturn_ai::{ModelResponse, ModelResponseChunk};
use everturn_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{directory, skip};
use crate::Reply;

/// Reads a data file, YAML or JSON, as JSON. If the file does not exist, prints so and returns `None`.
///
/// # Panics
/// If the file cannot be parsed; if it does not exist and `CI` is `true`.
pub fn load(file: &str) -> Option<Value> {
    let path = directory()?.join(file);
    if !path.is_file() {
        skip(format_args!("there is no {}", path.display()));
        return None;
    }
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    // Every JSON text is YAML too, but the JSON parser is stricter and faster.
    let parsed = match path.extension() {
        Some(extension) if extension == "json" => serde_json::from_str(&text).map_err(Error::from),
        _ => yaml_serde::from_str(&text).map_err(Error::foreign),
    };
    Some(parsed.unwrap_or_else(|error| panic!("cannot parse {}: {error}", path.display())))
}

/// Reads the cases of a file: its list `tests`, or the whole file if it is a list. Returns `None` as [`load`]
/// does.
///
/// # Panics
/// As [`load`]; also if there is no list.
pub fn cases(file: &str) -> Option<Vec<Value>> {
    let cases = match load(file)? {
        Value::Object(mut members) => members.remove("tests"),
        list => Some(list),
    };
    match cases {
        Some(Value::Array(cases)) => Some(cases),
        _ => panic!("{file} has no list of cases"),
    }
}

/// Returns the model's replies in a case or a step of one: `modelResponses`, each after its `streamChunks`.
///
/// # Errors
/// `INTERNAL` if they are not responses and chunks.
pub fn replies(case: &Value) -> Result<Vec<Reply>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Script {
        #[serde(default)]
        model_responses: Vec<ModelResponse>,
        #[serde(default)]
        stream_chunks: Vec<Vec<ModelResponseChunk>>,
    }

    let script = Script::deserialize(case)?;
    let mut chunks = script.stream_chunks.into_iter();
    let with_chunks = |response| Reply::response(response).chunks(chunks.next().unwrap_or_default());
    Ok(script.model_responses.into_iter().map(with_chunks).collect())
}

#[cfg(test)]
mod tests {
    use everturn_core::Emitter;
    use serde_json::json;

    use super::*;
    use crate::Collector;

    #[tokio::test]
    async fn replies_stream_their_own_chunks() {
        let case = json!({
            "modelResponses": [
                {"message": {"role": "model", "content": [{"text": "one"}]}, "finishReason": "stop"},
                {"message": {"role": "model", "content": [{"text": "two"}]}},
            ],
            "streamChunks": [[{"index": 0, "role": "model", "content": [{"text": "o"}]}]],
        });

        let mut replies = replies(&case).unwrap().into_iter();
        let collector = Collector::new();
        let first = replies.next().unwrap().play(&collector.emitter()).await.unwrap();
        let second = replies.next().unwrap().play(&Emitter::silent()).await.unwrap();

        assert_eq!((first.text().as_ref(), second.text().as_ref()), ("one", "two"));
        assert_eq!(
            collector
                .take()
                .iter()
                .map(|chunk| chunk.text().into_owned())
                .collect::<Vec<_>>(),
            ["o"]
        );
        assert!(replies.next().is_none());
    }

    #[test]
    fn a_value_that_is_not_a_response_is_refused() {
        assert!(replies(&json!({"modelResponses": [7]})).is_err());
    }
}
