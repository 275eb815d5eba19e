//! Durable AI agents: multi-turn, streamed, with a snapshot after every turn, resumable and branchable from
//! any snapshot, and able to continue in the background.
//!
//! ```
//! use everturn::prelude::*;
//! use everturn::testkit::OfflineModel;
//!
//! #[payload]
//! #[derive(Debug, Default, Clone)]
//! struct Kitchen {
//!     pantry: Vec<String>,
//! }
//!
//! /// Puts something into the pantry.
//! #[tool]
//! async fn stock(item: String, kitchen: Session<Kitchen>) -> Result<String> {
//!     kitchen.update_custom(|kitchen| kitchen.pantry.push(item.clone()));
//!     Ok(format!("{item} is in the pantry"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let app = Everturn::builder().model("offline", OfflineModel::new()).default_model("offline").build().await?;
//!
//! let chef = app
//!     .agent("chef")
//!     .custom::<Kitchen>()
//!     .system("You are a chef. The pantry holds {{@custom.pantry}}.")
//!     .tool(stock)
//!     .store(MemoryStore::new())
//!     .define()?;
//!
//! let reply = chef.run_text("Something with leeks?").await?;
//! let mut chat = chef.chat().resume(reply.session_id()).open().await?;
//! let mut turn = chat.send("And without butter?").await?;
//! while let Some(chunk) = turn.next().await {
//!     print!("{}", chunk?.text());
//! }
//! let reply = turn.output().await?;
//! assert_eq!(chef.get_snapshot(reply.snapshot_id()).await?.status, SnapshotStatus::Completed);
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `macros` | yes | the attributes `#[tool]` and `#[payload]` |
//! | `filesystem` | yes | middleware that reads folders: `filesystem` and `skills` |
//! | `server` | yes | agents and flows over HTTP: `Everturn::serve` |
//! | `dev` | yes | Genkit's developer tools: `genkit start`, the Dev UI, traces |
//! | `client` | no | agents and flows on other servers: `RemoteAgent` |
//! | `websocket` | no | whole conversations on one WebSocket, for the client |
//! | `mcp` | no | tools of MCP servers, and an application as an MCP server |
//! | `agui` | no | the AG-UI protocol adapter, for `CopilotKit` and other front ends: `server.agui()` |
//! | `openai-server` | no | the adapter for OpenAI's HTTP API: `server.openai()` |
//! | `jwt` | no | identifies callers by JSON Web Tokens, for the server |
//! | `sqlite` | no | the durable store in one SQLite file; builds SQLite and zstd, which are C |
//! | `postgres` | no | the durable store for many machines, in PostgreSQL; builds zstd, which is C |
//! | `file` | no | the durable store of readable JSON files |
//! | `download` | no | downloads media for models that do not accept URLs |
//! | `openai` | no | OpenAI's models, and compatible servers |
//! | `anthropic` | no | Anthropic's models |
//! | `gemini` | no | Google's Gemini models |
//! | `ollama` | no | local models, through Ollama |
//! | `studio` | yes | the studio: a page for using agents and inspecting their sessions |
//! | `otlp` | no | traces and log lines for OpenTelemetry collectors |
//! | `evaluators` | no | evaluators without a model, for the developer tools |
//! | `offline` | no | models without a network, for tests and demonstrations |
//! | `testkit` | no | `offline`, and the certification kit for stores |
//!
//! # Where things are
//!
//! | module | contents |
//! |---|---|
//! | [`prelude`] | the items that most programs use |
//! | [`model_prelude`] | the items for implementing a model |
//! | [`core`] | actions, flows, the registry, schemas, errors, spans |
//! | [`ai`] | messages, models, tools, generate, prompts, middleware |
//! | [`agent`] | agents, sessions, snapshots, stores, archives, chats |
//! | `client` | agents and flows on other servers |
//! | `dev` | the interface to Genkit's developer tools |
//! | `mcp` | MCP servers and clients |
//! | `models` | OpenAI, Anthropic, Gemini, Ollama |
//! | `agui` | the AG-UI protocol adapter |
//! | `openai` | the adapter for OpenAI's HTTP API |
//! | `otlp` | the export of traces and log lines |
//! | `server` | routes, context providers, limits, durable streams |
//! | `studio` | the studio page |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
#[cfg(all(feature = "dev", feature = "server"))]
mod traces;

