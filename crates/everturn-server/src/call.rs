//! One call of an action on behalf of a request.

use std::sync::Arc;

use everturn_core::stream_log::JsonText;
use everturn_core::{
    Connection, Context, DynAction, Emitter, Error, Exposure, JsonCall, Reason, RefusedBy, Result,
};
use futures::TryFutureExt as _;
use serde_json::Value;

use crate::envelope::Envelope;
use crate::running::Running;

/// A call that has not begun.
pub(crate) struct Call {
    pub(crate) action: Arc<dyn DynAction>,
    pub(crate) envelope: Envelope,
    pub(crate) context: Context,
}

impl Call {
    /// Runs the action to its output. Dropping the future is what a client does that leaves: it ends the work, unless
    /// that was detached.
    pub(crate) async fn run(self) -> Result<Value> {
        self.perform(None).await
    }

    /// Starts the action, which goes on as what it sends is read.
    pub(crate) fn start(self, exposure: Exposure) -> Running {
        Running::begin(exposure, |emitter| self.perform(Some(emitter)))
    }

    /// Starts the action in a task that lives no longer than the connection.
    pub(crate) fn connect(self) -> Connection<(), Value, JsonText> {
        let key = self.action.descriptor().key.clone();
        let context = self.context.clone();
        Connection::open(key, &context, |_inputs, emitter, context| {
            Self { context, ..self }.perform(Some(emitter)).err_into()
        })
    }

    async fn perform(self, emitter: Option<Emitter<JsonText>>) -> Result<Value> {
        let Self {
            action,
            envelope,
            context,
        } = self;
        let call = JsonCall {
            input: envelope.data,
            init: envelope.init,
            context,
            emitter,
        };
        let outcome = action.run_json(call).await;
        outcome.map_err(|error| told_to_its_sender(error, &action.descriptor().key))
    }
}

/// What is wrong with an input is public to whoever sent it: the schema it breaks is, too. What some code on the way
/// sent to another action stays inside.
pub(crate) fn told_to_its_sender(error: Error, key: &str) -> Error {
    let own = error
        .find_source::<RefusedBy>()
        .is_some_and(|refused| refused.key() == key);
    if own && error.is(Reason::INVALID_INPUT) && error.public_message().is_none() {
        error.with_public()
    } else {
        error
    }
}
