//! Genkit's developer tools for Everturn programs: `genkit start`, the Dev UI, and the commands for flows,
//! evaluations and traces work unchanged.
//!
//! ```console
//! $ npm install --global genkit-cli
//! $ genkit start -- cargo run
//! $ genkit flow:run menu '"leeks"'      # in another terminal, same folder
//! ```
//!
//! A program made with the `everturn` crate needs no code: `serve` starts [`DevTools`] if the environment
//! contains `GENKIT_ENV=dev`, as set by the tools. Nothing is started outside development.
//!
//! | to | see |
//! |---|---|
//! | connect a program that does not serve | [`DevTools::start`] |
//! | send log lines with their spans | [`DevTools::log_layer`] |
//! | read traces inside the program | [`TraceLog`] |
//! | score answers without a model | `register_evaluators`, with the feature `evaluators` |
//!
//! Only programs on the same machine reach the reflection API: it listens on loopback, and rejects browsers
//! and foreign host names.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

mod dev_tools;
#[cfg(feature = "evaluators")]
mod evaluators;
mod exporter;
mod reflection_http;
mod reflection_socket;
mod runs;
mod runtime_file;
mod trace_format;
mod trace_log;
mod wire;

pub use self::dev_tools::DevTools;
pub use self::dev_tools::Environment;
#[cfg(feature = "evaluators")]
pub use self::evaluators::register_evaluators;
pub use self::exporter::LogLayer;
pub use self::trace_log::TraceLog;
