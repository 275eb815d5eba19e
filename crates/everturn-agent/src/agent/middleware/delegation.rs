//! Delegating tasks to other agents.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use everturn_ai::{
    Delegate, GenerateRound, IntoMiddleware, Messages, Middleware, MiddlewareSource, ModelResponse,
    NextRound, Tool, ToolContext, place_system_part,
};
use everturn_core::{ActionType, Context, Error, HandlerResult, Registry, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::subagent;
use crate::{Agent, AgentTransport, CustomState};

/// The metadata entry that marks the part with the list of sub-agents.
const MARKER: &str = "agents-middleware-instructions";

/// Gives the model one tool per sub-agent, to hand tasks to it.
///
/// The tool is called `delegate_to_<agent>` and takes a task in words; its result is the sub-agent's answer
/// and its artifacts. The failure of a sub-agent is returned to the model as a result, never as an error.
/// Named artifacts of a sub-agent become artifacts of the session, under `<agent>_<n>/<name>`.
///
/// A sub-agent is internal: servers and protocol adapters do not offer it to clients, unless it is
/// [public](crate::AgentBuilder::public). Its usage counts towards the budgets of the agent that delegates.
///
/// ```
/// use everturn_agent::{Delegation, AgentRef};
///
/// let team = Delegation::to(["researcher", "writer"]).max_delegations(4);
/// let named = Delegation::to([AgentRef::new("researcher").description("Knows where to look.")]);
/// # let _ = (team, named);
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delegation {
    /// The sub-agents: names, or names with descriptions.
    agents: Vec<AgentRef>,
    /// The prefix of the tools' names; empty for the bare names of the agents.
    #[serde(default = "default_prefix")]
    tool_prefix: String,
    /// How many tasks may be handed on in one generation; no limit if not given.
    #[serde(default)]
    max_delegations: Option<u32>,
    /// How many messages of the conversation a sub-agent is shown; only for agents that keep no sessions.
    #[serde(default)]
    history_length: usize,
    /// How a sub-agent's artifacts reach the model.
    #[serde(default)]
    artifact_strategy: ArtifactStrategy,
}

/// How a sub-agent's artifacts reach the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArtifactStrategy {
    /// Names and text, in the tool's result.
    #[default]
    Inline,
    /// Names only; the text is in the session.
    Session,
}

fn default_prefix() -> String {
    "delegate_to".to_owned()
}

impl Delegation {
    /// The name of the middleware in `.prompt` files.
    pub(super) const NAME: &str = "agents";

    /// Creates middleware that delegates to these agents.
    pub fn to(agents: impl IntoIterator<Item = impl Into<AgentRef>>) -> Self {
        Self {
            agents: agents.into_iter().map(Into::into).collect(),
            tool_prefix: default_prefix(),
            max_delegations: None,
            history_length: 0,
            artifact_strategy: ArtifactStrategy::default(),
        }
    }

    everturn_core::setters! {
        /// Sets the prefix of the tools' names; empty for the bare names of the agents.
        pub fn tool_prefix(mut self, prefix: impl Into<String>) { self.tool_prefix = prefix.into() }

        /// Sets how many tasks may be handed on in one generation.
        pub fn max_delegations(mut self, limit: u32) { self.max_delegations = Some(limit) }

        /// Sets how many of the last messages a sub-agent is shown, text only; only for agents that keep no
        /// sessions.
        pub fn history_length(mut self, messages: usize) { self.history_length = messages }

        /// Sets how a sub-agent's artifacts reach the model.
        pub fn artifact_strategy(mut self, strategy: ArtifactStrategy) { self.artifact_strategy = strategy }
    }

    /// Returns the sub-agents of this process.
    fn delegates(&self) -> impl Iterator<Item = Delegate> {
        self.agents.iter().filter_map(AgentRef::delegate)
    }

    /// Returns the sub-agents that a middleware delegates to.
    pub(super) fn delegates_of(middleware: &MiddlewareSource) -> Vec<Delegate> {
        let Some(reference) = middleware.reference() else {
            return middleware.delegates().to_vec();
        };
        let config = reference.config.as_ref().filter(|_| {
            let name = reference.name.rsplit('/').next();
            name == Some(Self::NAME)
        });
        // A configuration that cannot be read is found when the application is checked.
        let delegation = config.and_then(|config| Self::deserialize(config).ok());
        delegation.iter().flat_map(Self::delegates).collect()
    }

    /// Creates the bundle for one generation.
    pub(super) fn start(self, registry: &Registry) -> Result<Delegating> {
        if self.agents.is_empty() {
            return Err(Error::invalid_argument("delegation needs at least one agent"));
        }
        for delegate in self.delegates() {
            super::check_visibility(registry, &delegate.name)?;
        }
        let shared = Shared {
            config: self,
            registry: registry.clone(),
            delegations: AtomicU32::new(0),
            conversation: Mutex::default(),
        };
        Ok(Delegating(Arc::new(shared)))
    }
}

