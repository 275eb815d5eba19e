//! AG-UI for agents: a [protocol adapter](everturn_server::ProtocolAdapter) for `CopilotKit` and every other
//! client of the protocol.
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
//! | `POST /agui/{agent}/connect` | a thread's messages and state, followed by its active run |
//! | `GET /agui/{agent}` | the agent's capabilities |
//! | `GET /copilotkit/info` | the agents, for `CopilotKit`'s browser code without its runtime |
//! | `POST /copilotkit/agent/{agent}/run`, `…/connect`, `…/stop/{thread}` | the same client's runs |
//!
//! A thread is a session and a run is a turn. Text, reasoning, tool calls and their results are streamed as
//! they arrive. Changes of the custom state are `STATE_SNAPSHOT` and `STATE_DELTA`, artifacts are activities,
//! and statuses and other parts that the protocol does not define are `CUSTOM`. An agent's tool that
//! interrupts ends the run with an interrupt, which `resume` answers. A tool of the application leaves its
//! call open, and the next run contains the result.
//!
//! The stored history is authoritative. Clients send the whole conversation with each run: messages that
//! equal the history are recognised, new messages are appended, and an edit branches from the last common
//! message. Assistant messages supplied by the client are ignored. If the client's conversation differs in
//! any other way, the client receives the stored one. An agent without a store uses the client's
//! conversation.
//!
//! Ids of messages and calls contain the name of their turn, so they locate messages in the session without
//! an index.
//!
//! Callers are identified and limited as on all other routes of the server. A client that disconnects cancels
//! its turn.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod active_runs;
mod adapter;
mod answers;
mod connect;
mod encoder;
mod ids;
mod input;
mod matching;
mod plan;
mod run;
mod run_log;
mod stateless;
mod stored_thread;

pub use self::adapter::ServeAgui;
