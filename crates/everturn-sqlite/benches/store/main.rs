//! The costs of the store: bytes per text, branch and image, time per turn, throughput, cold resumes, a
//! million sessions.
//!
//! Every table compares two things measured in the same run, so that its ratios mean something on any
//! machine: `cargo bench -p everturn-sqlite --bench store`, or with the names of some of the tables as
//! arguments.

mod conversation;
mod growth;
mod million;
mod resume;
mod sharing;
mod throughput;

fn main() {
    conversation::run_tables(&[
        ("growth", &growth::run),
        ("sharing", &sharing::run),
        ("throughput", &throughput::run),
        ("resume", &resume::run),
        ("million", &million::run),
    ]);
}
