//! Tools, instructions and an output schema that a client adds to one turn.

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{
    Feature, GenerateRound, Messages, Middleware, ModelResponse, NextRound, Part, Tool, async_trait,
    place_system_part,
};
use everturn_core::offload::offload;
use everturn_core::{HandlerResult, Result, Schema};
use serde_json::Value;

use crate::{AgentInput, ClientTool};

/// The metadata entry that marks the client's part of the system text.
const MARKER: &str = "_everturn_client";

/// The greatest size of an output schema, in bytes of JSON.
const LARGEST_SCHEMA: usize = 32 * 1024;

/// Returns the settings of a turn whose client chose the form of the answer.
///
/// # Errors
/// `INVALID_ARGUMENT` if the output schema is too large or none.
pub(super) fn chosen_output(input: &AgentInput) -> Result<Option<PromptOverrides>> {
    let Some(schema) = &input.output_schema else {
        return Ok(None);
    };
    let schema = Schema::from_client(Value::clone(schema), LARGEST_SCHEMA)
        .map_err(|error| error.context("the output schema of the client").with_public())?;
    Ok(Some(PromptOverrides::new().output_schema(&schema)))
}

/// Offers the client's tools to the model and puts its instructions after the agent's system text.
///
/// As a middleware: its tools are added after all others, so one that has the name of another is refused and
/// never replaces it, and the system text that it changes is never stored.
#[derive(Clone)]
pub(super) struct AddedByClient {
    tools: Vec<Tool>,
    instructions: String,
}

impl AddedByClient {
    /// Returns `None` if the client adds nothing, as most do.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a tool that no client may bring.
    pub(super) async fn of(input: &AgentInput) -> Result<Option<Self>> {
        if input.tools.is_empty() && input.instructions.is_empty() {
            return Ok(None);
        }
        let tools = match input.tools.as_slice() {
            few @ ([] | [_] | [_, _] | [_, _, _] | [_, _, _, _]) => ClientTool::prepare(few)?,
            many => {
                let many = many.to_vec();
                // Boxed, so that the future of turns without such tools stays small.
                Box::pin(offload(move || ClientTool::prepare(&many))).await?
            }
        };
        Ok(Some(Self {
            tools,
            instructions: input.instructions.join("\n\n"),
        }))
    }
}

#[async_trait]
impl Middleware for AddedByClient {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        if !self.instructions.is_empty() {
            let messages = &mut round.request.messages;
            let gap = if has_own_system_text(messages) { "\n\n" } else { "" };
            place_system_part(messages, MARKER, format!("{gap}{}", self.instructions));
        }
        Ok(next.run(round).await?)
    }

    fn tools(&self) -> Vec<Tool> {
        self.tools.clone()
    }
}

/// Returns whether there is a system text that is not the client's.
fn has_own_system_text(messages: &Messages) -> bool {
    let first = messages.next_with(Feature::System, 0);
    let is_own = |part: &Part| part.metadata_entry(MARKER).is_none();
    first
        .and_then(|index| messages.get(index))
        .is_some_and(|message| message.content().iter().any(is_own))
}
