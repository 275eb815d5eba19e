//! Checking that no sequence of faults makes a session unusable.
//!
//! [`check_program`] runs a program of [`Fault`]s on a store, through real agents: turns that fail, are
//! aborted, cancelled or killed, background runs that are taken over, interrupts with correct, wrong,
//! repeated and missing answers, branches and rewinds, imports, and agents that add messages themselves.
//! Every request to a model, and the one that would come next, must be accepted by [every
//! provider](crate::provider_rules). A program is made from random numbers of any source.
//!
//! ```
//! use std::sync::Arc;
//! use everturn_agent::{WhileInterrupted, store::MemoryStore};
//! use everturn_testkit::session_faults::{Fault, check_program};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let program: Vec<Fault> = [3, 1 << 40, 77, 5 << 33, 12].map(Fault::from_random).into();
//! let summary = check_program(Arc::new(MemoryStore::new()), WhileInterrupted::CloseAll, &program).await.unwrap();
//! assert!(summary.requests >= program.len());
//! # }
//! ```

mod agents;
mod runner;

use std::sync::Arc;

use everturn_agent::WhileInterrupted;
use everturn_agent::store::SessionStore;

/// An operation on a session, most of which fail or interrupt it. `at` selects the snapshot to continue: the
/// session's latest, or an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A message of the user, with one of many replies of the model.
    Say {
        /// The snapshot.
        at: u8,
        /// The model's reply.
        reply: u8,
    },
    /// Answers to interrupts: correct, incomplete, wrong or edited ones, or with a message.
    Answer {
        /// The snapshot.
        at: u8,
        /// The kind of answers.
        how: u8,
    },
    /// An input without a message.
    Retry {
        /// The snapshot.
        at: u8,
    },
    /// A message at an earlier snapshot, which supersedes all later ones.
    Rewind {
        /// The snapshot.
        at: u8,
        /// The model's reply.
        reply: u8,
    },
    /// A turn that runs in the background.
    Detach {
        /// The snapshot.
        at: u8,
        /// The model's reply.
        reply: u8,
    },
    /// A background run that is aborted during its turn.
    Abort {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
    },
    /// A client that disconnects during its turn.
    Leave {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
    },
    /// A process that dies during a turn. Another one takes over its background run.
    Kill {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
        /// Whether the turn runs in the background.
        is_detached: bool,
    },
    /// An agent that adds arbitrary messages before it calls the model.
    AddMessages {
        /// The snapshot.
        at: u8,
        /// The messages.
        messages: u32,
    },
    /// The session is exported, imported under another id, and continued there.
    Move,
}

impl Fault {
    /// Makes a fault from a random number.
    pub fn from_random(number: u64) -> Self {
        let [kind, at, reply, flags, ..] = number.to_le_bytes();
        // Most turns continue the latest snapshot.
        let at = at.saturating_sub(160);
        let (after_tool, is_detached) = (flags & 1 == 1, flags & 2 == 2);
        match kind % 20 {
            0..=5 => Self::Say { at, reply },
            6..=9 => Self::Answer { at, how: reply },
            10 => Self::Retry { at },
            11 => Self::Rewind { at, reply },
            12 => Self::Detach { at, reply },
            13 => Self::Abort { at, after_tool },
            14 => Self::Leave { at, after_tool },
            15 | 16 => Self::Kill {
                at,
                after_tool,
                is_detached,
            },
            17 | 18 => Self::AddMessages {
                at,
                messages: (number >> 32) as u32,
            },
            _ => Self::Move,
        }
    }
}

/// A summary of a checked program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// The number of checked requests.
    pub requests: usize,
    /// The number of inputs that were rejected or failed.
    pub failures: usize,
    /// The number of snapshots whose messages no provider would accept unrepaired.
    pub faulty: usize,
}

/// Runs a program on an empty store, and checks every request.
///
/// # Errors
/// The number of the fault after which a provider rejects a request, with the reason.
pub async fn check_program(
    store: Arc<dyn SessionStore>,
    policy: WhileInterrupted,
    program: &[Fault],
) -> Result<Checked, String> {
    let mut runner = runner::Runner::new(store, policy);
    for (number, fault) in program.iter().enumerate() {
        let checked = async {
            runner.apply(*fault).await?;
            runner.check().await
        };
        checked
            .await
            .map_err(|reason| format!("fault {number}, {fault:?}: {reason}"))?;
    }
    Ok(runner.summary())
}
