//! Sessions, turns, snapshots and agents: durable conversations.
//!
//! An **agent** is a named function that runs *turns* on a *session*: messages, custom state, artifacts. An
//! agent with a store persists its conversations, and each turn ends with a *snapshot* to resume from.
//! Without a store, the clients keep the state. A turn is a stream of chunks and one output.
//!
//! ```
//! use everturn_agent::{AgentSession, Artifact, custom_agent, store::MemoryStore};
//! use everturn_ai::{FinishReason, Message};
//! use everturn_core::{Registry, Result};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
//! struct Kitchen {
//!     mood: String,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! let chef = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
//!     session
//!         .run(|turn| async move {
//!             turn.send_chunk("Leek ").await?;
//!             turn.send_chunk("soup.").await?;
//!             turn.add_message(Message::model("Leek soup."));
//!             turn.update_custom(|kitchen| kitchen.mood = "proud".into());
//!             turn.send_artifact(Artifact::text("menu", "Leek soup")).await?;
//!             Ok(FinishReason::Stop)
//!         })
//!         .await?;
//!     Ok(session.result())
//! })
//! .store(MemoryStore::new())
//! .define()?;
//!
//! let reply = chef.run_text("Something with leeks?").await?;
//! assert_eq!(reply.text(), "Leek soup.");
//!
//! let mut chat = chef.chat().resume(reply.session_id()).open().await?;
//! let mut turn = chat.send("And without butter?").await?;
//! let mut text = String::new();
//! while let Some(chunk) = turn.next().await {
//!     text.push_str(&chunk?.text());
//! }
//! let reply = turn.output().await?;
//!
//! assert_eq!(text, "Leek soup.");
//! assert_eq!(chat.custom()?.mood, "proud");
//! assert_eq!(Some(&chef.latest_snapshot(reply.session_id()).await?.snapshot_id), reply.snapshot_id());
//! # Ok(()) }
//! ```
//!
//! | to | see |
//! |---|---|
//! | define an agent | [`agent`], [`prompt_agent`], [`custom_agent`], [`AgentBuilder`] |
//! | run turns yourself | [`AgentSession`], [`Turn`] |
//! | call an agent | [`Agent`], [`Chat`], [`AgentConnection`], [`AgentReply`] |
//! | access the session from a tool | a [`Session`] argument of a `#[tool]` function, [`Session::current`] |
//! | delegate to other agents | [`Delegation`], [`AgentRef`] |
//! | store sessions | [`store`], [`Snapshot`], [`SnapshotPolicy`], [`SnapshotIds`], [`Timeline`] |
//! | list, fork, export and delete sessions | [`Agent::archive`], [`archive`] |
//! | avoid repeated effects after a crash | [`journal`], [`Turn::effect`] |
//! | run in the background | [`Chat::detach`], [`AgentTask`] |
//! | take over the runs of a dead process | [`Agent::recover`], [`recover_every`], [`WorkerLoss`] |
//! | track custom state | [`patch`] |
//! | count turns and tokens | [`AgentReply::usage`], [`Snapshot::usage`], [`observe_turns`] |
#![doc = include_str!("docs/background.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

// Agents and their callers.
mod agent;
mod chat;

// Invocations: turns, sessions, background runs and their recovery.
mod invocation;
mod recovery;
mod runs;
mod session;

// Operations on stored sessions.
pub mod archive;

// Settings, wire format and storage. They use none of the modules above.
mod policy;
mod storage;
mod weak_list;
mod wire;

pub use self::agent::{
    AbortAction, Agent, AgentAction, AgentBuilder, AgentKind, AgentRef, ArtifactStrategy, Artifacts, Custom,
    Delegation, InlinePrompt, NamedPrompt, SessionAction, SnapshotAction, SnapshotsAction, WatchAction,
    WatchRequest, agent, check_delegates, custom_agent, internal_agents, prompt_agent,
    register_agent_middleware, session_flow,
};
pub use self::archive::Archive;
pub use self::chat::{
    Abort, AgentChunk, AgentConnection, AgentReply, AgentTask, AgentTransport, Chat, ChatBuilder, ChatTurn,
    Interrupt, RunWatch, TurnChunks,
};
pub use self::invocation::journaling::{self as journal, Journaling, TURN_TAKEN_OVER};
pub use self::invocation::{
    AgentSession, Concurrency, EndedTurn, HandOff, Heartbeat, OwnedTurn, SESSION_BUSY, Turn, TurnContext,
    TurnEffect, TurnGenerate, TurnLocking, TurnObserver, TurnResult, observe_turns, validate_answers,
    validate_edited_answers,
};
pub use self::policy::{
    ClientPermissions, FailedTurns, Limits, SNAPSHOT_NOT_FOUND, STATE_TOO_LARGE, STORE_NOT_CONFIGURED,
    SnapshotMoment, SnapshotPolicy, WhileInterrupted, WorkerLoss, set_limits,
};
pub use self::recovery::{RecoveredRun, Recovery, RecoveryLoop, recover_all, recover_every};
pub use self::runs::{RunChunks, erase_streams_in};
pub use self::session::{Session, SessionHandle};
pub use self::storage::store::{self, IntoStore};
pub use self::storage::{
    AgentFinishReason, AgentInput, Artifact, ClientTool, Clock, CustomState, OtherStatus, STATE_UNREADABLE,
    SessionId, SessionState, Snapshot, SnapshotEvent, SnapshotId, SnapshotIds, SnapshotStatus, Timeline,
    UnfinishedCall,
};
pub use self::wire::patch;
pub use self::wire::{
    AbortRequest, AbortResponse, AddedMessages, AgentInit, AgentMetadata, AgentOutput, AgentResult,
    AgentStreamChunk, GetSnapshotRequest, GivenCustom, IdempotencyKey, NewConversation, PlainProtocol,
    ServerNote, SnapshotCreated, StateManagement, TurnDetails, TurnEnd, TurnStarted, Unstored,
};

// Types of other crates that occur in signatures here.
pub use async_trait::async_trait;
pub use everturn_ai::{Answers, Budget, UsageTotal};
pub use everturn_core as core;
pub use jiff::Timestamp;
