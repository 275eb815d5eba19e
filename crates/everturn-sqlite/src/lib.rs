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
//! [`SqliteStreamLog`] stores streams in a separate file, for clients that reconnect or watch a background
//! run from another process.
//!
//! # Guarantees
//!
//! The store gives all guarantees of [`everturn_agent::store`]. In particular:
//!
//! - **Atomicity**: a save or a deletion reads, mutates, checks its precondition and writes in one
//!   transaction, across processes. A record of a journal is atomic, and so is a commit together with the end
//!   of the journals it makes obsolete.
//! - **Isolation**: a read sees the store between two transactions. Each page of a listing is one read.
//! - **Consistency**: saves are serializable. Once a save has returned, every reader in every process sees
//!   it.
//! - **Crash of the process**: every save that has returned survives.
//! - **Power loss**: with [`Durability::Full`], every save that has returned survives. With
//!   [`Durability::Normal`], the most recent saves may be lost, each as a whole.
//! - **Locking**: a save waits for the write lock of another process. After
//!   [`busy_timeout`](SqliteStoreOptions::busy_timeout) it fails with `UNAVAILABLE` and the name of that
//!   process. Reads do not wait for writers.
//! - **Damage**: a body, row or reference that differs from the written one, and a missing latest snapshot of
//!   a session, are `DATA_LOSS` errors that name the session and the snapshot. [`SqliteStore::verify`] reads
//!   everything.
//! - **Removed files**: a save after the file or its log was removed or replaced fails with `DATA_LOSS`. A
//!   log that is truncated while the database is closed is not detected.
//! - **Clean shutdown**: [`SqliteStore::close`], or dropping the last handle, leaves one complete file.
//! - **Watchers** receive changes made in this process at once, those of other processes within 100 ms.
//! - **Deletion** leaves nothing that a query can reach. Deleting a tenant rebuilds the database, so no byte
//!   remains in any file. Deleting a session does so too, if the database is no larger than 32 MiB and no
//!   reader keeps an old view open for longer than the [`busy_timeout`](SqliteStoreOptions::busy_timeout).
//!   Otherwise deleted rows are overwritten in place, and [`SqliteStore::vacuum`] removes copies that SQLite
//!   may have left elsewhere in the file.
//!
//! Any non-empty string of up to [`MAX_ID`] bytes is a valid id, scope or session name. Times must lie
//! between the years 1678 and 2262.
//!
//! # Storage format
//!
//! Messages are rows and snapshots are positions: a message is stored once however many snapshots contain it,
//! and a branch costs a few hundred bytes. Unchanged custom state and artifacts are not written again; a
//! large document with a small change is stored as a patch. Long strings, such as inline images, are stored
//! once by their hash, and large values are compressed. Saves of concurrent sessions share a transaction, and
//! so the cost of making it durable. Recently written sessions are cached: the next turn only checks whether
//! another process has written since.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::disallowed_methods, reason = "leases and retries take real time")]

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
#[cfg(test)]
mod plan;
mod position;
mod prepare;
mod queue;
mod read;
mod row;
mod schema;
mod statement;
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
