//! What all handles of a store share.

use std::sync::Arc;

use crate::body::Encoder;
use crate::cache::Cache;
use crate::connection::Database;
use crate::session_lock::Queues;
use crate::watch::Watchers;

/// What all handles of a store share.
pub(crate) struct Inner {
    pub(crate) db: Arc<Database>,
    pub(crate) cache: Cache,
    pub(crate) encoder: Encoder,
    pub(crate) watchers: Watchers,
    /// The writers that wait to lock the row of their session.
    pub(crate) queues: Queues,
}
