//! Conversations as readable files.
//!
//! [`FileStore`] keeps one JSON file per snapshot, in the layout that the file stores of other Genkit runtimes use: a
//! folder written by one is read and continued by the other.
//!
//! ```text
//! <root>/<scope>/<snapshot id>.json            one snapshot
//! <root>/<scope>/.pointers/<session id>.json   which snapshot is the session's latest
//! <root>/<scope>/.lock                         excludes writers of all processes
//! <root>/.journals/<turn>/<number>.json        what happened in a turn that is not over
//! ```
//!
//! # Guarantees
//!
//! All of [`everturn_agent::store`]'s, with these in particular:
//!
//! | question | answer |
//! |---|---|
//! | what is atomic | a save: read, mutation, precondition and write happen under one lock, across processes |
//! | what a reader may see | the row before or after a save, never a part of one |
//! | what survives a crash | every save and every record of a journal that has returned: the file, its name and the session's pointer are on the device |
//! | when watchers hear | at once for changes made in this process, else at the next poll |
//!
//! Writers that do not know the lock, such as the other runtimes' stores, are not excluded by it.

mod disk;
mod files;
mod journal;
mod layout;
mod options;
mod store;
mod watch;

pub use disk::{Disk, RealDisk};
pub use options::FileStoreOptions;
pub use store::FileStore;
