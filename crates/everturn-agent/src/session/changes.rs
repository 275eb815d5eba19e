//! What a piece of work changes in the session, so that the change can be made again without the work.

use std::sync::{Arc, Mutex};

use everturn_ai::Message;
use everturn_core::Context;
use serde::{Deserialize, Serialize};

use crate::lock::lock;
use crate::patch::JsonPatch;
use crate::{Artifact, SessionId};

/// One change of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    /// Of the custom state.
    Custom(JsonPatch),
    /// An artifact was added or replaced.
    Artifact(Artifact),
    /// Other artifacts took the place of all.
    Artifacts(Vec<Artifact>),
    /// A message was added.
    Message(Message),
}

/// The changes that one piece of work makes, found in the context in which it runs.
///
/// Pieces that run at the same time have one each, so what they do is told apart. Changes made in tasks that the work
/// spawns without its context are not seen.
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

    /// Makes changes of the session seen in `context`.
    pub(crate) fn enter(self: &Arc<Self>, context: Context) -> Context {
        context.with_extension(Arc::clone(self))
    }

    /// Those of the work this code runs in, if it is seen and `session` is the one it is about. An agent that is called
    /// from a tool inherits the tool's context, and has a session of its own.
    pub(super) fn current(session: &SessionId) -> Option<Arc<Self>> {
        Context::current()
            .extension::<Self>()
            .filter(|changes| changes.session == *session)
    }

    pub(super) fn note(&self, change: Change) {
        lock(&self.made).push(change);
    }

    /// What was changed so far.
    pub(crate) fn made(&self) -> Vec<Change> {
        lock(&self.made).clone()
    }
}
