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

/// Measures something and prints it.
type Table = fn(&tokio::runtime::Runtime);

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let tables: [(&str, Table); 5] = [
        ("growth", growth::run),
        ("sharing", sharing::run),
        ("throughput", throughput::run),
        ("resume", resume::run),
        ("million", million::run),
    ];
    for (name, table) in tables {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            table(&runtime);
            println!();
        }
    }
}
