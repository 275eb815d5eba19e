//! Messages, models, tools and generation: the layer below Everturn's agents.
//!
//! The types are those of Genkit's wire protocol, which its clients, command line and Dev UI use. A
//! conversation consists of [`Message`]s, which consist of [`Part`]s; both are read leniently and written
//! back whole. Long conversations are shared, never copied: a [`History`] is a position in an append-only
//! lineage, and a request's [`Messages`] borrow histories instead of holding copies.
//!
//! A model with a tool, and a typed answer:
//!
//! ```
//! use everturn_ai::{Generate, History, Message, ModelInfo, ModelResponse, Tool, ToolContext, define_model};
//! use everturn_core::{Registry, Result};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Debug, Deserialize, JsonSchema)]
//! struct Dish {
//!     name: String,
//!     minutes: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! let registry = Registry::new();
//! define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
//!     Ok(ModelResponse::text_of(r#"{"name": "leek soup", "minutes": 30}"#))
//! })?;
//! let season = Tool::new("season", "What is in season.", |month: u8, _cx: ToolContext| async move {
//!     Ok(if month < 4 { "leeks" } else { "peas" })
//! });
//! let history = History::from_iter([Message::user("Hello."), Message::model("Good evening.")]);
//!
//! let reply = Generate::new(&registry)
//!     .model("cook")
//!     .system("You are a chef.")
//!     .messages(&history)
//!     .prompt("Something for March?")
//!     .tool(season)
//!     .output::<Dish>()
//!     .await?;
//!
//! assert_eq!(reply.output()?.name, "leek soup");
//! assert_eq!(reply.messages().len(), 5);
//! # Ok(()) }
//! ```
//!
//! | to | see |
//! |---|---|
//! | write a message | [`Message`], [`Part`], [`History`], [`Messages`] |
//! | call a model | [`Generate`], [`Generated`], [`GenerateStream`] |
//! | implement a model | [`Model`], [`define_model`], [`BackgroundModel`] |
//! | give a model tools | [`Tool`], [`ToolContext`], [`FromToolContext`], [`interrupt`] |
//! | wrap rounds, model calls and tool calls | [`Middleware`], [`model_hook`], [`builtin_middleware`] |
//! | request structured output | [`Generate::output`], [`mod@format`] |
//! | define prompts | [`prompt`] |
//! | provide documents to models | [`Document`], [`Resource`], [`retrieve`], [`embed`] |
//! | fit a long conversation into the context window | [`Window`] |
//! | observe a conversation | [`GenerateObserver`] |
//! | recover from a crash without repeating effects | [`Replay`], [`EffectJournal`] |
//! | distinguish failures | [`reason`], [`unusable_response`], [`is_unfit_answer`] |
//!
//! | feature | adds |
//! |---|---|
//! | `download` | downloading media for models that do not accept URLs |
//! | `filesystem` | the middleware that reads folders: `filesystem` and `skills` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(
    clippy::disallowed_methods,
    reason = "polls, retries and leases wait in real time"
)]

mod answers;
mod approval;
mod budget;
pub mod builtin_middleware;
mod document;
pub mod effect;
mod embedder;
mod evaluator;
pub mod format;
mod generate;
mod generate_options;
mod heap_size;
pub mod history;
mod json;
mod message;
mod message_stats;
pub mod messages;
pub mod metadata;
mod middleware;
mod model;
mod model_info;
mod money;
mod number;
mod part;
mod prices;
mod primitive;
pub mod prompt;
pub mod reason;
mod request;
mod resource;
mod response;
mod retriever;
mod role;
mod tool;
mod usage;
mod usage_meter;
pub mod window;

pub use async_trait::async_trait;
pub use everturn_core as core;

