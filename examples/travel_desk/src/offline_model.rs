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
        let Some(last) = request.messages.last() else {
            return Ok(ModelResponse::text_of("How can I help?"));
        };
        if last.role() == Role::Tool {
            let outputs = last.content().iter().filter_map(Part::as_tool_response);
            let outputs: Vec<String> = outputs
                .filter_map(|response| response.output.as_ref().map(ToString::to_string))
                .collect();
            return Ok(ModelResponse::text_of(format!("Done: {}", outputs.join(", "))));
        }
        let text = last.text().into_owned();
        let call = match text.split_once(' ') {
            // The scout has no tools.
            _ if request.tools.is_empty() => return Ok(ModelResponse::text_of(format!("The Aurora in {text}"))),
            Some(("find", city)) => ToolRequest::new("delegate_to_scout", json!({"task": city})),
            Some(("book", hotel)) => ToolRequest::new("book", json!({"hotel": hotel})),
            Some(("refund", number)) => ToolRequest::new("refund", json!({"number": number.parse::<u64>().unwrap_or(0)})),
            _ => return Ok(ModelResponse::text_of(format!("You said: {text}"))),
        };
        let call = call.with_reference("call-1");
        Ok(ModelResponse::new(Message::model(vec![Part::from(call)])))
    }
}
