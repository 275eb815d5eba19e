//! The costs of the store: turns per second, time per turn, bytes per text, a million sessions.
//!
//! Every table compares two things measured in the same run, so that its ratios mean something on any
//! machine. The server is the one that `EVERTURN_TEST_POSTGRES` names. Each table creates its schemas and
//! drops them: `cargo bench -p everturn-postgres --bench store`, or with the names of some of the tables as
//! arguments.

#[path = "../../../everturn-sqlite/benches/store/conversation.rs"]
mod conversation;
mod growth;
mod million;
mod other;
mod schema;
mod tap;
mod throughput;

fn main() {
    let Ok(url) = std::env::var("EVERTURN_TEST_POSTGRES") else {
        println!("EVERTURN_TEST_POSTGRES names no server");
        return;
    };
    conversation::run_tables(&[
        ("throughput", &|runtime| throughput::run(runtime, &url)),
        ("growth", &|runtime| growth::run(runtime, &url)),
        ("million", &|runtime| million::run(runtime, &url)),
        ("other", &|runtime| other::run(runtime, &url)),
    ]);
}
