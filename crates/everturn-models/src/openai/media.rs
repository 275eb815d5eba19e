//! Files in requests.

use everturn_ai::{Media, Part};
use everturn_core::{Error, Result};
use serde_json::{Value, json};

use crate::content::{Inline, inline, is_image};

/// The scheme of files that were uploaded to OpenAI.
const FILE_SCHEME: &str = "openai-file:";

/// Returns the level of detail of an image, if the part sets it.
fn detail(part: &Part) -> Option<&Value> {
    part.metadata_entry("detail")
}

/// Returns the name of a file: the one in the metadata, or else one that fits its type.
fn filename(part: &Part, mime_type: &str) -> String {
    let named = part.metadata_entry("filename").and_then(Value::as_str);
    let extension = mime_type
        .rsplit('/')
        .next()
        .filter(|end| !end.is_empty())
        .unwrap_or("bin");
    named.map_or_else(|| format!("file.{extension}"), str::to_owned)
}

/// Converts audio, which both protocols accept in one form; `None` for anything else.
fn audio(inline: &Inline<'_>) -> Option<Value> {
    let format = match inline.mime_type {
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        _ => return None,
    };
    let audio = json!({ "data": inline.base64, "format": format });
    Some(json!({ "type": "input_audio", "input_audio": audio }))
}

/// Returns whether media at a URL is treated as an image: its type is an image type or missing.
fn may_be_image(media: &Media) -> bool {
    media.mime_type().is_none_or(is_image)
}

/// Converts a file for the Responses API.
pub(super) fn for_responses(part: &Part, media: &Media) -> Value {
    if let Some(id) = media.url.strip_prefix(FILE_SCHEME) {
        let kind = if media.mime_type().is_some_and(is_image) {
            "input_image"
        } else {
            "input_file"
        };
        return json!({ "type": kind, "file_id": id });
    }
    let mut content = match inline(media) {
        Some(inline) if is_image(inline.mime_type) => {
            json!({ "type": "input_image", "image_url": media.url })
        }
        Some(inline) => audio(&inline).unwrap_or_else(|| {
            let name = filename(part, inline.mime_type);
            json!({ "type": "input_file", "filename": name, "file_data": media.url })
        }),
        None if may_be_image(media) => json!({ "type": "input_image", "image_url": media.url }),
        None => json!({ "type": "input_file", "file_url": media.url }),
    };
    if let (Some(detail), "input_image") = (detail(part), content["type"].as_str().unwrap_or_default()) {
        content["detail"] = detail.clone();
    }
    content
}

/// Converts a file for Chat Completions.
///
/// # Errors
/// `INVALID_ARGUMENT` for a file that is neither an image nor inline.
pub(super) fn for_chat(part: &Part, media: &Media) -> Result<Value> {
    if let Some(id) = media.url.strip_prefix(FILE_SCHEME) {
        return Ok(json!({ "type": "file", "file": { "file_id": id } }));
    }
    match inline(media) {
        Some(inline) if !is_image(inline.mime_type) => Ok(audio(&inline).unwrap_or_else(|| {
            let file = json!({ "filename": filename(part, inline.mime_type), "file_data": media.url });
            json!({ "type": "file", "file": file })
        })),
        None if !may_be_image(media) => Err(Error::invalid_argument(format!(
            "Chat Completions takes files only inline: '{}' must be a data: URL",
            media.url
        ))),
        _ => {
            let mut image = json!({ "url": media.url });
            if let Some(detail) = detail(part) {
                image["detail"] = detail.clone();
            }
            Ok(json!({ "type": "image_url", "image_url": image }))
        }
    }
}
