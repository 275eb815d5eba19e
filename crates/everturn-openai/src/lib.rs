//! OpenAI's HTTP API for agents: a [protocol adapter](everturn_server::ProtocolAdapter) for clients of
//! Responses and Chat Completions.
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
//! | `GET`, `DELETE /v1/responses/{id}`, `POST …/cancel`, `GET …/input_items` | a stored response |
//! | `POST /v1/chat/completions` | one turn of a conversation that the client sends |
//! | `POST /v1/conversations`, `GET`, `DELETE /v1/conversations/{id}`, `GET …/items` | a session |
//!
//! A response is a turn, and its id leads to the turn's snapshot: `previous_response_id` resumes that
//! snapshot, so continuing from an older response branches. A `conversation` is a session. A function of the
//! caller is a client tool: its call is an interrupt that the caller answers with `function_call_output`. A
//! call of an agent's tool that requires approval is an `mcp_approval_request`.
//!
//! The stored history is authoritative. Items of earlier responses are recognised by their ids, and only
//! items after them are new. In a stored conversation, assistant messages supplied by the client are
//! rejected. Otherwise the client sends the whole conversation, and the turn is not stored.
//!
//! Callers are identified and limited as on all other routes of the server. A client that disconnects cancels
//! its turn.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod adapter;
mod chat_history;
mod client_transcript;
mod completions;
mod conversations;
mod event;
mod fault;
mod format;
mod items;
mod json_cut;
mod page;
mod plan;
mod response;
mod response_events;
mod responses;
mod start_turn;

pub use self::adapter::ServeOpenAi;
