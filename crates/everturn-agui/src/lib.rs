//! AG-UI for agents: `CopilotKit`, and every other front end that speaks the protocol, can talk to them.
//!
//! ```
//! use everturn_agui::ServeAgui;
//! use everturn_core::{Registry, Result};
//! use everturn_server::Server;
//!
//! # fn main() -> Result<()> {
//! let registry = Registry::new();
//! // … define agents in the registry
//! let server = Server::new(&registry).agui();
//! # server.router().map(|_| ())
//! # }
//! ```
//!
//! | route | answer |
//! |---|---|
//! | `POST /agui/{agent}` | one run |
//! | `POST /agui/{agent}/connect` | a thread's messages and state, and then whatever is under way |
//! | `GET /agui/{agent}` | the agent's capabilities |
//! | `GET /copilotkit/info`, `POST /copilotkit/agent/{agent}/run`, `…/connect`, `…/stop/{thread}` | `CopilotKit`'s browser code, without a runtime of its own |
//!
//! A thread is a session and a run is a turn. Text, reasoning, tool calls and their results are told as they come; changes of
//! the custom state as `STATE_SNAPSHOT` and `STATE_DELTA`; artifacts as activities; statuses, and parts for which the protocol
//! has no message, as `CUSTOM`. A tool of the agent that asks a person ends the run with an interrupt, which `resume` answers. A
//! tool of the application leaves its call open, and the next run brings the result.
//!
//! The server's record is the truth. Of the conversation that a client sends again, what is equal to the record is
//! recognised, what is new is said, an edit branches from the last message that both share, and words put into the agent's
//! mouth are dropped. A client that shows anything else is told what is on record. An agent without a store is served too; its
//! client keeps the conversation.
//!
//! Ids of messages and calls contain the name of their turn, so a client that sends one back names a place in the session
//! and nothing is indexed.
//!
//! Callers are identified and limited as on all other routes of the server, and a client that leaves cancels its turn.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod answers;
mod capabilities;
mod client_kept;
mod connect;
mod event_stream;
mod given_ids;
mod ids;
mod input;
mod kept;
mod matching;
mod plan;
mod record;
mod run;
mod running;
mod teller;
mod turn;

pub use self::adapter::ServeAgui;
