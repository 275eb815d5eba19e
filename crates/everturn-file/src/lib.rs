//! A session store of readable files.
//!
//! [`FileStore`] stores one JSON file per snapshot, in the layout of the other Genkit runtimes' file stores.
//! Each runtime can read and continue a folder that another has written.
//!
//! ```text
//! <root>/<scope>/<snapshot id>.json            one snapshot
//! <root>/<scope>/.pointers/<session id>.json   names the session's tip
//! <root>/<scope>/.lock                         excludes the writers of all processes
//! <root>/.pending/<hash>.json                  names a background run that may be pending
//! <root>/.journals/<turn>/<number>.json        a record of the journal of an unfinished turn
//! ```
//!
//! # Guarantees
//!
//! The store gives all guarantees of [`everturn_agent::store`]. In particular:
//!
//! - **Atomicity**: a save reads, mutates, checks its precondition and writes under one lock, across
//!   processes. A deletion is atomic for each snapshot.
//! - **Isolation**: a read sees each snapshot before or after a save. A listing reads one snapshot after the
//!   other, so it may mix states of the store.
//! - **Consistency**: saves of a scope are serializable. Once a save has returned, every reader in every
//!   process sees it.
//! - **Crash of the process**: every acknowledged save and journal record survives.
//! - **Power loss**: the same. The file, its name and the session's pointer are on the device before a save
//!   returns; there is no weaker level of durability.
//! - **Remains of a crash**: files and folders that end in `.tmp`, which are never read as rows.
//! - **Locking**: a save waits for the lock of another process. After
//!   [`busy_timeout`](FileStoreOptions::busy_timeout) it fails with `UNAVAILABLE` and the name of that
//!   process. Reads never wait.
//! - **Damage**: a file that differs from the written one, and a missing latest file of a session, are
//!   `DATA_LOSS` errors that name the session and the snapshot. [`FileStore::verify`] reads every file.
//! - **Files**: regular files of up to [`MAX_FILE`] bytes are read; pipes, devices and larger files are
//!   skipped.
//! - **Watchers** receive changes made in this process at once, others at the next poll.
//!
//! Each file that this store writes ends in a checksum, as whitespace after the JSON. The pointer of a
//! session has one more field, `stagedAs`, which distinguishes a save that a crash interrupted from a lost
//! file.
//!
//! The stores of the other runtimes do not take the lock, so only one runtime at a time may write a session.
//!
//! Snapshot ids, session ids and each part of a scope become file names: up to 200 bytes, without separators,
//! control characters, `..` or a leading dot. Names that the file system does not distinguish, such as names
//! that differ only in case on some systems, are the same name.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::disallowed_methods, reason = "leases and retries take real time")]

mod cache;
mod checksum;
mod delete;
mod disk;
mod files;
mod journal;
mod layout;
mod list;
mod locked;
mod options;
mod pending;
mod read;
mod row;
mod store;
mod threads;
mod usage_ledger;
mod verify;
mod version;
mod watch;
mod write;

pub use disk::{Disk, MAX_FILE, RealDisk};
pub use options::FileStoreOptions;
pub use store::FileStore;
pub use verify::Verification;
pub use version::Version;
