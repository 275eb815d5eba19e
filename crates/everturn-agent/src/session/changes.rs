//! The changes that a tool call or an effect makes to the session, so that a replay can make them again.

use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::Context;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::patch::JsonPatch;
use crate::{Artifact, SessionId};

/// One change of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    /// A change of the custom state.
    Custom(JsonPatch),
    /// An artifact that was added or replaced.
    Artifact(Artifact),
    /// The artifacts that replaced all others.
    Artifacts(Vec<Artifact>),
    /// A message that was added.
    Message(Message),
}

/// The changes that one tool call or effect makes; an extension of the context in which it runs.
///
/// Calls that run at the same time have one each, so their changes are separate. Changes made in tasks that
/// are spawned without the context are not seen.
#[derive(Debug)]
pub(crate) struct Changes {
    session: SessionId,
    made: Mutex<Vec<Change>>,
}

impl Changes {
    pub(crate) fn of(session: SessionId) -> Arc<Self> {
        Arc::new(Self {
            session,
            made: Mutex::default(),
        })
    }

    /// Makes changes seen that are made in `context`.
    pub(crate) fn enter(self: &Arc<Self>, context: Context) -> Context {
        context.with_extension(Arc::clone(self))
    }

    /// Returns the changes of the call in which the calling code runs, if they are those of `session`. An
    /// agent that is called from a tool inherits the tool's context but has a separate session.
    pub(super) fn current(session: &SessionId) -> Option<Arc<Self>> {
        Context::current()
            .extension::<Self>()
            .filter(|changes| changes.session == *session)
    }

    pub(super) fn note(&self, change: Change) {
        self.made.lock().push(change);
    }

    /// Returns the changes so far.
    pub(crate) fn made(&self) -> Vec<Change> {
        self.made.lock().clone()
    }
}
