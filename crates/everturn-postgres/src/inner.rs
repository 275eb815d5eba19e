//! What all handles of a store share.

use std::sync::Arc;

use crate::body::Encoder;
use crate::cache::Cache;
use crate::connection::Database;
use crate::watch::Watchers;

/// What all handles of a store share.
pub(crate) struct Inner {
    pub(crate) db: Arc<Database>,
    pub(crate) cache: Cache,
    pub(crate) encoder: Encoder,
    pub(crate) watchers: Watchers,
}
