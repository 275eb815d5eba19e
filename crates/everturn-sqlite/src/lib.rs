//! Conversations in one SQLite file.
//!
//! [`SqliteStore`] is the embedded, durable session store: no server, one file, any number of processes.
//!
//! ```
//! use everturn_agent::store::{Scope, SessionStore};
//! use everturn_sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("everturn-sqlite-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("kitchen.db");
//! let store = SqliteStore::open(&path).await?;
//!
//! assert_eq!(store.latest(&Scope::default(), &"dinner".into(), Default::default()).await?, None);
//! # drop(store);
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(()) }
//! ```
//!
//! [`SqliteStreamLog`] keeps streams, in a file of its own: a client that lost its connection, or that watches
//! a background run from another process, reads them there.
//!
//! # Guarantees
//!
//! All of [`everturn_agent::store`]'s, with these in particular:
//!
//! | question | answer |
//! |---|---|
//! | what is atomic | a save and a deletion: read, mutation, precondition and write are one transaction, across processes; a record of a journal; a commit and the end of the journals it makes obsolete |
//! | what a reader may see | the store as it was at one moment between two transactions; a listing is one such moment per page |
//! | consistency | saves are serializable; once a save has returned, every reader in every process sees it |
//! | what survives a crash of the process | every save that has returned |
//! | what survives a loss of power | with [`Durability::Full`], every save that has returned; with [`Durability::Normal`], all but the last moments, and never half a save |
//! | what a save waits for | for another process that holds the write lock, up to [`busy_timeout`](SqliteStoreOptions::busy_timeout) from the moment it was asked for, then `UNAVAILABLE` with the name of that process; reads do not wait for writers |
//! | what damage does | a body, row or reference that is not what was written, and a session's tip that is missing, are `DATA_LOSS` that names session and snapshot; [`SqliteStore::verify`] reads everything |
//! | what a removed file does | a save after the file or its log was removed or replaced fails with `DATA_LOSS`; a log that is cut short while the database is closed is not noticed |
//! | what a clean end leaves | one complete file, after [`SqliteStore::close`] or when the last handle is dropped |
//! | when watchers hear | at once for changes made in this process, within 100 ms for those of others |
//! | what a deletion leaves | nothing that a query can reach. Of a tenant, no byte in any file: the database is rebuilt. Of a session too, if the database is no larger than 32 MiB and nobody reads an old view of it for as long as the [`busy_timeout`](SqliteStoreOptions::busy_timeout). Otherwise deleted rows are overwritten where they were, and [`SqliteStore::vacuum`] removes the copies that SQLite may have left elsewhere in the file |
//!
//! Any non-empty string of up to [`MAX_ID`] bytes is a good id, scope or session name. Times must lie between the years
//! 1678 and 2262.
//!
//! # How it is kept
//!
//! Messages are rows and snapshots are positions: a message is stored once however many snapshots contain it, and a
//! branch costs a few hundred bytes. Custom state and artifacts that did not change are not written again; a large
//! document that changed a little is kept as a patch. Long strings, such as inline images, are stored once by their hash,
//! and large values are compressed. Saves of concurrent sessions share a transaction, so they share the cost of making it
//! durable. A session that this process continued last is in memory: its next turn only asks whether another process has
//! written since.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

mod blob;
mod body;
mod cache;
mod checksum;
mod connection;
mod delete;
mod document;
mod fault;
mod file_identity;
mod journal;
mod latest_cache;
mod lineage;
mod list;
mod maintenance;
mod missing;
mod options;
mod pending;
#[cfg(test)]
mod plan;
mod position;
mod prepare;
mod prepared;
mod queue;
mod read;
mod row;
mod schema;
mod store;
mod stream_log;
mod turn_lock;
mod usage_ledger;
mod verify;
mod watch;
mod work;
mod write;
mod writer;

pub use everturn_sql::{Encoding, Verification};

pub use self::options::{Durability, SqliteStoreOptions};
pub use self::row::MAX_ID;
pub use self::store::SqliteStore;
pub use self::stream_log::{SqliteStreamLog, SqliteStreamLogOptions};
