//! Conversations in PostgreSQL: many machines, one truth.
//!
//! [`PostgresStore`] is the session store for agents that run in many processes on many machines: sessions, journals and
//! leases are in one database, and nothing else is needed.
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
//! [`PostgresStreamLog`] keeps streams, in a schema of its own: a client that lost its connection, or that watches a
//! background run from another machine, reads them there.
//!
//! # Guarantees
//!
//! All of [`everturn_agent::store`]'s, with these in particular:
//!
//! | question | answer |
//! |---|---|
//! | what is atomic | a save: it is one statement, which compares and sets the session's version; a deletion: one transaction; a record of a journal; a commit and the end of the journals it makes obsolete |
//! | what a reader may see | the store as it was at one moment between two commits; a listing is one such moment per page |
//! | consistency | saves of a session are serializable; once a save has returned, every reader in every process sees it |
//! | what survives a crash of the process | every save that has returned |
//! | what survives a crash of the database, or a loss of power | every save that has returned, as far as the server's `synchronous_commit` and `fsync` are on, which is the default |
//! | a connection that breaks while a save is under way | the save is looked for, not guessed: it is acknowledged if it is there, and tried again if it is not |
//! | a server that does not answer | calls end after [`patience`](PostgresStoreOptions::patience), 15 s by default. A save that was sent fails with [`SAVE_UNKNOWN`](everturn_agent::store::SAVE_UNKNOWN): a later read of its id decides |
//! | when watchers hear | at once for changes made in this process; within 100 ms for those of others where notifications arrive, else within the poll interval, 250 ms by default |
//! | what a deletion leaves | nothing that a query can reach; after PostgreSQL's own vacuum, nothing in the tables. Write-ahead logs and backups keep it as long as they are kept |
//!
//! Any non-empty string of up to [`MAX_ID`] bytes is a good id, scope or session name. Times must lie between the years
//! 1678 and 2262.
//!
//! # Poolers
//!
//! Every statement is unnamed, and nothing is set on a connection: `PgBouncer` in transaction mode works without settings.
//! Notifications do not pass it. [`PostgresStoreOptions::listen_on`] names a way around it; without one, changes made by
//! other processes are found by polling.
//!
//! # Watching
//!
//! A watcher asks for rows by their ids and is told their present statuses; it keeps no place in a sequence of changes. So
//! there is no gap to pass over: a transaction that was open at one poll and committed after later ones is seen by the next
//! poll (the test `watching_a_status::a_change_that_commits_after_later_ones_is_reported`). The positions of a
//! stream are a sequence. Its one writer sends chunks only after the earlier ones are committed, so a reader never sees a
//! position before those that precede it.
//!
//! # How it is kept
//!
//! Messages are rows and snapshots are positions: a message is stored once however many snapshots contain it, and a
//! branch costs a few hundred bytes. Custom state and artifacts that did not change are not written again; a large
//! document that changed a little is kept as a patch. Long strings, such as inline images, are stored once in a session by
//! their hash, large values are compressed, and every row has a checksum of its values and its identity.
//!
//! Recently used conversations stay in memory. What is in memory is used only if the row that is read says the same
//! checksums, or a version that is random for each commit. So a database that is restored to an earlier point under a running
//! program, or a standby that lags behind and takes over, is read anew.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

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
mod maintenance_schedule;
mod metrics;
mod options;
mod pending;
mod position;
mod read;
mod row;
mod schema;
mod session_lock;
mod slots;
mod store;
mod stream_log;
mod tail;
mod time;
mod turn_lock;
mod unknown_save;
mod usage_ledger;
mod verify;
mod watch;
mod write;

pub use everturn_sql::{Encoding, Verification};

pub use self::maintenance_schedule::MaintenanceSchedule;
pub use self::metrics::PostgresMetrics;
pub use self::options::PostgresStoreOptions;
pub use self::row::MAX_ID;
pub use self::store::PostgresStore;
pub use self::stream_log::{PostgresStreamLog, PostgresStreamLogOptions};
