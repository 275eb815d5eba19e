//! References to agents.

use std::sync::Arc;

use everturn_ai::Delegate;
use everturn_core::Context;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Agent, AgentTransport, CustomState};

/// A reference to an agent that tasks can be handed to: its name, a description for the model, and where it
/// is.
///
/// | the agent is | its reference |
/// |---|---|
/// | registered, now or later | `AgentRef::new("researcher")`, or the name alone |
/// | available | `AgentRef::from(&researcher)` |
/// | on another server: a `RemoteAgent` of `everturn-client` | `AgentRef::reached("researcher", remote)` |
///
/// ```
/// use everturn_agent::{AgentRef, Delegation};
///
/// let researcher = AgentRef::new("researcher")
///     .description("Knows where to look.")
///     .seed(|context| context.with_value("budget", "small"));
/// let team = Delegation::to([researcher, AgentRef::new("writer")]);
/// # let _ = team;
/// ```
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(from = "AgentRefForm")]
#[schemars(with = "AgentRefForm")]
pub struct AgentRef {
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// The way to the agent; `None` if it is looked up in the registry.
    pub(super) transport: Option<Arc<dyn AgentTransport>>,
    /// Whether the agent is on another server.
    is_remote: bool,
    seed: Option<Seed>,
}

type Seed = Arc<dyn Fn(Context) -> Context + Send + Sync>;

/// A name, or an object with more.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum AgentRefForm {
    Name(String),
    Described {
        name: String,
        #[serde(default)]
        description: Option<String>,
    },
}

impl From<AgentRefForm> for AgentRef {
    fn from(form: AgentRefForm) -> Self {
        match form {
            AgentRefForm::Name(name) => Self::new(name),
            AgentRefForm::Described { name, description } => Self {
                description,
                ..Self::new(name)
            },
        }
    }
}

impl AgentRef {
    /// Refers to the registered agent of a name. It is looked up when it is given a task.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: None,
            transport: None,
            is_remote: false,
            seed: None,
        }
    }

    /// Refers to the agent at the other end of a transport, such as a `RemoteAgent`, under a name of one's
    /// choice.
    pub fn reached(name: impl Into<String>, transport: impl AgentTransport) -> Self {
        Self {
            transport: Some(Arc::new(transport)),
            is_remote: true,
            ..Self::new(name)
        }
    }

    everturn_core::setters! {
        /// Sets the description for the model; without it, the agent's own.
        pub fn description(mut self, description: impl Into<String>) { self.description = Some(description.into()) }

        /// Sets the function that makes the context of the agent's invocations from the context of the call
        /// that delegates to it.
        ///
        /// The agent sees the result as its caller's context: who calls, for which tenant, with what
        /// deadline. For an agent on another server it is the context that the client's header provider is
        /// given.
        pub fn seed(mut self, seed: impl Fn(Context) -> Context + Send + Sync + 'static) {
            self.seed = Some(Arc::new(seed))
        }
    }

    /// Returns the agent if it is one of this process.
    pub(super) fn delegate(&self) -> Option<Delegate> {
        (!self.is_remote).then(|| Delegate {
            name: self.name.clone(),
            is_looked_up: self.transport.is_none(),
        })
    }

    /// Returns the context of an invocation that a call in `context` delegates.
    pub(super) fn seeded(&self, context: &Context) -> Context {
        match &self.seed {
            Some(seed) => seed(context.clone()),
            None => context.clone(),
        }
    }
}

everturn_core::conversions! {
    From<&str> for AgentRef: |name| Self::new(name);
    From<String> for AgentRef: |name| Self::new(name);
}

impl<S: CustomState, T: 'static, O: 'static> From<&Agent<S, T, O>> for AgentRef {
    fn from(agent: &Agent<S, T, O>) -> Self {
        Self {
            description: agent.description().map(str::to_owned),
            is_remote: false,
            ..Self::reached(agent.name(), agent.clone())
        }
    }
}

everturn_core::opaque_debug!(AgentRef, name, description);
