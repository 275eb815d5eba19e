//! One call of an action on behalf of a request.

use std::sync::Arc;

use everturn_core::{
    Connection, Context, DynAction, Emitter, Error, Exposure, JsonCall, Reason, RefusedBy, Result,
};
use serde_json::Value;

use crate::envelope::Envelope;
use crate::event::Event;

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

    /// Starts the action in a task that lives no longer than what is returned.
    pub(crate) fn start(self, exposure: Exposure) -> Running {
        Running {
            connection: Some(self.connect()),
            exposure,
        }
    }

    /// Starts the action in a task that lives no longer than the connection.
    pub(crate) fn connect(self) -> Connection<(), Value, Value> {
        let key = self.action.descriptor().key.clone();
        let context = self.context.clone();
        Connection::open(key, &context, |_inputs, emitter, context| {
            Self { context, ..self }.perform(Some(emitter))
        })
    }

    async fn perform(self, emitter: Option<Emitter<Value>>) -> Result<Value> {
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

/// A streamed call under way. Each event is produced when the one before has been taken, so a slow reader slows the
/// action down and never makes anything grow; dropping it ends the work, unless that was detached.
pub(crate) struct Running {
    /// Gone once the last event is out.
    connection: Option<Connection<(), Value, Value>>,
    exposure: Exposure,
}

impl Running {
    /// The next event, or `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let connection = self.connection.as_mut()?;
        if let Some(chunk) = connection.receive().next().await {
            return Some(Event::Message(chunk));
        }
        // Before the connection is given up, so that dropping this future loses nothing.
        connection.done().await;
        let connection = self.connection.take()?;
        Some(match connection.into_output().await {
            Ok(output) => Event::Result(output),
            Err(error) => Event::Error(error.to_wire(self.exposure)),
        })
    }
}
