//! Messages, models, tools and generation: the layer that Everturn's agents stand on.
//!
//! The types here are the ones of Genkit's wire protocol, so that its clients, its command line and its Dev UI
//! understand them. A conversation is made of [`Message`]s, which are made of [`Part`]s; both are read leniently and
//! written back whole. Long conversations are shared, never copied: a [`History`] is a position in an append-only
//! lineage, and a request's [`Messages`] borrow histories instead of holding copies.
//!
//! ```
//! use everturn_ai::{History, Message, ModelRequest};
//!
//! let mut history = History::new();
//! history.push(Message::user("Something with leeks?"));
//! history.push(Message::model("Leek soup."));
//!
//! let mut request = ModelRequest::new(&history);
//! request.messages.push("And without butter?");
//!
//! assert_eq!(request.messages.len(), 3);
//! assert_eq!(history.len(), 2);
//! ```

mod chunk;
mod content;
mod document;
mod embed;
mod evaluate;
mod fields;
mod finish_reason;
pub mod format;
mod generate_options;
mod generation_config;
pub mod history;
mod json;
mod message;
pub mod messages;
pub mod metadata;
mod middleware_ref;
mod model_info;
mod number;
mod operation;
mod output_config;
mod part;
mod request;
mod rerank;
mod response;
mod retrieve;
mod role;
mod tally;
mod tool_choice;
mod tool_definition;
mod tool_output;
mod usage;

pub use self::{
    chunk::ModelResponseChunk,
    content::Content,
    document::Document,
    embed::{EmbedRequest, EmbedResponse, EmbedderInfo, EmbedderSupports, Embedding},
    evaluate::{
        EvalDataPoint, EvalFnResponse, EvalRequest, EvalResponse, EvalStatus, Evaluation, EvaluatorInfo,
        Score, ScoreValue,
    },
    finish_reason::FinishReason,
    generate_options::{
        GenerateActionOptions, GenerateActionOutputConfig, OutputInstructions, ResumeOptions,
    },
    generation_config::GenerationConfig,
    history::{History, Lineage, LineageId},
    json::{ItemCursor, JsonObject, complete_json, extract_items, extract_json, parse_json},
    message::Message,
    messages::Messages,
    middleware_ref::{MiddlewareDesc, MiddlewareRef},
    model_info::{ConstrainedSupport, ModelInfo, ModelReference, ModelStage, ModelSupports},
    operation::{Operation, OperationError},
    output_config::OutputConfig,
    part::{InvalidPart, Media, Part, PartKind, ResourceLink, ToolRequest, ToolResponse},
    request::ModelRequest,
    rerank::{
        CommonRerankerOptions, RankedDocument, RankedDocumentMetadata, RerankerRequest, RerankerResponse,
    },
    response::ModelResponse,
    retrieve::{CommonRetrieverOptions, IndexerRequest, RetrieverRequest, RetrieverResponse},
    role::Role,
    tally::{Feature, Tally},
    tool_choice::ToolChoice,
    tool_definition::ToolDefinition,
    tool_output::MultipartToolResponse,
    usage::Usage,
};

pub mod catalogue;
mod embedder;
mod evaluator;
mod generate;
mod middleware;
mod model;
mod primitive;
pub mod prompt;
pub mod reason;
mod reranker;
mod resource;
mod retriever;
mod tool;

pub use async_trait::async_trait;
pub use everturn_core as core;

#[cfg(feature = "download")]
pub use self::model::HttpMediaFetcher;
pub use self::{
    embedder::{EmbedderAction, define_embedder, embed, embed_with, embedder_action},
    evaluator::{EvaluatorAction, define_evaluator, evaluate},
    generate::{
        Chunk, Generate, GenerateObserver, GenerateStream, Generated, define_format, register_generate,
        unusable_response, with_observer,
    },
    middleware::{
        GenerateHook, GenerateTurn, IntoMiddleware, Middleware, MiddlewareDefinition, MiddlewareSource, ModelCall,
        ModelHook, Next, NextModel, NextTool, NextTurn, ToolCall, ToolHook, define_middleware, generate_hook,
        middleware_descriptions, model_hook, place_system_part, tool_hook,
    },
    model::{
        BackgroundModel, Citation, ContextAugmentation, FetchedMedia, MediaDownload, MediaFetcher, Model,
        ModelAction, SystemPromptWording, augment_with_context, call_model, cancel_operation, check_operation,
        default_model, define_model, model_action, needs_simulation, register_model, set_default_model,
        simulate_constrained, simulate_system_prompt, simulate_system_prompt_with, validate_support,
    },
    reranker::{RerankerAction, define_reranker, rerank},
    resource::{Resource, ResourceInput, ResourceOutput, define_resource},
    retriever::{IndexerAction, RetrieverAction, define_indexer, define_retriever, index, retrieve},
    tool::{IntoTool, NoInput, Tool, ToolContext, ToolReference, interrupt, interrupt_data, lookup_tool},
};
