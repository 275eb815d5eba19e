//! Describing an output schema in the prompt of a model that cannot enforce one.

use crate::format::{Format, JsonFormat, inject_instructions};
use crate::{ConstrainedSupport, ModelRequest, OutputConfig};

/// Returns whether a request needs an enforced schema that a model with this support cannot enforce.
pub fn needs_simulation(request: &ModelRequest, support: Option<ConstrainedSupport>) -> bool {
    let asks = request
        .output
        .as_ref()
        .is_some_and(|output| output.constrained == Some(true) && output.schema.is_some());
    let enforces = match support {
        None | Some(ConstrainedSupport::None) => false,
        Some(ConstrainedSupport::NoTools) => request.tools().is_empty(),
        Some(ConstrainedSupport::All) => true,
    };
    asks && !enforces
}

/// Describes the schema in the prompt, unless the request already does, and removes the schema from the
/// request.
pub fn simulate_constrained(mut request: ModelRequest) -> ModelRequest {
    let schema = request.output.as_ref().and_then(|output| output.schema.as_ref());
    let instructions = JsonFormat
        .handler(schema)
        .ok()
        .and_then(|handler| handler.instructions());
    if let Some(instructions) = instructions {
        inject_instructions(&mut request.messages, &instructions);
    }
    request.output = Some(OutputConfig {
        constrained: Some(false),
        ..OutputConfig::default()
    });
    request
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{Message, ToolDefinition};

    fn request() -> ModelRequest {
        let output = OutputConfig {
            schema: Some(json!({ "type": "object" })),
            constrained: Some(true),
            ..OutputConfig::default()
        };
        ModelRequest {
            output: Some(output),
            ..ModelRequest::new(Message::user("q"))
        }
    }

    #[test]
    fn a_schema_is_simulated_only_where_the_model_cannot_enforce_it() {
        let with_tools = ModelRequest {
            tools: Some(Arc::from([ToolDefinition::default()])),
            ..request()
        };

        assert!(needs_simulation(&request(), None));
        assert!(!needs_simulation(&request(), Some(ConstrainedSupport::NoTools)));
        assert!(needs_simulation(&with_tools, Some(ConstrainedSupport::NoTools)));
        assert!(!needs_simulation(&with_tools, Some(ConstrainedSupport::All)));
    }

    #[test]
    fn the_words_take_the_schemas_place() {
        let simulated = simulate_constrained(request());

        let output = simulated.output.unwrap();
        assert_eq!(
            output,
            OutputConfig {
                constrained: Some(false),
                ..OutputConfig::default()
            }
        );
        let instructions = &simulated.messages.last().unwrap().content()[1];
        assert_eq!(instructions.purpose(), Some("output"));
    }
}