#[cfg(all(feature = "dev", feature = "server"))]
pub use self::traces::ServeTraces;

pub use everturn_agent as agent;
#[cfg(feature = "agui")]
pub use everturn_agui as agui;
pub use everturn_ai as ai;
#[cfg(feature = "client")]
pub use everturn_client as client;
pub use everturn_core as core;
#[cfg(feature = "dev")]
pub use everturn_dev as dev;
#[cfg(feature = "file")]
pub use everturn_file as file;
#[cfg(feature = "macros")]
pub use everturn_macros::{payload, tool};
#[cfg(feature = "mcp")]
pub use everturn_mcp as mcp;
#[cfg(any(
    feature = "anthropic",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub use everturn_models as models;
#[cfg(feature = "openai-server")]
pub use everturn_openai as openai;
#[cfg(feature = "otlp")]
pub use everturn_otlp as otlp;
#[cfg(feature = "postgres")]
pub use everturn_postgres as postgres;
#[cfg(feature = "server")]
pub use everturn_server as server;
#[cfg(feature = "sqlite")]
pub use everturn_sqlite as sqlite;
#[cfg(feature = "studio")]
pub use everturn_studio as studio;
#[cfg(feature = "offline")]
pub use everturn_testkit as testkit;

pub use self::app::{Checked, Everturn, EverturnBuilder};

pub use everturn_core::{Error, HandlerError, HandlerResult, Result};

// Types and derives of these crates appear in signatures of this crate.
pub use {schemars, serde, serde_json};

