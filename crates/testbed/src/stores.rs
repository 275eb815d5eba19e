//! Where conversations are kept, opened.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_core::Result;
use everturn_file::FileStore;
use everturn_sqlite::SqliteStore;

use crate::arguments::StoreChoice;

pub(crate) async fn open(choice: StoreChoice) -> Result<Arc<dyn SessionStore>> {
    Ok(match choice {
        StoreChoice::Memory => Arc::new(MemoryStore::new()),
        StoreChoice::File(path) => Arc::new(FileStore::open(path)?),
        StoreChoice::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
    })
}
