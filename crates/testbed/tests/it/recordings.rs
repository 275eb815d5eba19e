//! Recordings of everything that programs outside this repository can observe: requests and responses of
//! every route and adapter, the order of events, the OpenAPI document, the names of metrics, spans and
//! environment variables, and the formats of stores. The files in `recorded/` are what the code produced when
//! they were last accepted.
//!
//! A difference is either a mistake or a change to name in its commit. To accept it, run the test with
//! `RECORD=1`:
//!
//! ```text
//! RECORD=1 cargo test -p testbed --test it recordings
//! ```
//!
//! The recordings of the command line are in the tests of `everturn-cli`.

mod adapters;
mod client;
mod client_1_42;
mod names;
mod native;
mod recording;
mod serving;
mod stores;
#[path = "../hostile/wire.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod wire;

use std::path::Path;

/// Compares a text with the file of that name in `recorded/`.
#[track_caller]
fn assert_recorded(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/recorded");
    let accept = "RECORD=1 cargo test -p testbed --test it recordings";
    recording::assert_recorded(&folder.join(name), text, accept);
}
