//! The code that runs when a tool is called.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{DynAction, Error, HandlerResult, JsonCall, Reason, Result, Schema};
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Tool, ToolContext};
use crate::{JsonObject, MultipartToolResponse};

type Function =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, HandlerResult<MultipartToolResponse>> + Send + Sync;

#[derive(Clone)]
pub(super) enum Body {
    Function(Arc<Function>),
    /// An action of another kind, which opens its own span and validates by itself.
    Action(Arc<dyn DynAction>),
}

impl Body {
    pub(super) fn function<F, Fut>(function: F) -> Self
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<MultipartToolResponse>> + Send + 'static,
    {
        Self::Function(Arc::new(move |input, context| Box::pin(function(input, context))))
    }
}

/// Creates a response with an output only.
pub(super) fn plain(output: Value) -> MultipartToolResponse {
    MultipartToolResponse {
        output: Some(output),
        ..MultipartToolResponse::default()
    }
}

/// Replaces missing arguments with an empty object if the tool takes an object, because models omit empty
/// arguments.
pub(super) fn completed(input: Option<Value>, schema: Option<&Schema>) -> Value {
    let takes_object =
        schema.is_some_and(|schema| schema.as_json().get("type").is_some_and(|kind| kind == "object"));
    match input {
        None | Some(Value::Null) if takes_object => Value::Object(JsonObject::new()),
        None => Value::Null,
        Some(input) => input,
    }
}

pub(super) fn check_input(tool: &Tool, input: &Value) -> Result<()> {
    let Some(schema) = tool.input_schema() else {
        // Without a schema nothing else bounds the nesting of the input.
        return everturn_core::check_depth(input);
    };
    schema
        .validate(input)
        .map_err(|error| invalid_input(tool.name(), error))
}

pub(super) fn check_output(tool: &Tool, response: &MultipartToolResponse) -> Result<()> {
    let (Some(schema), Some(output)) = (tool.output_schema(), &response.output) else {
        return Ok(());
    };
    schema.validate(output).map_err(|error| {
        Error::internal(format!("invalid output of tool '{}': {error}", tool.name()))
            .with_reason(Reason::INVALID_OUTPUT)
    })
}

fn invalid_input(name: &str, error: Error) -> Error {
    error
        .context(format_args!("invalid input for tool '{name}'"))
        .with_reason(Reason::INVALID_INPUT)
}

pub(super) fn decode<I: DeserializeOwned>(input: Value) -> Result<I> {
    serde_json::from_value(input).map_err(|error| {
        Error::invalid_argument(format!("the tool's input cannot be read: {error}"))
            .with_reason(Reason::INVALID_INPUT)
    })
}

pub(super) async fn run_action(
    action: &Arc<dyn DynAction>,
    input: Value,
    context: &ToolContext,
    is_multipart: bool,
) -> Result<MultipartToolResponse> {
    let call = JsonCall {
        context: context.context().clone(),
        ..JsonCall::new(input)
    };
    let output = action.run_json(call).await?;
    if is_multipart {
        Ok(serde_json::from_value(output)?)
    } else {
        Ok(plain(output))
    }
}
