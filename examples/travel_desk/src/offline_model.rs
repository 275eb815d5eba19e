//! A rule-based model: `find CITY`, `book HOTEL`, `refund NUMBER`; everything else is small talk.

use everturn::model_prelude::*;

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct OfflineModel;

impl Model for OfflineModel {
    async fn generate(
        &self,
        request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let messages: Vec<&Message> = request.messages.iter().collect();
        let asked = messages.iter().rposition(|message| message.role() == Role::User);
        let since = &messages[asked.unwrap_or_default()..];
        let text = since.first().map(|message| message.text()).unwrap_or_default();
        let wanted = match text.split_once(' ') {
            // The scout has no tools.
            _ if request.tools.as_deref().is_none_or(<[_]>::is_empty) => {
                return Ok(ModelResponse::text_of(format!("The Aurora in {text}")));
            }
            Some(("find", city)) => ToolRequest::new("delegate_to_scout", json!({"task": city})),
            Some(("book", hotel)) => ToolRequest::new("book", json!({"hotel": hotel})),
            Some(("refund", number)) => {
                ToolRequest::new("refund", json!({"number": number.parse::<u64>().unwrap_or(0)}))
            }
            _ => return Ok(ModelResponse::text_of(format!("You said: {text}"))),
        };
        let is_wanted = |call: &ToolRequest| call.name == wanted.name && call.input == wanted.input;
        let is_made = since
            .iter()
            .flat_map(|message| message.tool_requests())
            .any(is_wanted);
        if !is_made {
            let call = Part::from(wanted.with_reference("call-1"));
            return Ok(ModelResponse::new(Message::model(vec![call])));
        }
        let outputs = since
            .iter()
            .flat_map(|message| message.content())
            .filter_map(Part::as_tool_response);
        let outputs: Vec<String> = outputs
            .filter_map(|response| response.output.as_ref().map(Value::to_string))
            .collect();
        Ok(ModelResponse::text_of(format!("Done: {}", outputs.join(", "))))
    }
}
