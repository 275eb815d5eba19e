//! Conversations as readable files.
//!
//! [`FileStore`] keeps one JSON file per snapshot, in the layout that the file stores of other Genkit runtimes use: a
//! folder written by one is read and continued by the other.
//!
//! ```text
//! <root>/<scope>/<snapshot id>.json            one snapshot
//! <root>/<scope>/.pointers/<session id>.json   which snapshot is the session's latest
//! <root>/<scope>/.lock                         excludes writers of all processes
//! <root>/.pending/<hash>.json                  names a background run that may not be over
//! <root>/.journals/<turn>/<number>.json        what happened in a turn that is not over
//! ```
//!
//! # Guarantees
//!
//! All of [`everturn_agent::store`]'s, with these in particular:
//!
//! | question | answer |
//! |---|---|
//! | what is atomic | a save: read, mutation, precondition and write happen under one lock, across processes; a deletion is row by row |
//! | what a reader may see | of each row, what it was before or after a save, never a part of one; a listing is read row by row, so it may hold a row of every moment it took |
//! | consistency | saves of a scope are serializable; once a save has returned, every reader in every process sees it |
//! | what survives a crash of the process | every save and every record of a journal that has returned |
//! | what survives a loss of power | the same: the file, its name and the session's pointer are on the device before a save returns; there is no weaker level of durability |
//! | what a crash may leave | files and folders that end in `.tmp`, which nobody reads |
//! | when watchers hear | at once for changes made in this process, else at the next poll |
//!
//! Writers that do not know the lock, such as the other runtimes' stores, are not excluded by it: let one runtime write a
//! session at a time.
//!
//! An id, a session's name and each part of a scope is the name of a file: up to 200 bytes without separators, control
//! characters, `..` or a dot at the beginning. What the file system takes for one name, such as names that differ in case on
//! some, is one name.

mod cache;
mod disk;
mod files;
mod header;
mod journal;
mod layout;
mod options;
mod pending;
mod queue;
mod row;
mod save;
mod staged;
mod store;
mod version;
mod watch;

pub use disk::{Disk, RealDisk};
pub use options::FileStoreOptions;
pub use store::FileStore;
pub use version::Version;
