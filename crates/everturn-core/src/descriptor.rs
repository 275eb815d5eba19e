//! An action's key, description and schemas, as registries list them and developer tools show them.

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
    CHECK_OPERATION = "check-operation", "Reads the state of a background operation.";
    CANCEL_OPERATION = "cancel-operation", "Stops a background operation.";
    EMBEDDER = "embedder", "Converts documents to vectors.";
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
    CUSTOM = "custom", "An action of no other type.";
    DYNAMIC_ACTION_PROVIDER = "dynamic-action-provider", "A source of actions found at run time.";
    AGENT = "agent", "An agent: one bidirectional invocation per conversation.";
    AGENT_SNAPSHOT = "agent-snapshot", "Reads an agent's snapshot.";
    AGENT_SNAPSHOTS = "agent-snapshots", "Lists the snapshots of an agent's session.";
    AGENT_SESSION = "agent-session", "Reads the current state of an agent's session.";
    AGENT_SESSIONS = "agent-sessions", "Lists an agent's sessions.";
    AGENT_TREE = "agent-tree", "Shows the snapshots of an agent's session as a tree.";
    AGENT_DIFF = "agent-diff", "Compares two snapshots of an agent.";
    AGENT_USAGE = "agent-usage", "Returns the usage of a tenant and a session of an agent.";
    AGENT_LABEL = "agent-label", "Writes labels and notes on an agent's snapshots.";
    AGENT_FORK = "agent-fork", "Begins a session at an agent's snapshot.";
    AGENT_COPY = "agent-copy", "Copies an agent's session.";
    AGENT_EXPORT = "agent-export", "Exports an agent's session.";
    AGENT_IMPORT = "agent-import", "Imports a session of an agent.";
    AGENT_DELETE = "agent-delete", "Deletes an agent's sessions and snapshots.";
    AGENT_TENANTS = "agent-tenants", "Lists the tenants of an agent's store.";
    AGENT_DELETE_TENANT = "agent-delete-tenant", "Deletes everything of a tenant.";
    AGENT_RETAIN = "agent-retain", "Applies rules of retention to all tenants of an agent's store.";
    AGENT_ABORT = "agent-abort", "Aborts an agent's background run.";
    AGENT_WATCH = "agent-watch", "Streams the chunks of an agent's background run.";
}

impl ActionType {
    /// Creates an action type with a name that is not listed here.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    /// Returns the type's name on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the key of the action `name` of this type: `/type/name`.
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
    /// The whole name, including a plugin's prefix.
    pub name: &'a str,
}

impl<'a> ParsedKey<'a> {
    /// Parses a key; returns `None` if it is not of the form `/type/name`.
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

    /// Returns the plugin's prefix and the id after it, if the name has a prefix.
    pub fn plugin(&self) -> Option<(&'a str, &'a str)> {
        self.name
            .split_once('/')
            .filter(|(plugin, id)| !plugin.is_empty() && !id.is_empty())
    }
}

/// The description of an action: its key, its schemas and its metadata.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Descriptor {
    /// The key under which the action is registered: `/type/name`.
    pub key: String,
    /// The action's type.
    #[serde(rename = "type")]
    pub action_type: ActionType,
    /// The action's name, with the plugin's prefix if it has one.
    pub name: String,
    /// The description of the action for people and models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The schema of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Schema>,
    /// The schema of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Schema>,
    /// The schema of the chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_schema: Option<Schema>,
    /// The schema of the value that opens a bidirectional action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_schema: Option<Schema>,
    /// Entries that the kind of action adds, such as a model's capabilities.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl Descriptor {
    /// Creates a descriptor with a type and a name, without schemas or metadata.
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
