//! OpenAI's HTTP surface for agents: every client of Responses and Chat Completions can talk to them.
//!
//! ```
//! use everturn_core::{Registry, Result};
//! use everturn_openai::ServeOpenAi;
//! use everturn_server::Server;
//!
//! # fn main() -> Result<()> {
//! let registry = Registry::new();
//! // … define agents in the registry
//! let server = Server::new(&registry).openai();
//! # server.router().map(|_| ())
//! # }
//! ```
//!
//! | route | answer |
//! |---|---|
//! | `GET /v1/models`, `/v1/models/{agent}` | the agents that have a route and that the caller may use |
//! | `POST /v1/responses` | one turn, streamed or not, in the background or not |
//! | `GET`, `DELETE /v1/responses/{id}`, `POST …/cancel`, `GET …/input_items` | what became of it |
//! | `POST /v1/chat/completions` | one turn, told by the client |
//! | `POST /v1/conversations`, `GET`, `DELETE /v1/conversations/{id}`, `GET …/items` | a session |
//!
//! A response is a turn and its id leads to the turn's snapshot: `previous_response_id` resumes that snapshot, so continuing
//! from an older response branches. A `conversation` is a session. A function of the caller is a tool of the client: its call
//! is an interrupt that the caller answers with `function_call_output`. A tool of the agent that asks before it acts is an
//! `mcp_approval_request`.
//!
//! The server's record is the truth. Items of earlier responses that a client sends back are recognised by their ids, what
//! follows them is new, and words put into the agent's mouth are refused in a conversation that is kept. Without one, the
//! client tells the conversation, and nothing of it is stored.
//!
//! Callers are identified and limited as on all other routes of the server, and a client that leaves cancels its turn.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod agents;
mod completions;
mod conversations;
mod event;
mod event_stream;
mod fault;
mod format;
mod ids;
mod items;
mod json_cut;
mod log;
mod narrator;
mod page;
mod plan;
mod record;
mod response;
mod responses;
mod said;
mod turn;

pub use self::adapter::ServeOpenAi;