impl IntoMiddleware for Delegation {
    fn into_middleware(self) -> MiddlewareSource {
        let delegates: Vec<Delegate> = self.delegates().collect();
        MiddlewareSource::factory(move |registry| Ok(Arc::new(self.clone().start(registry)?)))
            .delegating_to(delegates)
    }
}

/// Delegation during one generation.
pub(super) struct Delegating(Arc<Shared>);

struct Shared {
    config: Delegation,
    registry: Registry,
    delegations: AtomicU32,
    /// The conversation as the model last saw it.
    conversation: Mutex<Messages>,
}

/// A task for a sub-agent.
#[derive(Deserialize, JsonSchema)]
struct Task {
    /// The task, with all the information that the agent needs.
    task: String,
}

/// The result of a task.
#[derive(Serialize, JsonSchema)]
pub(super) struct Outcome {
    pub(super) response: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) artifacts: Vec<Made>,
}

impl Outcome {
    pub(super) fn text(response: impl Into<String>) -> Self {
        Self {
            response: response.into(),
            artifacts: Vec::new(),
        }
    }
}

/// An artifact of a sub-agent.
#[derive(Serialize, JsonSchema)]
pub(super) struct Made {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
}

#[async_trait]
impl Middleware for Delegating {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        // A tool is not given the conversation, so it is kept here for the tools of this round.
        *self.0.conversation.lock() = round.request.messages.clone();
        let instructions = self.0.instructions().await?;
        place_system_part(&mut round.request.messages, MARKER, instructions);
        Ok(next.run(round).await?)
    }

    fn tools(&self) -> Vec<Tool> {
        self.0
            .config
            .agents
            .iter()
            .map(|agent| Shared::tool(&self.0, agent))
            .collect()
    }
}

impl Shared {
    fn tool_name(&self, agent: &AgentRef) -> String {
        match self.config.tool_prefix.as_str() {
            "" => agent.name.clone(),
            prefix => format!("{prefix}_{}", agent.name),
        }
    }

    fn tool(this: &Arc<Self>, agent: &AgentRef) -> Tool {
        let generic = || {
            format!(
                "Hands a task to the agent '{}' and returns its answer.",
                agent.name
            )
        };
        let description = agent.description.clone().unwrap_or_else(generic);
        let (this_, agent) = (Arc::clone(this), agent.clone());
        Tool::new(
            this.tool_name(&agent),
            description,
            move |input: Task, cx: ToolContext| {
                let (this, agent) = (Arc::clone(&this_), agent.clone());
                async move { Ok(this.delegate(&agent, input.task, cx).await) }
            },
        )
    }

    async fn delegate(&self, agent: &AgentRef, task: String, cx: ToolContext) -> Outcome {
        // Counted before the check: the tools of a round run at the same time, and together must keep the
        // limit.
        let number = self.delegations.fetch_add(1, Ordering::Relaxed) + 1;
        if self.config.max_delegations.is_some_and(|limit| number > limit) {
            return Outcome::text("No more tasks can be handed on now: finish with what there is.");
        }
        let conversation = self.conversation.lock().clone();
        let task = subagent::DelegatedTask {
            registry: &self.registry,
            agent,
            task,
            shown: subagent::last_texts(&conversation, self.config.history_length),
            invocation: format!("{}_{number}", agent.name),
            inline: self.config.artifact_strategy == ArtifactStrategy::Inline,
        };
        task.run(cx.context().clone()).await
    }

    /// Returns the instructions about the sub-agents for the model.
    async fn instructions(&self) -> Result<String> {
        let mut text = String::from("<sub-agents>\nTasks can be handed to these agents:\n");
        for agent in &self.config.agents {
            let description = match &agent.description {
                Some(description) => Some(description.clone()),
                None if agent.transport.is_some() => None,
                None => self.discover(&agent.name).await?,
            };
            let tool = self.tool_name(agent);
            // Writing to a string cannot fail.
            let _ = match description {
                Some(description) => writeln!(text, "  - {} (tool {tool}): {description}", agent.name),
                None => writeln!(text, "  - {} (tool {tool})", agent.name),
            };
        }
        text.push_str("</sub-agents>");
        Ok(text)
    }

    /// Returns the agent's own description. A missing agent is reported only when it gets a task.
    async fn discover(&self, name: &str) -> Result<Option<String>> {
        let action = self.registry.lookup(&ActionType::AGENT.key(name)).await?;
        Ok(action.and_then(|action| action.descriptor().description.clone()))
    }
}

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
            self.seed = Some(Arc::new(seed));
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
