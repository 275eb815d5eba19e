//! One call of an agent, from its `init` to its output.
//!
//! # The path of a turn
//!
//! ```text
//!   agent.rs ──► chat.rs ──► start.rs          the state is found, the driver starts
//!                               │
//!                               ▼
//!   client ──input──► client.rs ──► driver.rs ◄──────────► machine.rs
//!                        ▲            │    ▲    events,      decides: queue the input, take the turn lock,
//!                        │            │    │    commands     start the turn, commit it, answer
//!             chunk, output           │    │
//!                        │  turn      ▼    │ signals (function.rs): chunk, round done, turn done
//!                        │     agent_session.rs ──► the agent's function, e.g. prompt_turn.rs ──► generate
//!                        │
//!                        └── driver.rs ◄── driver/snapshots.rs ──► cursor.rs ──► storage/store.rs
//! ```
//!
//! 1. Call: `Agent::run` (`agent.rs`) opens a chat of one turn. `Chat::run` (`chat.rs`) passes its input to
//!    the agent's transport, which is `agent.rs` for an agent of this process.
//! 2. Start: `run` (`start.rs`) opens the span, `open` finds the state from which the invocation starts, and
//!    `Driver::start` (`driver.rs`) puts its parts together.
//! 3. Input: `Client::next` (`client.rs`) reads it, and `driver.rs` raises `Input`.
//! 4. Turn lock: `Attached::feed` (`machine.rs`) commands `TakeLock`; `InvocationCursor::take_lock`
//!    (`cursor.rs`) requests it.
//! 5. Function: `Driver::start_turn` hands the turn over. `AgentSession::run` (`agent_session.rs`) receives
//!    and validates its input and calls the handler. `function.rs` polls the function and carries its signals
//!    to the driver.
//! 6. Generate: `prompt_turn` (`prompt_turn.rs`) renders the prompt and calls the model; custom turns use
//!    `Turn::generate`. Where the store keeps journals, `TurnJournal` (`journaling/turn_journal.rs`) records
//!    the answers of the model and the tools before they are used.
//! 7. Snapshot: `Attached::end_turn` commands `CommitTurn`; `Driver::save` (`driver/snapshots.rs`) applies
//!    the policy, `InvocationCursor::create` writes under the cursor's precondition, by
//!    `SessionStore::commit` (`storage/store.rs`).
//! 8. Chunk: `Driver::show` passes each chunk to `ClientStream::queue` (`client.rs`); the last chunk of a
//!    turn is `turnEnd`.
//! 9. Output: `Draining` commands `Resolve`. `Driver::output` makes the output, and `Client::answer`
//!    (`client.rs`) sends it.
//!
//! These are twelve files, from `agent.rs` to `storage/store.rs`. The others are not on the path:
//! `driver/run_worker.rs` and `broadcast.rs` are for turns whose client has left, `turn_lock.rs` is for turns
//! that want one session, `journaling/` for turns that run again. A call that comes through the registry
//! passes the agent's action (`agent/actions.rs`) in place of `agent.rs` and `chat.rs`. The type of the
//! custom state is hidden from everything but the function (`function.rs`).

mod agent_session;
pub(crate) mod answers;
mod broadcast;
mod client;
pub(crate) mod cursor;
mod definition;
mod driver;
mod effect;
mod failure_log;
mod function;
mod generate;
pub mod journaling;
mod machine;
mod new_session;
mod prompt_turn;
mod repeated;
mod start;
mod turn;
pub(crate) mod turn_lock;
pub(crate) mod turn_observer;
mod usage_tracker;

pub use self::agent_session::{AgentSession, OwnedTurn};
pub use self::answers::{validate_answers, validate_edited_answers};
pub use self::client::HandOff;
pub use self::definition::Heartbeat;
pub(crate) use self::definition::{
    AgentPrompt, Definition, RegistryGuard, RespondOnly, Settings, Visibility, schema_of,
};
use self::driver::AgentEvent;
pub(crate) use self::driver::Driver;
pub use self::effect::TurnEffect;
pub(crate) use self::function::{AgentFunction, TypedFunction};
pub use self::generate::TurnGenerate;
pub(crate) use self::new_session::{Beginning, MakeCustom};
pub(crate) use self::prompt_turn::prompt_function;
pub(crate) use self::start::{Opening, invoke, run};
pub use self::turn::{Turn, TurnContext, TurnResult};
pub use self::turn_lock::{Concurrency, SESSION_BUSY, TurnLocking};
pub use self::turn_observer::{EndedTurn, TurnObserver, observe_turns};
