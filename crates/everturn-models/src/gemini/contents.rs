//! A conversation in Gemini's form: an instruction, and contents of the user and the model in alternation.

use everturn_ai::{JsonObject, Media, Message, Messages, Part, PartKind, Role, ToolRequest, ToolResponse};
use everturn_core::{Error, Result};
use serde_json::{Value, json};

use super::PROVIDER;
use super::gemini_family::Family;
use crate::content::{self, NO_MESSAGE, inline, warn_left_out};
use crate::wire_tools::WireTools;

/// The signature of a call that Gemini did not make.
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";
/// Custom parts by the name that Genkit gives them, and the field of a part on the wire.
pub(super) const CUSTOM_PARTS: [(&str, &str); 4] = [
    ("executableCode", "executableCode"),
    ("codeExecutionResult", "codeExecutionResult"),
    ("geminiToolCall", "toolCall"),
    ("geminiToolResponse", "toolResponse"),
];
/// Fields of a part in addition to its content: the key in its metadata, and the name on the wire.
pub(super) const SIDE_FIELDS: [(&str, &str); 3] = [
    ("videoMetadata", "videoMetadata"),
    ("mediaResolution", "mediaResolution"),
    ("metadata", "partMetadata"),
];
const FOREIGN_FILES: [&str; 2] = ["openai-file:", "anthropic-file:"];

/// A conversation that is being converted.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    family: Family,
    tools: &'a WireTools,
    system: Vec<Value>,
    turns: Vec<Content>,
    /// The calls of the model's latest content.
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Content {
    role: &'static str,
    parts: Vec<Placed>,
}

/// A part and its position: answers come first, in the order of their calls.
#[derive(Debug)]
struct Placed {
    place: usize,
    wire: Value,
}

#[derive(Debug)]
struct Call {
    name: String,
    reference: Option<String>,
    /// Whether a provider assigned the id. Generated ids are not sent.
    has_id: bool,
    is_answered: bool,
}

impl<'a> Contents<'a> {
    /// Converts the messages of a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a file that another provider stores.
    pub(super) fn of(messages: &Messages, family: Family, tools: &'a WireTools) -> Result<Self> {
        let mut contents = Self {
            family,
            tools,
            system: Vec::new(),
            turns: Vec::new(),
            calls: Vec::new(),
        };
        for message in messages {
            contents.add(message)?;
        }
        if family.needs_signatures() {
            contents.sign_foreign_calls();
        }
        Ok(contents)
    }

    fn add(&mut self, message: &Message) -> Result<()> {
        let role = match message.role() {
            Role::System => {
                for part in message.content() {
                    let placed = self.part(part)?;
                    self.system.extend(placed.map(|placed| placed.wire));
                }
                return Ok(());
            }
            Role::Model => "model",
            Role::User | Role::Tool => "user",
        };
        if role == "model" && self.turns.last().is_none_or(|last| last.role != role) {
            self.calls.clear();
        }
        let mut parts = Vec::with_capacity(message.content().len());
        for part in message.content() {
            parts.extend(self.part(part)?);
        }
        if parts.is_empty() {
            return Ok(());
        }
        match self.turns.last_mut().filter(|last| last.role == role) {
            Some(last) => last.parts.extend(parts),
            None => self.turns.push(Content { role, parts }),
        }
        Ok(())
    }

    /// Converts a part; `None` if Gemini does not accept such a part.
    fn part(&mut self, part: &Part) -> Result<Option<Placed>> {
        let signature = content::signature(part, PROVIDER).map(content::Signature::text);
        let mut place = usize::MAX;
        let wire = match part.kind() {
            // An empty text may exist only for its signature.
            PartKind::Text(text) if text.is_empty() && signature.is_none() => None,
            PartKind::Text(text) => Some(json!({ "text": text })),
            PartKind::Reasoning(text) if signature.is_some() && self.family.takes_thoughts() => {
                Some(json!({ "text": text, "thought": true }))
            }
            PartKind::Media(media) => Some(media_part(media)?),
            PartKind::Data(value) => Some(json!({ "text": value.to_string() })),
            PartKind::ToolRequest(request) => Some(self.function_call(part, request)),
            PartKind::ToolResponse(response) => {
                let (position, wire) = self.function_response(response)?;
                place = position;
                Some(wire)
            }
            PartKind::Custom(custom) => match custom.get(PROVIDER) {
                Some(own) => {
                    return Ok(Some(Placed {
                        place,
                        wire: own.clone(),
                    }));
                }
                None => CUSTOM_PARTS
                    .iter()
                    .find_map(|(key, field)| Some(json!({ *field: custom.get(*key)? }))),
            },
            _ => None,
        };
        if wire.is_none() {
            warn_left_out(part, PROVIDER);
        }
        Ok(wire.map(|mut wire| {
            for (key, field) in SIDE_FIELDS {
                if let Some(value) = part.metadata_entry(key).filter(|value| value.is_object()) {
                    wire[field] = value.clone();
                }
            }
            if let Some(signature) = signature {
                wire["thoughtSignature"] = json!(signature);
            }
            Placed { place, wire }
        }))
    }

