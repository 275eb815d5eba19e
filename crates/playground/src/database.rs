//! The files shared by all agents.

use std::path::Path;

use everturn::Result;
use everturn::prelude::SqliteStore;
use everturn::sqlite::SqliteStreamLog;

/// The session store, and the stream log in a second file.
pub(crate) struct Database {
    pub(crate) sessions: SqliteStore,
    pub(crate) streams: SqliteStreamLog,
}

impl Database {
    /// Opens the files, or creates them.
    pub(crate) async fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            sessions: SqliteStore::open(path).await?,
            streams: SqliteStreamLog::open(path.with_extension("streams.db")).await?,
        })
    }

    /// Closes the files, so that no write-ahead log remains.
    pub(crate) async fn close(self) -> Result<()> {
        let sessions = self.sessions.close().await;
        self.streams.close().await.and(sessions)
    }
}
