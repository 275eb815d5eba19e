//! A route: the action that answers at a path.

use axum::http::Method;
use everturn_core::{ActionType, ParsedKey};

/// A route as data: a method, a path, and the key of the action that answers there.
///
/// A server mounts the list of routes that it is given, so removing or moving one is an operation on a `Vec`.
///
/// ```
/// use everturn_server::{Route, RouteKind};
///
/// let route = Route::post("/menu", "/flow/menu");
///
/// assert_eq!(route.kind, RouteKind::Flow);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The method of the route; the protocol itself uses only `POST`.
    pub method: Method,
    /// The path, which begins with a slash. It is matched literally, without parameters.
    pub path: String,
    /// The registry key of the action: `/type/name`.
    pub key: String,
    /// The kind of the action.
    pub kind: RouteKind,
}

/// The kind of action that answers a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RouteKind {
    /// An agent: one turn per request.
    Agent,
    /// An agent's companion action, such as the one that reads snapshots.
    Companion,
    /// An agent's companion action that changes or exports sessions. It is mounted if the server allows any
    /// caller to use it; see [`Server::archive`](crate::Server::archive).
    Archive,
    /// An agent's companion action that works on all tenants. It is mounted if the server allows any caller
    /// to use it; see [`Server::operators`](crate::Server::operators).
    Operator,
    /// A flow.
    Flow,
    /// A WebSocket for whole conversations with an agent; see [`WebSockets`](crate::WebSockets).
    Conversation,
    /// A request that stops a streamed call; see [`Server::stream_log`](crate::Server::stream_log).
    Stop,
    /// Any other action.
    Other,
}

impl Route {
    /// Creates a route that answers `POST` requests at a path with an action.
    pub fn post(path: impl Into<String>, key: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            method: Method::POST,
            path: path.into(),
            kind: RouteKind::of(&key),
            key,
        }
    }

    /// Creates the WebSocket route of an agent, for the path at which the agent is called.
    pub fn conversation(path: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            key: key.into(),
            kind: RouteKind::Conversation,
        }
    }

    /// Creates a route that stops streamed calls of an action, for the path at which the action is called.
    pub fn stop(path: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            method: Method::DELETE,
            path: path.into(),
            key: key.into(),
            kind: RouteKind::Stop,
        }
    }
}

/// The types of the actions that change or export sessions.
const ARCHIVE: [&str; 6] = [
    "agent-label",
    "agent-fork",
    "agent-copy",
    "agent-export",
    "agent-import",
    "agent-delete",
];

/// The types of the actions that work on all tenants.
const OPERATOR: [&str; 3] = ["agent-tenants", "agent-delete-tenant", "agent-retain"];

impl RouteKind {
    /// Returns the kind of an action, by its key.
    fn of(key: &str) -> Self {
        let action_type = ParsedKey::parse(key).map_or("", |key| key.action_type);
        if action_type == ActionType::AGENT.as_str() {
            Self::Agent
        } else if action_type == ActionType::FLOW.as_str() {
            Self::Flow
        } else if ARCHIVE.contains(&action_type) {
            Self::Archive
        } else if OPERATOR.contains(&action_type) {
            Self::Operator
        } else if action_type.starts_with("agent-") {
            Self::Companion
        } else {
            Self::Other
        }
    }

    /// Returns the name of the kind in documents and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Companion => "companion",
            Self::Archive => "archive",
            Self::Operator => "operator",
            Self::Flow => "flow",
            Self::Conversation => "conversation",
            Self::Stop => "stop",
            Self::Other => "action",
        }
    }
}
