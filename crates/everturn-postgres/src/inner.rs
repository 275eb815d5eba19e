//! The shared state of all handles of a store.

use std::sync::Arc;

use everturn_sql::Encoding;

use crate::cache::Cache;
use crate::connection::Database;
use crate::watch::Watchers;

/// The shared state of all handles of a store.
pub(crate) struct Inner {
    pub(crate) db: Arc<Database>,
    pub(crate) cache: Cache,
    pub(crate) encoding: Encoding,
    pub(crate) watchers: Watchers,
}
