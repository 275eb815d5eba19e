//! A session store of readable files.
//!
//! [`FileStore`] keeps one JSON file per snapshot, in the layout of the other Genkit runtimes' file stores: each reads and
//! continues a folder that another has written.
//!
//! ```text
//! <root>/<scope>/<snapshot id>.json            one snapshot
//! <root>/<scope>/.pointers/<session id>.json   names the session's tip
//! <root>/<scope>/.lock                         excludes the writers of all processes
//! <root>/.pending/<hash>.json                  names a background run that may be pending
//! <root>/.journals/<turn>/<number>.json        a record of the journal of a turn that is not over
//! ```
//!
//! # Guarantees
//!
//! All of [`everturn_agent::store`]'s, with these in particular:
//!
//! | question | answer |
//! |---|---|
//! | what is atomic | a save: read, mutation, precondition and write happen under one lock, across processes; a deletion is atomic for each snapshot |
//! | what a reader may see | each snapshot as it was before or after a save, never in between; a listing reads one snapshot after the other, so it may mix moments |
//! | consistency | saves of a scope are serializable; once a save has returned, every reader in every process sees it |
//! | what survives a crash of the process | every save and every journal record that was acknowledged |
//! | what survives a loss of power | the same: the file, its name and the session's pointer are on the device before a save returns; there is no weaker level of durability |
//! | what a crash may leave | files and folders that end in `.tmp`, which are never read as rows |
//! | what a save waits for | for another process that holds the lock, up to [`busy_timeout`](FileStoreOptions::busy_timeout) from the moment it was asked for, then `UNAVAILABLE` with the name of that process; reads wait for nobody |
//! | what damage does | a file that is not what was written, and a session's latest file that is missing, are `DATA_LOSS` that names session and snapshot; [`FileStore::verify`] reads every file |
//! | what is read | regular files of up to [`MAX_FILE`] bytes; pipes, devices and larger files are passed over |
//! | when watchers hear | at once for changes made in this process, else at the next poll |
//!
//! Each file that this store writes ends in a checksum, as whitespace after the JSON. The pointer of a session holds one more
//! field, `stagedAs`, by which a save that a crash cut off is told from a file that was lost.
//!
//! The other runtimes' stores do not take the lock and are not excluded by it: let one runtime at a time write a session.
//!
//! Snapshot ids, session ids and each part of a scope become file names: up to 200 bytes, without separators, control
//! characters, `..` or a leading dot. Names that the file system does not distinguish, such as names that differ only in
//! case on some systems, are the same name.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

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
