//! How to answer, or to restart, an interrupted tool request.

use serde_json::Value;

use super::{Part, PartKind, ToolResponse};
use crate::metadata;

impl Part {
    /// The part that answers this interrupted tool request with `output`.
    ///
    /// `metadata` is recorded with the answer; `None` records `true`. Gives `None` if this is not a tool request.
    pub fn respond(&self, output: impl Into<Value>, metadata: Option<Value>) -> Option<Part> {
        let response = ToolResponse::to(self.as_tool_request()?, output);
        let note = metadata.unwrap_or(Value::Bool(true));
        Some(Part::tool_response(response).with_metadata_entry(metadata::INTERRUPT_RESPONSE, note))
    }

    /// The part that runs this interrupted tool request again.
    ///
    /// `answer` is handed to the tool; `None` hands it `true`. `replace_input`, if given, takes the place of the
    /// arguments, and the old ones are recorded. Gives `None` if this is not a tool request.
    pub fn restart(&self, answer: Option<Value>, replace_input: Option<Value>) -> Option<Part> {
        let mut request = self.as_tool_request()?.clone();
        let mut part = self
            .clone()
            .without_metadata_entry(metadata::INTERRUPT)
            .with_metadata_entry(metadata::RESUMED, answer.unwrap_or(Value::Bool(true)));
        if let Some(input) = replace_input {
            let replaced = request.input.replace(input).unwrap_or(Value::Null);
            part = part.with_metadata_entry(metadata::REPLACED_INPUT, replaced);
        }
        Some(part.with_kind(PartKind::ToolRequest(Box::new(request))))
    }
}