    fn function_call(&mut self, part: &Part, request: &ToolRequest) -> Value {
        let is_made_up =
            content::own(part, PROVIDER).is_some_and(|own| own.get("noId") == Some(&json!(true)));
        let call = Call {
            name: request.name.clone(),
            reference: request.reference.clone(),
            has_id: request.reference.is_some() && !is_made_up,
            is_answered: false,
        };
        let args = self.tools.arguments(request);
        let mut wire = json!({ "name": self.tools.to_wire(&request.name), "args": args });
        if call.has_id {
            wire["id"] = json!(request.reference);
        }
        self.calls.push(call);
        json!({ "functionCall": wire })
    }

    /// Converts the answer of a tool; also returns the position of its call in the model's content.
    fn function_response(&mut self, response: &ToolResponse) -> Result<(usize, Value)> {
        let position = self.calls.iter().position(|call| {
            !call.is_answered && call.name == response.name && call.reference == response.reference
        });
        let has_id = match position {
            Some(position) => {
                self.calls[position].is_answered = true;
                self.calls[position].has_id
            }
            None => response.reference.is_some(),
        };
        let text = texts(&response.content);
        let answer = match &response.output {
            None | Some(Value::Null) => json!({ "output": text }),
            Some(output) => {
                let mut answer = match output {
                    Value::Object(members) => members.clone(),
                    value => JsonObject::from_iter([("output".to_owned(), value.clone())]),
                };
                if !text.is_empty() {
                    answer.entry("content").or_insert(text.into());
                }
                answer.into()
            }
        };
        let media = response.content.iter().filter_map(Part::as_media).map(media_part);
        let media = media.collect::<Result<Vec<_>>>()?;
        let mut wire = json!({ "name": self.tools.to_wire(&response.name), "response": answer });
        if has_id {
            wire["id"] = json!(response.reference);
        }
        if !media.is_empty() {
            wire["parts"] = media.into();
        }
        Ok((
            position.unwrap_or(usize::MAX - 1),
            json!({ "functionResponse": wire }),
        ))
    }

    /// Marks the first call of each step of the current turn, unless Gemini signed it, because the model
    /// rejects unsigned calls.
    fn sign_foreign_calls(&mut self) {
        let begins_turn = |content: &Content| {
            content.role == "user"
                && content
                    .parts
                    .iter()
                    .any(|part| part.wire.get("functionResponse").is_none())
        };
        let turn = self.turns.iter().rposition(begins_turn).unwrap_or_default();
        for content in self.turns[turn..]
            .iter_mut()
            .filter(|content| content.role == "model")
        {
            let first = content
                .parts
                .iter_mut()
                .find(|part| part.wire.get("functionCall").is_some());
            if let Some(call) = first
                && call.wire.get("thoughtSignature").is_none()
            {
                call.wire["thoughtSignature"] = json!(SKIP_SIGNATURE);
            }
        }
    }

    /// Returns the parts of the instruction, and the contents, the first of which is the user's.
    pub(super) fn into_wire(mut self) -> (Vec<Value>, Vec<Value>) {
        if self.turns.first().is_none_or(|first| first.role != "user") {
            let place = usize::MAX;
            let wire = json!({ "text": NO_MESSAGE });
            let parts = vec![Placed { place, wire }];
            self.turns.insert(0, Content { role: "user", parts });
        }
        let contents = self.turns.into_iter().map(|mut content| {
            // The sort keeps the order of parts without a position.
            content.parts.sort_by_key(|part| part.place);
            let parts: Vec<Value> = content.parts.into_iter().map(|part| part.wire).collect();
            json!({ "role": content.role, "parts": parts })
        });
        (self.system, contents.collect())
    }
}

/// Joins the texts of a tool's further content.
fn texts(content: &[Part]) -> String {
    let texts: Vec<_> = content.iter().filter_map(Part::as_text).collect();
    texts.join("\n")
}

/// Converts media: inline data, or a file by its address.
///
/// # Errors
/// `INVALID_ARGUMENT` for a file that another provider stores.
pub(super) fn media_part(media: &Media) -> Result<Value> {
    if let Some(inline) = inline(media) {
        let mime_type = if inline.mime_type.is_empty() {
            "text/plain"
        } else {
            inline.mime_type
        };
        return Ok(json!({ "inlineData": { "mimeType": mime_type, "data": inline.base64 } }));
    }
    if let Some(scheme) = FOREIGN_FILES
        .iter()
        .find(|scheme| media.url.starts_with(**scheme))
    {
        return Err(Error::invalid_argument(format!(
            "Gemini cannot read a file behind '{scheme}': give it as a `data:`, `https:` or `gs:` URL or by a URI of its Files API"
        )));
    }
    let mut file = json!({ "fileUri": media.url });
    if let Some(mime_type) = &media.content_type {
        file["mimeType"] = json!(mime_type);
    }
    Ok(json!({ "fileData": file }))
}
