//! Exports traces and log lines of Everturn programs to OpenTelemetry collectors.
//!
//! ```no_run
//! # fn main() -> everturn_core::Result<()> {
//! let _telemetry = everturn_otlp::start()?;
//! // … define agents and serve them
//! # Ok(()) }
//! ```
//!
//! Spans and lines are sent over HTTP, as protobuf, to `OTEL_EXPORTER_OTLP_ENDPOINT` (by default
//! `http://localhost:4318`), with the name in `OTEL_SERVICE_NAME`. A separate thread sends them from a
//! bounded queue. A slow or absent collector never blocks the program: items that do not fit are dropped,
//! counted and reported.
//!
//! | to | see |
//! |---|---|
//! | configure the collector or the service name | [`Otlp`] |
//! | export the inputs and outputs of calls | [`Otlp::content`] |
//! | export log lines through an existing subscriber | [`Telemetry::log_layer`] |
//!
//! Each span has the attributes of Genkit's tools and those of OpenTelemetry's conventions for generative AI:
//!
//! | span | `gen_ai.operation.name` | further attributes, without `gen_ai.` |
//! |---|---|---|
//! | model | `chat` | `provider.name`, `request.model`, `usage.*`, `response.finish_reasons` |
//! | embedder | `embeddings` | `provider.name`, `request.model` |
//! | tool | `execute_tool` | `tool.name` |
//! | agent | `invoke_agent` | `agent.name`, `conversation.id` |
//!
//! A background run that another worker takes over has a separate trace, linked to the invocation that was
//! detached. The span of each watcher is linked to it in the same way.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod log_lines;
mod otlp;
mod queue;
mod span_data;
mod worker;

pub use self::log_lines::LogLayer;
pub use self::otlp::{Otlp, Telemetry, start};