/// The items that most programs use.
pub mod prelude {
    pub use everturn_agent::archive::{Archive, Retention};
    pub use everturn_agent::store::{MemoryStore, SessionStore};
    pub use everturn_agent::{
        Agent, AgentFinishReason, AgentInput, AgentRef, AgentReply, AgentSession, AgentTask, Artifact,
        Artifacts, Chat, ClientPermissions, Concurrency, Delegation, FailedTurns, Heartbeat, Interrupt,
        Limits, Session, SessionHandle, SessionId, SessionState, Snapshot, SnapshotEvent, SnapshotId,
        SnapshotIds, SnapshotPolicy, SnapshotStatus, Timeline, Turn, TurnLocking, WhileInterrupted,
        WorkerLoss,
    };
    pub use everturn_ai::builtin_middleware::{Fallback, Retry, ToolApproval};
    pub use everturn_ai::prompt::PromptDefinition;
    pub use everturn_ai::{
        AnswerForm, AnsweredBy, Answers, Budget, FinishReason, Generate, History, Message, Messages, Part,
        Price, Prices, Reconciliation, Replay, Role, Tool, ToolChoice, ToolContext, ToolErrors, ToolRequest,
        Window,
    };
    pub use everturn_core::{
        Context, Dep, Emitter, Error, FromContext, HandlerError, HandlerResult, Inputs, Principal, Result,
        Status, run,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
    pub use serde_json::{Value, json};

    #[cfg(feature = "agui")]
    pub use everturn_agui::ServeAgui;
    #[cfg(feature = "client")]
    pub use everturn_client::{RemoteAgent, RemoteFlow};
    #[cfg(feature = "file")]
    pub use everturn_file::FileStore;
    #[cfg(feature = "macros")]
    pub use everturn_macros::{payload, tool};
    #[cfg(feature = "openai-server")]
    pub use everturn_openai::ServeOpenAi;
    #[cfg(feature = "postgres")]
    pub use everturn_postgres::PostgresStore;
    #[cfg(feature = "sqlite")]
    pub use everturn_sqlite::SqliteStore;
    #[cfg(feature = "studio")]
    pub use everturn_studio::{ServeStudio, Studio};

    pub use crate::Everturn;
}

/// The items for implementing a model: the trait, its request and response and their parts, and plugins,
/// which register all models of a provider.
///
/// ```
/// use everturn::model_prelude::*;
///
/// /// A model that repeats the last message.
/// struct Parrot;
///
/// impl Model for Parrot {
///     async fn generate(
///         &self,
///         request: ModelRequest,
///         emitter: Emitter<ModelResponseChunk>,
///         _context: Context,
///     ) -> HandlerResult<ModelResponse> {
///         let text = request.messages.last().map(|message| message.text().into_owned()).unwrap_or_default();
///         emitter.send(ModelResponseChunk::new(text.clone())).await?;
///         Ok(ModelResponse::text_of(text))
///     }
/// }
/// ```
pub mod model_prelude {
    pub use everturn_ai::{
        BackgroundModel, ConstrainedSupport, Content, EmbedRequest, EmbedResponse, EmbedderInfo, Embedding,
        FinishReason, GenerationConfig, JsonObject, Media, MediaDownload, Message, Messages, Model,
        ModelAction, ModelInfo, ModelReference, ModelRequest, ModelResponse, ModelResponseChunk, ModelStage,
        ModelSupports, Operation, OutputConfig, Part, PartKind, Role, ToolChoice, ToolDefinition,
        ToolRequest, ToolResponse, Usage, define_embedder, define_model, model_action, register_model,
    };
    pub use everturn_core::{
        ActionType, BoxFuture, Context, Descriptor, DynAction, Emitter, Error, HandlerError, HandlerResult,
        Plugin, Registry, Result, Schema, Status, async_trait,
    };
    pub use serde_json::{Value, json};
}

#[doc(hidden)]
pub use everturn_ai::__private;

/// The examples of the README and of the guides, compiled and run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/agents.md")]
    struct Agents;
    #[doc = include_str!("../../../docs/serving.md")]
    struct Serving;
    #[doc = include_str!("../../../docs/studio.md")]
    struct Studio;
    #[doc = include_str!("../../../docs/developer-tools.md")]
    struct DeveloperTools;
    #[doc = include_str!("../../../docs/telemetry.md")]
    struct Telemetry;
    #[doc = include_str!("../../../docs/models.md")]
    struct Models;
    #[doc = include_str!("../../../docs/history.md")]
    struct History;
    #[doc = include_str!("../../../docs/long-conversations.md")]
    struct LongConversations;
    #[doc = include_str!("../../../docs/limits.md")]
    struct Limits;
    #[doc = include_str!("../../../docs/background.md")]
    struct Background;
    #[doc = include_str!("../../../docs/mcp.md")]
    struct Mcp;
    #[doc = include_str!("../../../docs/copilotkit.md")]
    struct CopilotKit;
    #[doc = include_str!("../../../docs/openai-clients.md")]
    struct OpenAiClients;
    #[doc = include_str!("../../../docs/stores.md")]
    struct Stores;
    #[doc = include_str!("../../../docs/tools.md")]
    struct Tools;
    #[doc = include_str!("../../../docs/approvals.md")]
    struct Approvals;
    #[doc = include_str!("../../../docs/prompts.md")]
    struct Prompts;
    #[doc = include_str!("../../../docs/own-models.md")]
    struct OwnModels;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/errors.md")]
    struct Errors;
    #[doc = include_str!("../../../docs/tenants.md")]
    struct Tenants;
    #[doc = include_str!("../../../docs/wire.md")]
    struct Wire;
    #[doc = include_str!("../../../docs/postgres.md")]
    struct Postgres;
}
