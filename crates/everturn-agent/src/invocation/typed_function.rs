//! An agent's function behind a trait without the type of its custom state.
//!
//! Everything around the function (the definition, the driver, the actions) is the same for all types, so it
//! is compiled once and not again for each agent.

use std::any::type_name;
use std::sync::Arc;

use everturn_core::{Context, Result};
use futures::future::BoxFuture;
use serde_json::Value;

use super::agent_session::InvocationFacts;
use super::signals::Signals;
use crate::policy::transform::StateTransform;
use crate::session::Core;
use crate::storage::session_state::decode_custom;
use crate::{AgentResult, AgentSession, CustomState, Session, SessionHandle, SessionId, SessionState};

/// An agent's function: runs the turns of one invocation and returns its result.
pub(crate) type AgentFunction<S> =
    dyn Fn(AgentSession<S>) -> BoxFuture<'static, Result<AgentResult>> + Send + Sync;

/// Calls the agent's function on the session that was opened for it.
pub(crate) type BeginFunction =
    Box<dyn FnOnce(Context, Signals, InvocationFacts) -> BoxFuture<'static, Result<AgentResult>> + Send>;

/// An agent's function and the type of its custom state, which is private to the implementation.
pub(crate) trait UntypedFunction: Send + Sync {
    /// Returns the name of the type of the custom state.
    fn custom_type(&self) -> &'static str;

    /// Checks that a custom state is of the agent's type.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field at fault.
    fn check_custom(&self, custom: &Value) -> Result<()>;

    /// Creates the live state of a session, on which the function can then begin.
    ///
    /// # Errors
    /// As [`UntypedFunction::check_custom`].
    fn open(
        &self,
        session_id: SessionId,
        state: SessionState,
        signals: &Signals,
        transform: Option<StateTransform>,
        caller: Context,
    ) -> Result<(SessionHandle, BeginFunction)>;
}

/// A function with the type of its custom state.
pub(crate) struct TypedFunction<S>(pub(crate) Arc<AgentFunction<S>>);

impl<S: CustomState> UntypedFunction for TypedFunction<S> {
    fn custom_type(&self) -> &'static str {
        type_name::<S>()
    }

    fn check_custom(&self, custom: &Value) -> Result<()> {
        decode_custom::<S>(Some(custom)).map(drop)
    }

    fn open(
        &self,
        session_id: SessionId,
        state: SessionState,
        signals: &Signals,
        transform: Option<StateTransform>,
        caller: Context,
    ) -> Result<(SessionHandle, BeginFunction)> {
        let core = Core::<S>::new(session_id, state, signals.publisher(), transform, caller)?;
        let session = Session::new(Arc::new(core));
        let (handle, function) = (session.handle(), Arc::clone(&self.0));
        let begin = move |context: Context, signals: Signals, facts: InvocationFacts| {
            function(AgentSession::new(session, context, signals, facts))
        };
        Ok((handle, Box::new(begin)))
    }
}
