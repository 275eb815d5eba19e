//! One call of an action on behalf of a request.

use std::sync::Arc;

use everturn_core::offload::{is_heavy, offload};
use everturn_core::stream_log::JsonText;
use everturn_core::{
    ActionType, Connection, Context, DynAction, Emitter, Error, Exposure, JsonCall, Reason, RefusedBy,
    RequestId, Result,
};
use parking_lot::Mutex;
use serde_json::Value;

use crate::answer_form::AnswerForm;
use crate::correlation::{keyed, log_failed_call};
use crate::permits::Permit;
use crate::polled_call::CallEvents;
use crate::request_body::Envelope;

/// A call that has not started.
pub(crate) struct ActionCall {
    pub(crate) action: Arc<dyn DynAction>,
    pub(crate) envelope: Envelope,
    pub(crate) context: Context,
    /// The permit for the values of a large request. They are decoded when the first chunk is sent.
    pub(crate) values: Option<Permit>,
}

impl ActionCall {
    /// Runs the action to its output. Dropping the future cancels the work unless it was detached.
    pub(crate) async fn run(self) -> Result<Value> {
        Box::new(self).perform(None).await
    }

    /// Starts the action, which runs at the pace at which its chunks are read.
    pub(crate) fn start(self, exposure: Exposure, form: AnswerForm) -> CallEvents {
        // Boxed to keep the futures below small.
        let call = Box::new(self);
        CallEvents::start(exposure, |emitter| async move {
            text_of(call.perform(Some(emitter)).await?, form).await
        })
    }

    /// Starts the action in a task that ends with the connection.
    pub(crate) fn connect(self) -> Connection<(), JsonText, JsonText> {
        let key = self.action.descriptor().key.clone();
        let context = self.context.clone();
        Connection::open(key, &context, |_inputs, emitter, context| async move {
            let output = Box::new(Self { context, ..self }).perform(Some(emitter)).await?;
            // The log stores every field, for all readers.
            Ok(text_of(output, AnswerForm::COMPLETE).await?)
        })
    }

    async fn perform(self: Box<Self>, emitter: Option<Emitter<JsonText>>) -> Result<Value> {
        // Moved out in a block, so that the box is freed before the wait.
        let Self {
            action,
            envelope,
            context,
            values,
        } = *{ self };
        let request = RequestId::of(&context);
        let context = if action.descriptor().action_type == ActionType::AGENT {
            keyed(context)
        } else {
            context
        };
        let call = JsonCall {
            input: envelope.data,
            init: envelope.init,
            context,
            emitter: match (emitter, values) {
                (Some(emitter), Some(values)) => Some(until_first_chunk(values, emitter)),
                (emitter, _) => emitter,
            },
        };
        let outcome = action.run_json(call).await;
        outcome.map_err(|error| {
            let error = public_to_its_sender(error, &action.descriptor().key);
            log_failed_call(&action.descriptor().key, &request, &error);
            error
        })
    }
}

/// Returns an emitter that drops a permit with the first chunk, or with the call.
fn until_first_chunk(permit: Permit, emitter: Emitter<JsonText>) -> Emitter<JsonText> {
    let permit = Mutex::new(Some(permit));
    Emitter::new(move |chunk| {
        drop(permit.lock().take());
        let emitter = emitter.clone();
        async move { Ok(emitter.send(chunk).await?) }
    })
}

/// Serialises an output in a caller's form, on a blocking thread if it is large.
pub(crate) async fn text_of(output: Value, form: AnswerForm) -> Result<JsonText> {
    if is_heavy(&output) {
        Box::pin(offload(move || JsonText::of(&form.output(output)))).await
    } else {
        JsonText::of(&form.output(output))
    }
}

/// Makes the error of an invalid input public, because the caller sent the input and the schema is public
/// too. An error about the input of another action that ran inside stays private.
pub(crate) fn public_to_its_sender(error: Error, key: &str) -> Error {
    let own = error
        .find_source::<RefusedBy>()
        .is_some_and(|refused| refused.key() == key);
    if own && error.is(Reason::INVALID_INPUT) && error.public_message().is_none() {
        error.with_public()
    } else {
        error
    }
}
