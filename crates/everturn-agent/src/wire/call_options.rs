//! Options of an invocation that only programs can set: extensions of the context.

use std::sync::Arc;

use serde_json::Value;

/// Makes an invocation store nothing, also on an agent with a store; an extension of the context.
///
/// The agent runs on the state that the caller gives, as agents without a store do, or on the session or
/// snapshot that the init names. Either way no snapshot is written, the session is not locked, and the work
/// cannot be detached.
///
/// The caller answers for the state: an agent with a store refuses one from clients, because they could forge
/// the agent's messages.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::store::MemoryStore;
/// use everturn_agent::{AgentSession, Unstored, custom_agent};
/// use everturn_core::{Context, Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// let chef = custom_agent(&registry, "chef", |session: AgentSession| async move {
///     session.run(|_turn| async { Ok(()) }).await?;
///     Ok(session.result())
/// })
/// .store(MemoryStore::new())
/// .define()?;
///
/// let context = Context::new().with_extension(Arc::new(Unstored));
/// let reply = chef.chat().context(context).run("Something with leeks?").await?;
///
/// assert_eq!(reply.snapshot_id(), None);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unstored;

/// Adds details to the stream of an invocation; an extension of the context.
///
/// Each turn begins with a chunk whose [`turn_start`](crate::AgentStreamChunk::turn_start) names the snapshot
/// that will hold the turn, chunks of the model have a [`position`](crate::AgentStreamChunk::position), and
/// the turn's end has the messages that the turn [added](crate::TurnEnd::added). So a server of another
/// protocol can name each message before its first chunk, and find the message again by that name.
///
/// An agent around a prompt sends an empty chunk when it first asks its model or runs a tool: it has accepted
/// the input. A turn that ends before any chunk but its start was refused, and nothing ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnDetails;

/// A note that the snapshots of an invocation keep, also the pending one of a background run; an extension of
/// the context.
///
/// A server of another protocol stores data there that it must send again later, and reads it with
/// [`Snapshot::server_note`](crate::Snapshot::server_note). No model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerNote(pub Value);

/// Makes an invocation that names a session start a new conversation next to what the session holds; an
/// extension of the context.
///
/// So a client can edit or repeat the very first message of a session. On an agent with a store the turn
/// becomes a branch from the session's beginning, and its snapshot the session's tip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConversation;

/// Identifies a call, so that a repetition of it is recognised; an extension of the context.
///
/// The snapshot of the call's turn records the key, if the agent has a store. A further call of the session
/// with the same key and the same input returns the stored turn and runs nothing, so a caller that received
/// no answer can repeat its call. A turn that failed or was not stored is run.
///
/// The last four calls of a branch are recognised. The key is for the first turn of one invocation: agents
/// that it calls have none, and a call with several inputs is recognised by its first.
///
/// A server uses the header `Idempotency-Key` of a request, or else the request's id.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::store::MemoryStore;
/// use everturn_agent::{AgentSession, IdempotencyKey, custom_agent};
/// use everturn_core::{Context, Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// # let registry = Registry::new();
/// let chef = custom_agent(&registry, "chef", |session: AgentSession| async move {
///     session.run(|_turn| async { Ok(()) }).await?;
///     Ok(session.result())
/// })
/// .store(MemoryStore::new())
/// .define()?;
///
/// let order = async || {
///     let context = Context::new().with_extension(Arc::new(IdempotencyKey::new("order-17")));
///     chef.chat().resume("dinner").context(context).run("Leeks, please.").await
/// };
/// let (first, repeated) = (order().await?, order().await?);
///
/// assert_eq!(first.snapshot_id(), repeated.snapshot_id());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Creates a key, which should be random or otherwise used for one call only.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
