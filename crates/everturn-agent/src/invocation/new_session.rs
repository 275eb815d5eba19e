//! The content of a new session before its first turn.

use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::{Context, Error, Result};
use futures::future::BoxFuture;
use serde_json::Value;

use super::Definition;
use crate::policy::client_permissions::Field;
use crate::{AgentInit, GivenCustom, SessionId, SessionState};

/// Makes the custom state of a new session from its caller's context.
pub(crate) type MakeCustom = Arc<dyn Fn(Context) -> BoxFuture<'static, Result<Value>> + Send + Sync>;

/// The content that an agent gives to its new sessions.
#[derive(Default)]
pub(crate) struct Beginning {
    pub(crate) messages: Vec<Message>,
    pub(crate) custom: Option<MakeCustom>,
}

/// Takes the custom state for a new session out of `init`, and checks it before the store is read.
///
/// An agent that accepts custom states from clients takes a `state` with nothing but a custom state in it for
/// one: clients of other languages can send that.
///
/// # Errors
/// `INVALID_ARGUMENT` if the agent takes none from clients, or if the custom state does not fit the agent.
pub(super) fn given_custom(
    definition: &Definition,
    init: &mut AgentInit,
    is_of_client: bool,
) -> Result<Option<Arc<Value>>> {
    let rules = &definition.client_rules;
    if definition.store.is_some()
        && rules.permissions().allows(Field::Custom)
        && let Some(custom) = init.state.as_ref().and_then(nothing_but_custom)
    {
        init.custom = Some(GivenCustom::from(custom));
        init.state = None;
    }
    let Some(given) = init.custom.take() else {
        return Ok(None);
    };
    if is_of_client {
        rules.require(Field::Custom)?;
    }
    let unfit = |error: Error| {
        error
            .context(format_args!("'custom' does not fit agent '{}'", definition.name))
            .with_public()
    };
    if let Some(schema) = &definition.custom_schema {
        schema.validate(given.value()).map_err(unfit)?;
    }
    definition.function.check_custom(given.value()).map_err(unfit)?;
    Ok(Some(Arc::clone(given.value())))
}

fn nothing_but_custom(state: &SessionState) -> Option<Arc<Value>> {
    let custom = state.custom.clone()?;
    let rest = SessionState {
        custom: None,
        ..state.clone()
    };
    (rest == SessionState::default()).then_some(custom)
}

/// Returns the error for a custom state that was given to a session which exists.
pub(super) fn session_exists(session: &SessionId) -> Error {
    Error::failed_precondition(format!(
        "'custom' is for new sessions, and session '{session}' exists: omit it, or begin another session"
    ))
    .with_public()
}

impl Beginning {
    /// Gives a new session its content: the initial messages and, unless the state has one, the custom state
    /// that the caller gave, else the agent's own.
    ///
    /// # Errors
    /// The error of the function that makes the custom state.
    pub(super) async fn fill(
        &self,
        state: &mut SessionState,
        given: Option<Arc<Value>>,
        caller: &Context,
    ) -> Result<()> {
        // Each session has its own messages, not a shared history: deleting one session must not touch
        // another.
        state.messages = self.messages.iter().cloned().collect();
        if let Some(given) = given {
            state.custom = Some(given);
        }
        if let (None, Some(make)) = (&state.custom, &self.custom) {
            let custom = make(caller.clone()).await;
            let custom = custom.map_err(|error| error.context("the initial custom state"))?;
            state.custom = Some(Arc::new(custom));
        }
        Ok(())
    }
}
