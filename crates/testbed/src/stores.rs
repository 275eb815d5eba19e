//! Opening stores and stream logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_core::Result;
use everturn_core::stream_log::MemoryStreamLog;
use everturn_file::FileStore;
use everturn_server::Server;
use everturn_sqlite::{SqliteStore, SqliteStreamLog};

use crate::arguments::StoreChoice;

/// Opens the session store.
pub(crate) async fn sessions(choice: &StoreChoice, busy_timeout: Duration) -> Result<Arc<dyn SessionStore>> {
    Ok(match choice {
        StoreChoice::Memory => Arc::new(MemoryStore::new()),
        StoreChoice::File(path) => {
            Arc::new(FileStore::options(path).busy_timeout(busy_timeout).open().await?)
        }
        StoreChoice::Sqlite(path) => Arc::new(
            SqliteStore::options(path)
                .busy_timeout(busy_timeout)
                .open()
                .await?,
        ),
    })
}

/// Opens the stream log, in a file beside the database; other stores have none.
pub(crate) async fn streams(choice: &StoreChoice) -> Result<Option<SqliteStreamLog>> {
    Ok(match choice {
        StoreChoice::Sqlite(path) => Some(SqliteStreamLog::open(beside(path)).await?),
        StoreChoice::Memory | StoreChoice::File(_) => None,
    })
}

/// Gives the server a stream log: the given one, or else one in memory.
pub(crate) fn keep_streams(server: Server, log: Option<SqliteStreamLog>) -> Server {
    match log {
        Some(log) => server.stream_log(log),
        None => server.stream_log(MemoryStreamLog::new()),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-streams");
    name.into()
}
