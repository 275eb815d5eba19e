//! Parsing the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// Serves the agents of the conformance cases, so that clients in any language can be tested against them
#[derive(Parser)]
#[command(name = "testbed")]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes any free one
    #[arg(long = "addr", value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) address: SocketAddr,

    /// Where conversations are kept: `memory`, `file:PATH`, `sqlite:PATH` or `postgres:URL`
    #[arg(long, value_name = "STORE", default_value = "memory", value_parser = store)]
    pub(crate) store: StoreChoice,

    /// How long a save waits for another process
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10_000)]
    pub(crate) busy_timeout: u64,

    /// How much of one caller's streams is kept; four times as much of all
    #[arg(long, value_name = "BYTES")]
    pub(crate) stream_bytes: Option<usize>,

    /// Let every caller change, export and import sessions
    #[arg(long)]
    pub(crate) archive: bool,

    /// Keep no streams: a client that leaves ends its turn
    #[arg(long)]
    pub(crate) forget_streams: bool,
}

/// The kind and place of the store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreChoice {
    Memory,
    File(PathBuf),
    Sqlite(PathBuf),
    Postgres(String),
}

fn store(text: &str) -> Result<StoreChoice, &'static str> {
    match text.split_once(':') {
        None if text == "memory" => Ok(StoreChoice::Memory),
        Some(("file", path)) if !path.is_empty() => Ok(StoreChoice::File(path.into())),
        Some(("sqlite", path)) if !path.is_empty() => Ok(StoreChoice::Sqlite(path.into())),
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
            Ok(StoreChoice::Postgres(text.to_owned()))
        }
        Some(("postgres", url)) if url.starts_with("postgres") => Ok(StoreChoice::Postgres(url.to_owned())),
        _ => Err("a store is memory, file:PATH, sqlite:PATH or postgres:URL"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_kind_and_place() {
        assert_eq!(store("memory"), Ok(StoreChoice::Memory));
        assert_eq!(
            store("sqlite:/tmp/a:b.db"),
            Ok(StoreChoice::Sqlite("/tmp/a:b.db".into()))
        );
        let url = || StoreChoice::Postgres("postgres://chef@db/kitchen".to_owned());
        assert_eq!(store("postgres:postgres://chef@db/kitchen"), Ok(url()));
        assert_eq!(store("postgres://chef@db/kitchen"), Ok(url()));
        for wrong in ["", "file:", "postgres:x", "memory:"] {
            assert!(store(wrong).is_err(), "{wrong}");
        }
    }
}
