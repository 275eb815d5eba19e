//! Traces and log lines of a program made with Everturn, for OpenTelemetry collectors.
//!
//! ```no_run
//! # fn main() -> everturn_core::Result<()> {
//! let _telemetry = everturn_otlp::start()?;
//! // … define agents and serve them
//! # Ok(()) }
//! ```
//!
//! Spans and lines go by HTTP, as protobuf, to `OTEL_EXPORTER_OTLP_ENDPOINT` (`http://localhost:4318` if it is not set), under
//! the name in `OTEL_SERVICE_NAME`. They are sent by a thread of their own from a bounded queue. A collector that is slow or
//! absent never holds up the program: what finds no room is dropped, counted and reported.
//!
//! | to | see |
//! |---|---|
//! | choose the collector, or a name | [`Otlp`] |
//! | see what models were asked and answered | [`Otlp::content`] |
//! | export the lines of a subscriber of one's own | [`Telemetry::log_layer`] |
//!
//! Each span has the attributes that Genkit's tools know, and beside them OpenTelemetry's names for generative AI:
//!
//! | span | `gen_ai.operation.name` | further attributes |
//! |---|---|---|
//! | model | `chat` | `gen_ai.provider.name`, `gen_ai.request.model`, `gen_ai.usage.*`, `gen_ai.response.finish_reasons` |
//! | embedder | `embeddings` | `gen_ai.provider.name`, `gen_ai.request.model` |
//! | tool | `execute_tool` | `gen_ai.tool.name` |
//! | agent | `invoke_agent` | `gen_ai.agent.name`, `gen_ai.conversation.id` |
//!
//! A background run that another worker took over is a trace of its own, linked to the invocation that was detached. So is the
//! span of everybody who watches the run.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod gen_ai;
mod log_layer;
mod log_record;
mod otlp;
mod queue;
mod span_data;
mod worker;

pub use self::log_layer::LogLayer;
pub use self::otlp::{Otlp, Telemetry, start};
