//! What an action is called and what it takes, as registries list it and tools show it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Schema;

/// The kind of an action; the first segment of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActionType(Cow<'static, str>);

macro_rules! action_types {
    ($($constant:ident = $name:literal, $doc:literal;)*) => {
        impl ActionType {
            $(
                #[doc = $doc]
                pub const $constant: Self = Self(Cow::Borrowed($name));
            )*
        }
    };
}

action_types! {
    MODEL = "model", "A generative model.";
    BACKGROUND_MODEL = "background-model", "A model whose answer is fetched later.";
    CHECK_OPERATION = "check-operation", "Asks how a background operation is doing.";
    CANCEL_OPERATION = "cancel-operation", "Stops a background operation.";
    EMBEDDER = "embedder", "Turns documents into vectors.";
    EVALUATOR = "evaluator", "Scores a data set.";
    RETRIEVER = "retriever", "Finds documents.";
    INDEXER = "indexer", "Stores documents.";
    RERANKER = "reranker", "Orders documents by relevance.";
    TOOL = "tool", "A function a model may call.";
    TOOL_V2 = "tool.v2", "A function a model may call, answering in parts.";
    PROMPT = "prompt", "A prompt that renders to a model request.";
    EXECUTABLE_PROMPT = "executable-prompt", "A prompt that renders to generate options.";
    RESOURCE = "resource", "Content behind a URI.";
    FLOW = "flow", "A user's function.";
    UTIL = "util", "A piece of the framework that tools may run.";
    CUSTOM = "custom", "Anything else.";
    DYNAMIC_ACTION_PROVIDER = "dynamic-action-provider", "A source of actions found at run time.";
    AGENT = "agent", "An agent: one bidirectional invocation per conversation.";
    AGENT_SNAPSHOT = "agent-snapshot", "Reads an agent's snapshot.";
    AGENT_SNAPSHOTS = "agent-snapshots", "Lists the snapshots of an agent's session.";
    AGENT_SESSION = "agent-session", "Reads an agent's session as it is now.";
    AGENT_ABORT = "agent-abort", "Aborts an agent's background run.";
    AGENT_WATCH = "agent-watch", "Shows an agent's background run.";
}

impl ActionType {
    /// A type of one's own.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    /// The type's name on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of an action of this type: `/type/name`.
    pub fn key(&self, name: &str) -> String {
        format!("/{}/{name}", self.0)
    }
}

impl fmt::Display for ActionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The parts of a key: `/type/name`, where a name may begin with the plugin that provides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedKey<'a> {
    /// The action type.
    pub action_type: &'a str,
    /// The whole name, plugin and all.
    pub name: &'a str,
}

impl<'a> ParsedKey<'a> {
    /// Reads a key; `None` if it is not of the form `/type/name`.
    ///
    /// ```
    /// use everturn_core::ParsedKey;
    ///
    /// let key = ParsedKey::parse("/model/openrouter/openai/gpt-5").unwrap();
    /// assert_eq!(key.plugin(), Some(("openrouter", "openai/gpt-5")));
    /// assert_eq!(ParsedKey::parse("/flow/menu").unwrap().plugin(), None);
    /// ```
    pub fn parse(key: &'a str) -> Option<Self> {
        let (action_type, name) = key.strip_prefix('/')?.split_once('/')?;
        (!action_type.is_empty() && !name.is_empty()).then_some(Self { action_type, name })
    }

    /// The plugin segment and the id behind it, if the name has one.
    pub fn plugin(&self) -> Option<(&'a str, &'a str)> {
        self.name
            .split_once('/')
            .filter(|(plugin, id)| !plugin.is_empty() && !id.is_empty())
    }
}

/// What there is to know about an action without running it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Descriptor {
    /// The key it is registered under: `/type/name`.
    pub key: String,
    /// Its type.
    #[serde(rename = "type")]
    pub action_type: ActionType,
    /// Its name, with the plugin's prefix if it has one.
    pub name: String,
    /// What it does, for people and models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Schema>,
    /// What it returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// What it streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_schema: Option<Schema>,
    /// What a bidirectional invocation is opened with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_schema: Option<Schema>,
    /// Whatever its kind adds, such as a model's capabilities.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Descriptor {
    /// A descriptor with nothing but a type and a name.
    pub fn new(action_type: ActionType, name: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            key: action_type.key(&name),
            action_type,
            name,
            description: None,
            input_schema: None,
            output_schema: None,
            stream_schema: None,
            init_schema: None,
            metadata: Map::new(),
        }
    }
}