pub use self::heap_size::{json_heap_size, parts_heap_size};
#[cfg(feature = "download")]
pub use self::model::HttpMediaFetcher;
pub use self::{
    answers::{Answers, Declined},
    approval::{Answerer, Approval, ApprovalAnswer, ApprovalForm, OPERATOR, Questions, with_questions},
    budget::{Budget, Exceeded},
    document::Document,
    effect::{
        EffectId, EffectJournal, ModelEffect, Reconciliation, Repeat, Replay, ToolEffect, ToolOutcome,
        ToolRecord, with_journal,
    },
    embedder::{
        EmbedRequest, EmbedResponse, EmbedderAction, EmbedderInfo, EmbedderSupports, Embedding,
        define_embedder, embed, embed_with, embedder_action,
    },
    evaluator::{
        EvalDataPoint, EvalFnResponse, EvalRequest, EvalResponse, EvalStatus, Evaluation, EvaluatorAction,
        EvaluatorInfo, Score, ScoreValue, define_evaluator, evaluate,
    },
    generate::{
        Chunk, Generate, GenerateObserver, GenerateStream, Generated, PartialGeneration, ToolErrors,
        define_format, is_limit, is_unfit_answer, partial_generation, register_generate, unusable_response,
        with_observer, with_repeated_calls, with_tool_errors,
    },
    generate_options::{
        GenerateActionOptions, GenerateActionOutputConfig, MiddlewareDesc, MiddlewareRef, OutputInstructions,
    },
    history::{History, Lineage, LineageId},
    json::{ItemCursor, JsonObject, complete_json, extract_items, extract_json, parse_json},
    message::{Content, Message},
    message_stats::{Feature, MessageStats},
    messages::Messages,
    middleware::{
        Delegate, GenerateHook, GenerateRound, IntoMiddleware, Middleware, MiddlewareDefinition,
        MiddlewareSource, ModelCall, ModelHook, Next, NextModel, NextRound, NextTool, ToolCall, ToolHook,
        define_middleware, generate_hook, middleware_descriptions, model_hook, place_system_part, tool_hook,
    },
    model::{
        BackgroundModel, Citation, ClientMedia, ContextAugmentation, Fetch, FetchBudget, FetchRules,
        FetchedMedia, MediaDownload, MediaFetcher, Model, ModelAction, OptionalMedia, SystemPromptWording,
        augment_with_context, call_model, cancel_operation, check_operation, default_model, define_model,
        model_action, needs_simulation, register_model, set_default_model, simulate_constrained,
        simulate_system_prompt, simulate_system_prompt_with, validate_support,
    },
    model_info::{ConstrainedSupport, ModelInfo, ModelReference, ModelStage, ModelSupports},
    money::Money,
    part::{
        InvalidPart, Media, MultipartToolResponse, Part, PartKind, ResourceLink, ToolRequest, ToolResponse,
    },
    prices::{Price, Prices},
    request::{GenerationConfig, ModelRequest, OutputConfig, ToolChoice, ToolDefinition},
    resource::{Resource, ResourceInput, ResourceOutput, define_resource},
    response::{FinishReason, ModelResponse, ModelResponseChunk, Operation, OperationError},
    retriever::{
        CommonRerankerOptions, CommonRetrieverOptions, IndexerAction, IndexerRequest, RankedDocument,
        RankedDocumentMetadata, RerankerAction, RerankerRequest, RerankerResponse, RetrieverAction,
        RetrieverRequest, RetrieverResponse, define_indexer, define_reranker, define_retriever, index,
        rerank, retrieve,
    },
    role::Role,
    tool::{
        AnswerForm, AnsweredBy, FromToolContext, GivenAnswer, IntoTool, NoInput, Requirement, Tool,
        ToolContext, ToolReference, interrupt, interrupt_data, lookup_tool, lookup_tools, outcome_unknown,
    },
    usage::{Usage, UsageTotal},
    usage_meter::{BudgetGuard, MeterReading, NextCall, UsageMeter},
    window::{Window, with_window},
};

#[doc(hidden)]
pub mod __private {
    //! Re-exports for the code that `#[tool]` generates.
    pub use {schemars, serde};

    pub use crate::{
        AnswerForm, AnsweredBy, FromToolContext, IntoTool, NoInput, Repeat, Replay, Tool, ToolContext,
        ToolReference,
    };
}
