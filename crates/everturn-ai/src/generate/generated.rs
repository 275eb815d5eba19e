//! The result of a generation.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use everturn_core::{Error, Reason, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::output::OutputPlan;
use super::plan::Finished;
use crate::{FinishReason, Message, Messages, ModelResponse, Part, ToolRequest};

/// The response to a generation, with its output as a `T`.
///
/// It dereferences to the [`ModelResponse`] and can also parse its output.
pub struct Generated<T = Value> {
    response: ModelResponse,
    plan: Arc<OutputPlan>,
    output: PhantomData<fn() -> T>,
}

impl<T> Generated<T> {
    pub(super) fn new(finished: Finished) -> Self {
        Self {
            response: finished.response,
            plan: finished.output,
            output: PhantomData,
        }
    }

    /// Parses the output in its format; without a format, parses JSON found in the text.
    ///
    /// # Errors
    /// `INTERNAL` with [`Reason::INVALID_OUTPUT`] if the response contains no output, or not a `T`.
    pub fn output(&self) -> Result<T>
    where
        T: DeserializeOwned,
    {
        let value = self
            .output_value()?
            .ok_or_else(|| invalid("the answer holds no output"))?;
        serde_json::from_value(value).map_err(|error| invalid(&format!("the output cannot be read: {error}")))
    }

    /// Returns the output as JSON; `None` if the response contains none.
    ///
    /// # Errors
    /// `INTERNAL` with [`Reason::INVALID_OUTPUT`] if the response is not in the format.
    pub fn output_value(&self) -> Result<Option<Value>> {
        self.response
            .message
            .as_ref()
            .map_or(Ok(None), |message| self.plan.read(message))
    }

    /// Returns the whole conversation: the request's messages and the answer.
    pub fn messages(&self) -> Messages {
        let mut messages = self
            .response
            .request
            .as_ref()
            .map(|request| request.messages.clone())
            .unwrap_or_default();
        messages.extend(self.response.message.clone());
        messages
    }

    /// Returns why the response ended; [`FinishReason::Unknown`] if the model did not report it.
    pub fn finish_reason(&self) -> FinishReason {
        self.response.finish_reason.unwrap_or(FinishReason::Unknown)
    }

    /// Returns the tool requests that wait for an answer, if the generation was interrupted.
    pub fn interrupts(&self) -> impl Iterator<Item = &Part> {
        self.response.message.iter().flat_map(Message::interrupts)
    }

    /// Returns the tool requests in the answer.
    pub fn tool_requests(&self) -> impl Iterator<Item = &ToolRequest> {
        self.response.message.iter().flat_map(Message::tool_requests)
    }

    /// Returns the response as it is sent on the wire.
    pub fn into_response(self) -> ModelResponse {
        self.response
    }
}

fn invalid(message: &str) -> Error {
    Error::internal(message).with_reason(Reason::INVALID_OUTPUT)
}

impl<T> Deref for Generated<T> {
    type Target = ModelResponse;

    fn deref(&self) -> &ModelResponse {
        &self.response
    }
}

impl<T> Clone for Generated<T> {
    fn clone(&self) -> Self {
        Self {
            response: self.response.clone(),
            plan: Arc::clone(&self.plan),
            output: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(Generated<T>, response);
