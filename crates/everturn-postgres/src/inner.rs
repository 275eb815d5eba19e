//! What all handles of a store share.

use std::sync::Arc;

use everturn_sql::Encoding;

use crate::cache::Cache;
use crate::connection::Database;
use crate::watch::Watchers;

/// What all handles of a store share.
pub(crate) struct Inner {
    pub(crate) db: Arc<Database>,
    pub(crate) cache: Cache,
    pub(crate) encoding: Encoding,
    pub(crate) watchers: Watchers,
}
