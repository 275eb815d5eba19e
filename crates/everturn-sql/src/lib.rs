//! The code that Everturn's SQL stores share.
//!
//! `everturn-sqlite` and `everturn-postgres` contain SQL and connections. This crate contains everything that
//! does not depend on the database: the encoding of rows and documents, compression, caches, pages, and the
//! distribution of statuses to watchers. Applications depend on the store crates; this one makes no promises
//! about its API.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod documents;
mod encoding;
mod entries;
mod fault;
mod lru;
mod page;
mod patch;
mod row;
mod verification;
mod watched;

pub use self::body::{hash, parse, splice, write};
pub use self::documents::{Document, Documents};
pub use self::encoding::{Cut, Encoding, decompress};
pub use self::entries::{EntrySource, entries};
pub use self::fault::{Fault, Outcome, StoreFault};
pub use self::lru::Lru;
pub use self::page::{MAX_MESSAGES, check_history, clamped_nanos, page, pending_page, sql_order, summary};
pub use self::patch::{MAX_PATCHES, is_same_text, patch_to, patched};
pub use self::row::{Columns, JsonColumn, StoredState, check_id, from_word, to_nanos, to_time, to_word};
pub use self::verification::Verification;
pub use self::watched::{Key, Watched};
