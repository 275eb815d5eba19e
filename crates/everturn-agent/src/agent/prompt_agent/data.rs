//! Parsing structured answers.

use everturn_ai::format::builtin_formats;
use everturn_ai::{Message, extract_json, metadata};
use everturn_core::{Error, Reason, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::AgentReply;

impl<S, O> AgentReply<S, O> {
    /// Parses the answer as data: of the type that the agent [declares as its
    /// output](crate::AgentBuilder::output), or any JSON that the answer holds.
    ///
    /// ```
    /// # use everturn_agent::agent;
    /// # use everturn_ai::{ModelInfo, ModelResponse, define_model};
    /// # use everturn_core::{Registry, Result};
    /// # use schemars::JsonSchema;
    /// # use serde::Deserialize;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Recipe {
    ///     dish: String,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// # let registry = Registry::new();
    /// # define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
    /// #     Ok(ModelResponse::text_of(r#"{"dish": "leek soup"}"#))
    /// # })?;
    /// let chef = agent(&registry, "chef").model("cook").output::<Recipe>().define()?;
    ///
    /// let recipe: Recipe = chef.run_text("Something with leeks?").await?.data()?;
    ///
    /// assert_eq!(recipe.dish, "leek soup");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `INTERNAL` with [`Reason::INVALID_OUTPUT`] if there is no data in the answer, or it is not a `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        let data = self
            .message()
            .and_then(data_of)
            .ok_or_else(|| invalid("the answer holds no data"))?;
        serde_json::from_value(data).map_err(|error| invalid(&format!("the answer cannot be read: {error}")))
    }
}

/// Returns the data in a message: parsed by the requested format, else from a data part, else from JSON in
/// the text.
fn data_of(message: &Message) -> Option<Value> {
    let asked = message
        .metadata_entry(metadata::GENERATE)
        .and_then(|note| note.pointer("/output/format")?.as_str());
    let format = builtin_formats()
        .into_iter()
        .find(|format| Some(format.name()) == asked);
    let handler = format.and_then(|format| format.handler(None).ok());
    let read = handler.and_then(|handler| handler.parse_message(message).ok().flatten());
    read.or_else(|| message.data().cloned())
        .or_else(|| extract_json(&message.text()))
}

fn invalid(message: &str) -> Error {
    Error::internal(message).with_reason(Reason::INVALID_OUTPUT)
}
