//! JSON Patch (RFC 6902): the form in which changes of a session's custom state reach clients.
//!
//! [`JsonPatch::diff`] is strict: it produces valid patches that any RFC 6902 implementation applies. It uses
//! `add`, `remove` and `replace` only, and visits object members in sorted order, so equal changes give equal
//! patches.
//!
//! [`JsonPatch::apply`] is lenient, so that a client's view survives a careless server: it creates missing
//! containers, skips operations on missing targets, and reads missing values as null. It understands every
//! operation of the RFC, never panics, and bounds what a hostile patch can build ([`PatchError::TooDeep`],
//! [`PatchError::TooLarge`]).
//!
//! ```
//! use everturn_agent::patch::JsonPatch;
//! use serde_json::json;
//!
//! let patch = JsonPatch::diff(&json!({"mood": "calm", "pantry": ["leek"]}), &json!({"mood": "proud", "pantry": ["leek", "salt"]}));
//! assert_eq!(
//!     serde_json::to_value(&patch)?,
//!     json!([
//!         {"op": "replace", "path": "/mood", "value": "proud"},
//!         {"op": "add", "path": "/pantry/-", "value": "salt"},
//!     ])
//! );
//!
//! let view = patch.apply(&json!({"mood": "calm", "pantry": ["leek"]}))?;
//! assert_eq!(view, json!({"mood": "proud", "pantry": ["leek", "salt"]}));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apply;
mod diff;
mod error;
mod operation;
mod pointer;

pub(crate) use apply::same_value;
pub use error::PatchError;
pub use operation::{JsonPatch, PatchOperation};
