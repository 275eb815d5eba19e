//! Conversations in PostgreSQL.
//!
//! [`PostgresStore`] is the session store for agents that run in many processes on many machines. Sessions,
//! journals and leases are in one database; no other service is needed.
//!
//! ```no_run
//! use everturn_agent::store::{Scope, SessionStore};
//! use everturn_postgres::PostgresStore;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> everturn_core::Result<()> {
//! let store = PostgresStore::open("postgres://chef@db.example/kitchen").await?;
//!
//! assert_eq!(store.latest(&Scope::default(), &"dinner".into(), Default::default()).await?, None);
//! # Ok(()) }
//! ```
//!
//! [`PostgresStreamLog`] stores streams in a separate schema, for clients that reconnect or watch a
//! background run from another machine.
//!
//! # Guarantees
//!
//! The store gives all guarantees of [`everturn_agent::store`]. In particular:
//!
//! - **Atomicity**: a save is one statement, which compares and sets the session's version. A deletion is one
//!   transaction. A record of a journal is atomic, and so is a commit together with the end of the journals
//!   it makes obsolete.
//! - **Isolation**: a read sees the store between two commits. Each page of a listing is one read.
//! - **Consistency**: saves of a session are serializable. Once a save has returned, every reader in every
//!   process sees it.
//! - **Crash of the process**: every save that has returned survives.
//! - **Crash of the database, or power loss**: every save that has returned survives if the server's
//!   `synchronous_commit` and `fsync` are on, which is the default.
//! - **Connection loss during a save**: the store queries whether the save was committed. If so, it is
//!   acknowledged; otherwise it is retried.
//! - **Unresponsive server**: calls end after [`patience`](PostgresStoreOptions::patience), 15 s by default.
//!   A save that was sent fails with [`SAVE_UNKNOWN`](everturn_agent::store::SAVE_UNKNOWN); a later read of
//!   its id shows whether it was committed.
//! - **Watchers** receive changes made in this process at once. Changes of other processes arrive within 100
//!   ms if notifications work, and otherwise within the poll interval, 250 ms by default.
//! - **Deletion** leaves nothing that a query can reach and, after PostgreSQL's own vacuum, nothing in the
//!   tables. Write-ahead logs and backups contain the data for as long as they are retained.
//!
//! Any non-empty string of up to [`MAX_ID`] bytes is a valid id, scope or session name. Times must lie
//! between the years 1678 and 2262.
//!
//! # Poolers
//!
//! Every statement is unnamed and connections have no state, so `PgBouncer` in transaction mode works without
//! configuration. It does not forward notifications. [`PostgresStoreOptions::listen_on`] sets a direct
//! address for them; without it, changes made by other processes are found by polling.
//!
//! # Watching
//!
//! A watcher reads the current statuses of rows by their ids. It does not track a position in a sequence of
//! changes, so a transaction that was open at one poll and committed after later ones is seen by the next
//! poll (the test `watching_a_status::a_change_that_commits_after_later_ones_is_reported`). The positions of
//! a stream are a sequence. Its one writer sends chunks only after the earlier ones are committed, so a
//! reader never sees a position before those that precede it.
//!
//! # Storage format
//!
//! Messages are rows and snapshots are positions: a message is stored once however many snapshots contain it,
//! and a branch costs a few hundred bytes. Unchanged custom state and artifacts are not written again; a
//! large document with a small change is stored as a patch. Long strings, such as inline images, are stored
//! once in a session by their hash, large values are compressed, and every row has a checksum of its values
//! and its identity.
//!
//! Recently used conversations are cached. A cached value is used only if the row that is read has the same
//! checksums, or the same version, which is random for each commit. The cache therefore stays correct if the
//! database is restored to an earlier point while the program runs, or if a lagging standby takes over.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::disallowed_methods, reason = "leases and retries take real time")]

mod blob;
mod body;
mod cache;
mod change;
mod commit_statement;
mod connection;
mod delete;
mod document;
mod fault;
mod inner;
mod journal;
mod known;
mod lineage;
mod list;
mod listen;
mod maintenance;
mod metrics;
mod options;
mod position;
mod read;
mod row;
mod schema;
mod session_lock;
mod slots;
mod statement;
mod store;
mod stream_log;
mod time;
mod turn_lock;
mod unknown_save;
mod usage_ledger;
mod verify;
mod watch;
mod write;

pub use everturn_sql::{Encoding, Verification};

pub use self::maintenance::MaintenanceSchedule;
pub use self::metrics::PostgresMetrics;
pub use self::options::PostgresStoreOptions;
pub use self::row::MAX_ID;
pub use self::store::PostgresStore;
pub use self::stream_log::{PostgresStreamLog, PostgresStreamLogOptions};
