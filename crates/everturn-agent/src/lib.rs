//! Sessions, turns, snapshots and agents: conversations that survive.
//!
//! An **agent** is a named function that runs *turns* on a *session*: messages, custom state, artifacts. With a store
//! it keeps its conversations itself, and each turn leaves a *snapshot* to resume from; without one, its clients keep
//! them. Clients see a turn as a stream of chunks and one output.
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
//! | talk to one | [`Agent`], [`Chat`], [`AgentConnection`], [`AgentReply`] |
//! | reach the conversation from a tool | [`Session`] as an argument of a `#[tool]` function, [`Session::current`] |
//! | hand tasks to other agents | [`Delegation`], [`AgentRef`] |
//! | choose how sessions are kept | [`store`], [`Snapshot`], [`SnapshotPolicy`], [`SnapshotIds`], [`Timeline`] |
//! | work with history | [`Agent::archive`], [`archive`] |
//! | survive a crash without acting twice | [`journal`], [`Turn::effect`] |
//! | work in the background | [`Chat::detach`], [`AgentTask`] |
//! | take over the runs of a process that died | [`Agent::recover`], [`recover_every`], [`WorkerLoss`] |
//! | follow custom state | [`patch`] |
//! | count turns and tokens | [`AgentReply::usage`], [`Snapshot::usage`], [`observe_turns`] |
#![doc = include_str!("docs/background.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

pub mod archive;
pub mod journal;
pub mod patch;
pub mod store;

mod agent;
mod answers;
mod artifact;
mod call_options;
mod chat;
mod client_permissions;
mod clock;
mod connection;
mod content_id;
mod cursor;
mod failure_log;
mod finish_reason;
mod id;
mod invocation;
mod lifecycle;
mod limits;
mod lock;
mod middleware;
mod prompt_agent;
mod reading;
mod recovery;
mod run_poll;
mod run_stream;
mod runs;
mod session;
mod snapshot;
mod snapshot_policy;
mod state;
mod state_limit;
mod stored_session;
mod stream_logs;
mod timeline;
mod transform;
mod turn_lock;
mod turn_observer;
mod while_interrupted;
mod wire;
mod worker_loss;

pub use self::agent::{
    AbortAction, Agent, AgentAction, AgentBuilder, AgentKind, Custom, SessionAction, SnapshotAction,
    SnapshotsAction, WatchAction, WatchRequest, custom_agent, session_flow,
};
pub use self::answers::{validate_answers, validate_edited_answers};
pub use self::archive::Archive;
pub use self::artifact::Artifact;
pub use self::call_options::{BeginAnew, IdempotencyKey, ServerNote, TurnDetails, Unstored};
pub use self::chat::{
    Abort, AgentChunk, AgentReply, AgentTask, AgentTransport, Chat, ChatBuilder, ChatTurn, Interrupt,
    RunWatch,
};
pub use self::client_permissions::ClientPermissions;
pub use self::clock::Clock;
pub use self::connection::{AgentConnection, TurnChunks};
pub use self::content_id::SnapshotIds;
pub use self::finish_reason::AgentFinishReason;
pub use self::id::{SessionId, SnapshotId};
pub use self::invocation::{
    AgentSession, HandOff, Heartbeat, OwnedTurn, Turn, TurnContext, TurnEffect, TurnGenerate, TurnResult,
};
pub use self::journal::{Journaling, TURN_TAKEN_OVER};
pub use self::lifecycle::{OtherStatus, SnapshotEvent, SnapshotStatus};
pub use self::limits::{Limits, set_limits};
pub use self::middleware::{
    AgentRef, ArtifactStrategy, Artifacts, Delegation, check_delegates, internal_agents,
    register_agent_middleware,
};
pub use self::prompt_agent::{InlinePrompt, NamedPrompt, agent, prompt_agent};
pub use self::reading::{FailedTurns, SNAPSHOT_NOT_FOUND, STORE_NOT_CONFIGURED};
pub use self::recovery::{RecoveredRun, Recovery, RecoveryLoop, recover_all, recover_every};
pub use self::run_stream::RunChunks;
pub use self::session::{Session, SessionHandle};
pub use self::snapshot::Snapshot;
pub use self::snapshot_policy::{SnapshotMoment, SnapshotPolicy};
pub use self::state::{CustomState, STATE_UNREADABLE, SessionState};
pub use self::state_limit::STATE_TOO_LARGE;
pub use self::store::IntoStore;
pub use self::stream_logs::erase_streams_in;
pub use self::timeline::Timeline;
pub use self::turn_lock::{Concurrency, SESSION_BUSY, TurnLocking};
pub use self::turn_observer::{EndedTurn, TurnObserver, observe_turns};
pub use self::while_interrupted::WhileInterrupted;
pub use self::wire::{
    AbortRequest, AbortResponse, AddedMessages, AgentInit, AgentInput, AgentMetadata, AgentOutput,
    AgentResult, AgentStreamChunk, ClientTool, GetSnapshotRequest, GivenCustom, PlainProtocol,
    SnapshotCreated, StateManagement, TurnEnd, TurnStarted,
};
pub use self::worker_loss::WorkerLoss;

// Types of other crates that are used in signatures here.
pub use async_trait::async_trait;
pub use everturn_ai::{Answers, Budget, UsageTotal};
pub use everturn_core as core;
pub use jiff::Timestamp;
