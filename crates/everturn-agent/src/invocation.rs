//! One call of an agent, from its `init` to its output.
//!
//! # The path of a turn
//!
//! ```text
//!   client ──input──► client.rs ──► driver.rs ◄──────────► machine/attached.rs
//!                        ▲            │    ▲    events,      decides: queue the input, take the turn lock,
//!                        │            │    │    commands     start the turn, commit it, answer
//!             chunk, output           │    │
//!                        │  turn      ▼    │ signals: chunk, round done, turn done
//!                        │     agent_session.rs ──► the agent's function, e.g. prompt_turn.rs ──► generate
//!                        │                                                                        │
//!                        └── driver.rs ◄── snapshots.rs              journaling/turn_journal.rs ◄─┘
//!                                          applies the policy, writes   records replies and tools' results
//! ```
//!
//! 1. Input: `Client::next` (`client.rs`) reads it, and `driver.rs` raises `Input`.
//! 2. Turn lock: `Attached::feed` (`machine/attached.rs`) commands `TakeLock`; `Driver::take_lock` requests
//!    it.
//! 3. Function: `Driver::start_turn` hands the turn over. `AgentSession::run` (`agent_session.rs`) receives
//!    its input (`input_validation.rs`) and calls the handler.
//! 4. Generate: `prompt_turn` (`prompt_turn.rs`) renders the prompt and calls the model; custom turns use
//!    `Turn::generate`.
//! 5. Journal: `TurnJournal` (`journaling/turn_journal.rs`) records the answers of the model and the tools
//!    before they are used.
//! 6. Snapshot: `Attached::end_turn` commands `CommitTurn`; `Driver::save` (`snapshots.rs`) applies the
//!    policy and writes.
//! 7. Chunk: `Driver::show` passes each chunk to `ClientStream::queue` (`client.rs`); the last chunk of a
//!    turn is `turnEnd`.
//! 8. Output: `Draining` commands `Resolve`. `Driver::output` makes the output, and `Client::answer`
//!    (`client.rs`) sends it.
//!
//! These are seven files, `driver.rs` included. The others are not on the path: `start.rs` and `opening.rs`
//! come before it, `run_worker.rs` and `broadcast.rs` are for turns whose client has left, `function.rs` and
//! `signals.rs` carry signals between the function's task and the driver. The type of the custom state is
//! hidden from everything but the function (`function.rs`).

mod added_by_client;
mod agent_session;
pub(crate) mod answers;
mod broadcast;
mod client;
mod conversation;
pub(crate) mod cursor;
mod definition;
mod driver;
mod effect;
mod failure_log;
mod function;
mod generate;
pub mod journaling;
mod machine;
mod message_positions;
mod new_session;
mod owned_turn;
mod prompt_turn;
mod registry_guard;
mod repeated;
mod start;
mod turn;
pub(crate) mod turn_lock;
pub(crate) mod turn_observer;
mod usage_tracker;

pub use self::agent_session::AgentSession;
pub use self::answers::{validate_answers, validate_edited_answers};
pub use self::client::HandOff;
pub use self::definition::Heartbeat;
pub(crate) use self::definition::{AgentPrompt, Definition, RespondOnly, Settings, Visibility, schema_of};
use self::driver::AgentEvent;
pub(crate) use self::driver::Driver;
pub use self::effect::TurnEffect;
pub(crate) use self::function::{AgentFunction, TypedFunction};
pub use self::generate::TurnGenerate;
pub(crate) use self::new_session::{Beginning, MakeCustom};
pub use self::owned_turn::OwnedTurn;
pub(crate) use self::prompt_turn::prompt_function;
pub(crate) use self::registry_guard::RegistryGuard;
pub(crate) use self::start::{Opening, invoke, run};
pub use self::turn::{Turn, TurnContext, TurnResult};
pub use self::turn_lock::{Concurrency, SESSION_BUSY, TurnLocking};
pub use self::turn_observer::{EndedTurn, TurnObserver, observe_turns};
