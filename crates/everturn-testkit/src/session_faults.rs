//! Checking that no sequence of faults makes a session unusable.
//!
//! [`check_program`] runs a program of [`Fault`]s (turns that fail, are aborted, left or killed, background runs that are taken over,
//! interrupts that are answered rightly, wrongly, twice and never, branches and rewinds, imports, code that adds messages
//! itself) on a store, through real agents. Every request that a model gets, and the one that it would get next, must be one
//! that [every provider](crate::provider_rules) takes. Programs are made from random numbers of any source.
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

/// Something that happens to a session. `at` picks the snapshot that is continued: the session's latest, or an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A message of the user, to which the model replies in one of many ways.
    Say {
        /// The snapshot.
        at: u8,
        /// The model's reply.
        reply: u8,
    },
    /// Answers to interrupts: right ones, some of them, wrong ones, edited ones, or with a message.
    Answer {
        /// The snapshot.
        at: u8,
        /// The kind of the answers.
        how: u8,
    },
    /// An input without a message.
    Retry {
        /// The snapshot.
        at: u8,
    },
    /// A message at an earlier snapshot, after which all later ones are orphaned.
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
    /// A background run that is aborted inside its turn.
    Abort {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
    },
    /// A client that leaves inside its turn.
    Leave {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
    },
    /// A process that dies inside a turn. Another one takes its background run over.
    Kill {
        /// The snapshot.
        at: u8,
        /// Whether a tool has answered before.
        after_tool: bool,
        /// Whether the turn runs in the background.
        is_detached: bool,
    },
    /// An agent that adds messages of any kind itself before it asks the model.
    AddMessages {
        /// The snapshot.
        at: u8,
        /// The messages.
        messages: u32,
    },
    /// A session that is exported and imported under another id, and continued there.
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

/// The extent of a program that was summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Checked {
    /// The number of requests that were checked.
    pub requests: usize,
    /// The number of inputs that were refused or failed.
    pub failures: usize,
    /// The number of snapshots whose messages no provider would take as they are.
    pub faulty: usize,
}

/// Runs a program on an empty store, and checks every request.
///
/// # Errors
/// The number of the fault after which a request is refused by a provider, with the reason.
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
