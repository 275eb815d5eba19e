//! Parsing the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

/// The help text.
pub(crate) const HELP: &str = "\
usage: testbed [--addr ADDRESS] [--store STORE] [--busy-timeout MILLISECONDS] [--stream-bytes BYTES]
               [--forget-streams]

  --addr ADDRESS   where to listen; 127.0.0.1:0, the default, takes any free port
  --store STORE    where conversations are kept: memory (the default), file:PATH,
                   sqlite:PATH, or postgres:URL, where URL is as in postgres://user@host/database
  --busy-timeout MILLISECONDS
                   how long a save waits for another process; 10000 by default
  --stream-bytes BYTES
                   how much of one caller's streams is kept; four times as much of all
  --forget-streams keep no streams: a client that leaves ends its turn
";

/// The requested action.
pub(crate) enum Mode {
    Help,
    Serve(Arguments),
}

/// The options of serving.
pub(crate) struct Arguments {
    pub(crate) address: SocketAddr,
    pub(crate) store: StoreChoice,
    pub(crate) busy_timeout: Duration,
    pub(crate) stream_bytes: Option<usize>,
    pub(crate) keeps_streams: bool,
}

/// The kind and place of the store.
#[derive(Debug, PartialEq)]
pub(crate) enum StoreChoice {
    Memory,
    File(PathBuf),
    Sqlite(PathBuf),
    Postgres(String),
}

pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Mode, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut serve = Arguments {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        store: StoreChoice::Memory,
        busy_timeout: Duration::from_secs(10),
        stream_bytes: None,
        keeps_streams: true,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("addr") => serve.address = parser.value()?.parse()?,
            Long("store") => serve.store = parser.value()?.parse_with(store)?,
            Long("busy-timeout") => serve.busy_timeout = Duration::from_millis(parser.value()?.parse()?),
            Long("stream-bytes") => serve.stream_bytes = Some(parser.value()?.parse()?),
            Long("forget-streams") => serve.keeps_streams = false,
            Long("help") | Short('h') => return Ok(Mode::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Mode::Serve(serve))
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
