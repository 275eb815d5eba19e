//! Opening stores and stream logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_core::Result;
use everturn_core::stream_log::{IntoStreamLog, MemoryStreamLog, StreamLog};
use everturn_file::FileStore;
use everturn_postgres::{PostgresStore, PostgresStreamLog};
use everturn_server::Server;
use everturn_sqlite::{SqliteStore, SqliteStreamLog};

use crate::arguments::StoreChoice;

/// The session store, of one of the kinds.
pub(crate) enum Sessions {
    Memory(MemoryStore),
    File(FileStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Sessions {
    /// Returns a handle to the store.
    pub(crate) fn store(&self) -> Arc<dyn SessionStore> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::File(store) => Arc::new(store.clone()),
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    /// Closes the store, if it can be closed.
    pub(crate) async fn close(&self) -> Result<()> {
        match self {
            Self::Sqlite(store) => store.close().await,
            Self::Memory(_) | Self::File(_) | Self::Postgres(_) => Ok(()),
        }
    }
}

/// Opens the session store.
pub(crate) async fn sessions(choice: &StoreChoice, busy_timeout: Duration) -> Result<Sessions> {
    Ok(match choice {
        StoreChoice::Memory => Sessions::Memory(MemoryStore::new()),
        StoreChoice::File(path) => {
            Sessions::File(FileStore::options(path).busy_timeout(busy_timeout).open().await?)
        }
        StoreChoice::Sqlite(path) => Sessions::Sqlite(
            SqliteStore::options(path)
                .busy_timeout(busy_timeout)
                .open()
                .await?,
        ),
        StoreChoice::Postgres(url) => {
            Sessions::Postgres(PostgresStore::options(url).patience(busy_timeout).open().await?)
        }
    })
}

/// Opens the stream log next to the sessions; stores in memory and in files have none.
pub(crate) async fn streams(
    choice: &StoreChoice,
    bytes: Option<usize>,
) -> Result<Option<Arc<dyn StreamLog>>> {
    Ok(match choice {
        StoreChoice::Sqlite(path) => {
            let mut options = SqliteStreamLog::options(beside(path));
            if let Some(bytes) = bytes {
                options = options.max_owner_bytes(bytes).max_bytes(4 * bytes);
            }
            Some(options.open().await?.into_stream_log())
        }
        StoreChoice::Postgres(url) => {
            let mut options = PostgresStreamLog::options(url);
            if let Some(bytes) = bytes {
                options = options.max_stream_bytes(bytes);
            }
            Some(options.open().await?.into_stream_log())
        }
        StoreChoice::Memory | StoreChoice::File(_) => None,
    })
}

/// Gives the server a stream log: the given one, or one in memory.
pub(crate) fn keep_streams(server: Server, log: Option<Arc<dyn StreamLog>>, bytes: Option<usize>) -> Server {
    let mut memory = MemoryStreamLog::options();
    if let Some(bytes) = bytes {
        memory = memory.max_owner_bytes(bytes).max_bytes(4 * bytes);
    }
    match log {
        Some(log) => server.stream_log(log),
        None => server.stream_log(memory.build()),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-streams");
    name.into()
}
