//! Stored sessions: the values that a store keeps, the store trait, and the in-memory store.
//!
//! This is the lowest layer of the crate: it uses no other module.
//!
//! It is a folder and not a crate, because the transitions of a snapshot, its lease and its rewinds are
//! private to this crate. In a separate crate they would be public API.

pub(crate) mod agent_input;
pub(crate) mod artifact;
pub(crate) mod client_tool;
pub(crate) mod clock;
pub(crate) mod content_id;
pub(crate) mod id;
pub(crate) mod lifecycle;
pub(crate) mod session_state;
pub(crate) mod snapshot;
pub mod store;
pub(crate) mod stored_session;
pub(crate) mod unfinished_call;

pub use self::agent_input::AgentInput;
pub use self::artifact::Artifact;
pub use self::client_tool::ClientTool;
pub use self::clock::Clock;
pub use self::content_id::SnapshotIds;
pub use self::id::{SessionId, SnapshotId};
pub use self::lifecycle::{AgentFinishReason, OtherStatus, SnapshotEvent, SnapshotStatus};
pub use self::session_state::{CustomState, STATE_UNREADABLE, SessionState};
pub use self::snapshot::Snapshot;
pub use self::stored_session::Timeline;
pub use self::unfinished_call::UnfinishedCall;
