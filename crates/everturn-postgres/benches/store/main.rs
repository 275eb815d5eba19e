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

/// Measures something and prints it.
type Table = fn(&tokio::runtime::Runtime, &str);

fn main() {
    let Ok(url) = std::env::var("EVERTURN_TEST_POSTGRES") else {
        println!("EVERTURN_TEST_POSTGRES names no server");
        return;
    };
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let tables: [(&str, Table); 4] = [
        ("throughput", throughput::run),
        ("growth", growth::run),
        ("million", million::run),
        ("other", other::run),
    ];
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            table(&runtime, &url);
            println!();
        }
    }
}
