//! One route: which action answers at which path.

use axum::http::Method;
use everturn_core::{ActionType, ParsedKey};

/// A route as data: a method, a path, and the key of the action that answers there.
///
/// A server mounts whatever list of these it is given, so leaving one out or moving it is an operation on a `Vec`.
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
    /// The method it answers to; the protocol knows `POST` alone.
    pub method: Method,
    /// Where it is, beginning with a slash. It is matched as it is written: there are no parameters in it.
    pub path: String,
    /// The action that answers, as it is registered: `/type/name`.
    pub key: String,
    /// What sort of action that is.
    pub kind: RouteKind,
}

/// What sort of action answers a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RouteKind {
    /// An agent: one turn per request.
    Agent,
    /// An agent's companion, such as the one that reads snapshots.
    Companion,
    /// A flow.
    Flow,
    /// An agent for whole conversations; see [`WebSockets`](crate::WebSockets).
    Conversation,
    /// A way to stop a streamed call; see [`Server::stream_log`](crate::Server::stream_log).
    Stop,
    /// Any other action.
    Other,
}

impl Route {
    /// A route that answers `POST` requests at a path with an action.
    pub fn post(path: impl Into<String>, key: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            method: Method::POST,
            path: path.into(),
            kind: RouteKind::of(&key),
            key,
        }
    }

    /// A route on which conversations are had with an agent, for the path at which it is called.
    pub fn conversation(path: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            key: key.into(),
            kind: RouteKind::Conversation,
        }
    }

    /// A route that stops streamed calls of an action, for the path at which they are made.
    pub fn stop(path: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            method: Method::DELETE,
            path: path.into(),
            key: key.into(),
            kind: RouteKind::Stop,
        }
    }
}

impl RouteKind {
    /// The kind of an action, by its key.
    fn of(key: &str) -> Self {
        let action_type = ParsedKey::parse(key).map_or("", |key| key.action_type);
        if action_type == ActionType::AGENT.as_str() {
            Self::Agent
        } else if action_type == ActionType::FLOW.as_str() {
            Self::Flow
        } else if action_type.starts_with("agent-") {
            Self::Companion
        } else {
            Self::Other
        }
    }

    /// The word for it in documents and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Companion => "companion",
            Self::Flow => "flow",
            Self::Conversation => "conversation",
            Self::Stop => "stop",
            Self::Other => "action",
        }
    }
}
