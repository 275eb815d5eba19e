//! The content of a new session before its first turn: its messages, custom state and prompt input.

use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::{Context, Error, Result};
use futures::future::BoxFuture;
use serde_json::Value;

use super::Definition;
use crate::policy::client_permissions::{Field, merged};
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

/// The prompt input that a caller gives to a conversation.
pub(super) enum GivenInput {
    /// The input itself.
    Whole(Value),
    /// Fields that a client may set, to be merged over the input that the conversation has without them.
    Fields(Value),
}

impl GivenInput {
    fn over(self, base: Option<&Arc<Value>>) -> Value {
        match self {
            Self::Whole(input) => input,
            Self::Fields(fields) => merged(base, fields),
        }
    }
}

/// Takes the prompt input out of `init`, and checks it before the store is read. Only the allowed fields of
/// the prompt input are left of the state that a client kept.
///
/// # Errors
/// `INVALID_ARGUMENT` for a field that the agent does not accept from clients, and for an input that does not
/// fit the prompt.
pub(super) fn given_prompt_input(
    definition: &Definition,
    init: &mut AgentInit,
    is_of_client: bool,
) -> Result<Option<GivenInput>> {
    let own = definition.prompt_input.as_ref();
    if let Some(state) = &mut init.state
        && let Some(kept) = &state.prompt_input
    {
        if is_of_client {
            state.prompt_input = definition.client_rules.kept_prompt_input(kept, own);
        }
        definition.check_prompt_input(state.prompt_input.as_deref().unwrap_or(&Value::Null))?;
    }
    let Some(given) = init.prompt_input.take() else {
        return Ok(None);
    };
    if !is_of_client {
        definition.check_prompt_input(&given)?;
        return Ok(Some(GivenInput::Whole(given)));
    }
    definition.client_rules.check_prompt_input(&given)?;
    definition.check_prompt_input(&merged(own, given.clone()))?;
    Ok(Some(GivenInput::Fields(given)))
}

/// Sets the prompt input of a conversation that has none: the given one, else the agent's own. It never
/// changes later.
pub(super) fn settle_prompt_input(
    state: &mut SessionState,
    given: Option<GivenInput>,
    own: Option<&Arc<Value>>,
) -> Result<()> {
    let given = given.map(|given| given.over(state.prompt_input.as_ref().or(own)));
    match (&state.prompt_input, given) {
        (Some(settled), Some(given)) if **settled != given => Err(Error::invalid_argument(
            "'promptInput' is set when a conversation begins, and this one began with another",
        )
        .with_public()),
        (Some(_), _) => Ok(()),
        (None, given) => {
            state.prompt_input = given.map(Arc::new).or_else(|| own.cloned());
            Ok(())
        }
    }
}
