//! From output items to parts.

use everturn_ai::{JsonObject, Media, Part, ToolRequest};
use serde_json::{Value, json};

use crate::{Arguments, Outcome, WireTools, signed};

/// The result of an output item.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) parts: Vec<Part>,
    /// The reason for which the model refused to answer.
    pub(super) refusal: Option<String>,
    /// The tool of a call whose arguments were truncated.
    pub(super) cut_call: Option<String>,
}

pub(super) fn of_item(item: &Value, provider: &str, tools: &WireTools) -> Output {
    match item["type"].as_str().unwrap_or_default() {
        "message" => message(item, provider),
        "reasoning" => Output {
            parts: vec![reasoning(item, provider)],
            ..Output::default()
        },
        "function_call" => function_call(item, provider, tools),
        "image_generation_call" => Output {
            parts: image(item, provider)
                .into_iter()
                .chain([custom(item, provider)])
                .collect(),
            ..Output::default()
        },
        _ => Output {
            parts: vec![custom(item, provider)],
            ..Output::default()
        },
    }
}

fn custom(item: &Value, provider: &str) -> Part {
    Part::custom(JsonObject::from_iter([(provider.to_owned(), item.clone())]))
}

/// Returns the fields of an item that have no counterpart in a part.
fn rest(item: &Value, known: &[&str]) -> JsonObject {
    let fields = item.as_object().into_iter().flatten();
    let others = fields.filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null());
    others
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn message(item: &Value, provider: &str) -> Output {
    let own = rest(item, &["type", "role", "content"]);
    let mut output = Output::default();
    for content in item["content"].as_array().into_iter().flatten() {
        if let Some(refusal) = content["refusal"].as_str() {
            output.refusal.get_or_insert_default().push_str(refusal);
        }
        let Some(text) = content["text"].as_str() else {
            continue;
        };
        let mut part = Part::text(text);
        if !own.is_empty() {
            part = part.with_metadata_entry(provider, own.clone());
        }
        if let Some(citations) = content["annotations"].as_array().filter(|list| !list.is_empty()) {
            part = part.with_metadata_entry("citations", citations.clone());
        }
        output.parts.push(part);
    }
    output
}

fn reasoning(item: &Value, provider: &str) -> Part {
    let texts = |field: &str| -> Vec<&str> {
        let entries = item[field].as_array().into_iter().flatten();
        entries.filter_map(|entry| entry["text"].as_str()).collect()
    };
    let mut own = rest(item, &["type", "encrypted_content"]);
    let summary = texts("summary");
    let is_plain = |entry: &Value| {
        entry["type"] == "summary_text" && entry.as_object().is_some_and(|entry| entry.len() == 2)
    };
    // A single summary is the text of the part; several are kept unchanged.
    let is_text_of_part = item["summary"]
        .as_array()
        .is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [entry] => is_plain(entry) && !summary.concat().is_empty(),
            _ => false,
        });
    if is_text_of_part && !own.contains_key("content") {
        own.shift_remove("summary");
    }
    let text = if summary.is_empty() {
        texts("content").concat()
    } else {
        summary.join("\n\n")
    };
    let metadata = item["encrypted_content"]
        .as_str()
        .map(|content| signed(content, provider));
    let mut metadata = metadata.unwrap_or_default();
    metadata.insert(provider.to_owned(), own.into());
    Part::reasoning(text).with_metadata(metadata)
}

fn function_call(item: &Value, provider: &str, tools: &WireTools) -> Output {
    let name = tools.meant_by(item["name"].as_str().unwrap_or_default());
    let mut arguments = Arguments::default();
    arguments.push_value(&item["arguments"]);
    let Outcome::Input(input) = arguments.outcome() else {
        return Output {
            cut_call: Some(name.to_owned()),
            ..Output::default()
        };
    };
    let mut request = ToolRequest::new(name, tools.input(name, input));
    request.reference = call_id(item);
    let own = rest(item, &["type", "call_id", "name", "arguments"]);
    let mut part = Part::from(request);
    if !own.is_empty() {
        part = part.with_metadata_entry(provider, own);
    }
    Output {
        parts: vec![part],
        ..Output::default()
    }
}

/// Returns the id of a call; servers with only one id put it elsewhere.
pub(super) fn call_id(item: &Value) -> Option<String> {
    let id = item["call_id"].as_str().or_else(|| item["id"].as_str())?;
    Some(id.to_owned())
}

fn image(item: &Value, provider: &str) -> Option<Part> {
    let content = item["result"].as_str()?;
    let format = item["output_format"].as_str().unwrap_or("png");
    let part = Part::from(Media::new(format!("data:image/{format};base64,{content}")));
    Some(part.with_metadata_entry(provider, json!({ "id": item["id"] })))
}
