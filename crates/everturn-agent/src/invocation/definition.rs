//! The definition of an agent, as its invocations need it, and the guard that keeps its registry until an
//! invocation has begun.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use everturn_ai::prompt::{Prompt, WeakPrompt};
use everturn_ai::{ToolErrors, Window};
use everturn_core::stream_log::StreamLog;
use everturn_core::{Context, Error, Registry, Result, Schema, WeakRegistry};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use super::Beginning;
use super::failure_log::FailedWork;
use super::function::UntypedFunction;
use crate::invocation::answers::RestartInputs;
use crate::invocation::turn_observer::TurnObserver;
use crate::journal::Retention;
use crate::policy::FailedTurns;
use crate::policy::client_permissions::ClientRules;
use crate::policy::limits::ChosenLimits;
use crate::policy::state_limit::{MAX_STATE_BYTES, StateLimit};
use crate::policy::transform::{StateTransform, StreamTransform};
use crate::runs::Runs;
use crate::runs::run_stream::RunPolls;
use crate::storage::clock::HEARTBEAT_EXPIRY;
use crate::storage::session_state::unreadable;
use crate::store::{Scope, SessionStore};
use crate::weak_list::WeakList;
use crate::{
    Clock, Concurrency, SessionId, SnapshotIds, SnapshotPolicy, Timeline, WhileInterrupted, WorkerLoss,
};

pub(crate) type ScopeOf = Arc<dyn Fn(&Context) -> Scope + Send + Sync>;

/// How often the worker of a background run renews its heartbeat, and when it counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// The time between two heartbeats.
    pub interval: Duration,
    /// The time without a heartbeat after which the run is reported as expired and may be taken over. It must
    /// be longer than the interval; twice the interval forgives one lost heartbeat.
    pub expiry: Duration,
}

impl Heartbeat {
    /// Checks that the expiry is longer than the interval.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if every run would count as expired between two heartbeats.
    pub(crate) fn check(self) -> Result<()> {
        if self.interval.is_zero() || self.expiry <= self.interval {
            return Err(Error::invalid_argument(
                "a heartbeat needs an interval above zero and an expiry longer than the interval",
            ));
        }
        Ok(())
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            expiry: HEARTBEAT_EXPIRY,
        }
    }
}

/// How long cancelled work may take to end by itself before it is dropped, unless the agent sets another
/// time.
pub(super) const CANCELLATION_GRACE: Duration = Duration::from_secs(5);

/// Returns the schema of a type; `None` if it is any JSON.
pub(crate) fn schema_of<T: JsonSchema + 'static>() -> Option<Schema> {
    (TypeId::of::<T>() != TypeId::of::<Value>()).then(Schema::of::<T>)
}

/// The prompt of an agent. It does not keep the agent's registry alive, which holds the agent's actions.
#[derive(Clone)]
pub(crate) enum AgentPrompt {
    /// A prompt of the agent's registry.
    Own(WeakPrompt),
    /// A prompt of another registry, which is kept.
    Elsewhere(Prompt),
}

impl AgentPrompt {
    pub(crate) fn new(prompt: Prompt, registry: &Registry) -> Self {
        if prompt.registry().ptr_eq(registry) {
            Self::Own(prompt.downgrade())
        } else {
            Self::Elsewhere(prompt)
        }
    }

    /// Returns the prompt.
    ///
    /// # Errors
    /// `UNAVAILABLE` once the agent's registry is dropped.
    pub(crate) fn get(&self) -> Result<Prompt> {
        match self {
            Self::Own(prompt) => prompt.upgrade(),
            Self::Elsewhere(prompt) => Ok(prompt.clone()),
        }
    }
}

/// The tools that only a response answers, each with the schema of its answers.
pub(crate) type RespondOnly = BTreeMap<String, Value>;

/// Whether servers offer an agent to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Visibility {
    /// Unless another agent delegates to it.
    #[default]
    UnlessDelegate,
    Public,
    Internal,
}

/// The settings of an agent that its invocations read.
#[derive(Default)]
pub(crate) struct Settings {
    pub(crate) description: Option<String>,
    /// Whether spans and keys have the names of session flows.
    pub(crate) is_session_flow: bool,
    pub(crate) store: Option<Arc<dyn SessionStore>>,
    pub(crate) scope: Option<ScopeOf>,
    pub(crate) state_transform: Option<StateTransform>,
    pub(crate) stream_transform: Option<StreamTransform>,
    pub(crate) concurrency: Concurrency,
    pub(crate) snapshots: SnapshotPolicy,
    pub(crate) snapshot_ids: SnapshotIds,
    pub(crate) timeline: Timeline,
    /// Whether the last message of a snapshot names it.
    pub(crate) names_messages: bool,
    pub(crate) resume_past_failures: bool,
    /// The state that failed turns leave, and whether it can be resumed.
    pub(crate) failed_turns: FailedTurns,
    /// Whether failed tool calls are reported to the model; as [`ToolErrors::Fail`] if not set.
    pub(crate) tool_errors: Option<ToolErrors>,
    /// The part of a conversation that models see.
    pub(crate) window: Window,
    /// The limits of the agent.
    pub(crate) limits: ChosenLimits,
    /// Whether answers to interrupts may change the arguments of a call.
    pub(crate) restart_inputs: RestartInputs,
    /// What happens to a message that arrives while requests are open.
    pub(crate) while_interrupted: WhileInterrupted,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) worker_loss: WorkerLoss,
    /// The names of the caller's values that background runs record.
    pub(crate) recorded_context: Vec<String>,
    pub(crate) cancellation_grace: Option<Duration>,
    pub(crate) max_state_bytes: Option<u64>,
    /// The content of new sessions.
    pub(crate) beginning: Beginning,
    /// The schema of the statuses that the agent sends, if it declares one.
    pub(crate) status_schema: Option<Schema>,
    /// The schema of the value that the agent's function returns; `None` if that may be any JSON.
    pub(crate) output_schema: Option<Schema>,
    pub(crate) visibility: Visibility,
    /// The input of the agent's prompt in conversations without one.
    pub(crate) prompt_input: Option<Arc<Value>>,
}

/// The definition of an agent, which its invocations share.
pub(crate) struct Definition {
    pub(crate) name: String,
    /// Weak, because the registry holds the agent's actions, and those this definition.
    pub(crate) registry: WeakRegistry,
    pub(crate) function: Arc<dyn UntypedFunction>,
    /// The lease of turn locks in the store; `None` if turns are locked in this process only.
    pub(crate) turn_lease: Option<Duration>,
    pub(crate) clock: Clock,
    /// How long journals are kept; `None` if none are written.
    pub(crate) journals: Option<Arc<Retention>>,
    /// The schema of the custom state; `None` if that may be any JSON.
    pub(crate) custom_schema: Option<Schema>,
    /// The agent's prompt, if it has one.
    pub(crate) prompt: Option<AgentPrompt>,
    /// The tools that only a response answers.
    pub(crate) respond_only: RespondOnly,
    /// The fields that clients may set in addition to their message.
    pub(crate) client_rules: ClientRules,
    /// The drivers of all invocations in progress. Each ends with its connection, or with its background run.
    pub(crate) invocations: TaskTracker,
    /// The background runs among them.
    pub(crate) runs: Runs,
    /// The log in which background runs are watched.
    pub(crate) run_log: Arc<dyn StreamLog>,
    /// The polls of the runs that are watched, which their watchers share.
    pub(crate) run_polls: Arc<RunPolls>,
    /// The logs that hold streams of the registry's agents.
    pub(crate) stream_logs: WeakList<dyn StreamLog>,
    /// The observers of turns that end.
    pub(crate) turn_observers: WeakList<dyn TurnObserver>,
    pub(crate) settings: Settings,
}

impl Deref for Definition {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Definition {
    /// Returns the tenant whose snapshots an invocation in this context may see: the one that the agent's own
    /// function names, else the one that the caller brought.
    pub(crate) fn scope(&self, context: &Context) -> Scope {
        match &self.scope {
            Some(scope) => scope(context),
            None => Scope::brought_by(context).unwrap_or_default(),
        }
    }

    /// Checks that the agent's prompt can be rendered with an input; null is the prompt's own default.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that names the field at fault.
    pub(crate) fn check_prompt_input(&self, input: &Value) -> Result<()> {
        let Some(prompt) = &self.prompt else {
            return Ok(());
        };
        prompt.get()?.check_input(input).map_err(|error| {
            error
                .context(format_args!("'promptInput' does not fit agent '{}'", self.name))
                .with_public()
        })
    }

    /// Returns the limit on the size of a session's state.
    pub(super) fn state_limit(&self) -> StateLimit {
        StateLimit::new(self.max_state_bytes.unwrap_or(MAX_STATE_BYTES))
    }

    /// Converts the error of a stored custom state that is not of the agent's type, and logs it.
    pub(super) fn unreadable_state(&self, session: &SessionId, caller: &Context, error: &Error) -> Error {
        let error = unreadable(error, self.function.custom_type());
        let failed = FailedWork {
            agent: &self.name,
            session,
            context: caller,
        };
        failed.log("reading a session", &error);
        error
    }

    /// Returns the caller's values that a background run records.
    pub(crate) fn recorded_context(&self, context: &Context) -> Map<String, Value> {
        self.recorded_context
            .iter()
            .filter_map(|name| Some((name.clone(), context.value(name)?.clone())))
            .collect()
    }
}

/// A registry in the context of a call, which the invocation takes over when it begins.
///
/// It must not stay there: a context may be kept by a model or a tool, which the registry holds.
pub(crate) struct RegistryGuard(Mutex<Option<Registry>>);

impl RegistryGuard {
    /// Returns a context that keeps the registry.
    pub(crate) fn in_context(context: &Context, registry: &Registry) -> Context {
        let guard = Self(Mutex::new(Some(registry.clone())));
        context.clone().with_extension(Arc::new(guard))
    }

    /// Returns whether a call comes from a handle of the agent, which is this program. Every other call is a
    /// client's.
    ///
    /// The contexts of calls that the invocation makes itself have an guard that was released.
    pub(super) fn is_held(context: &Context) -> bool {
        let guard = context.extension::<Self>();
        guard.is_some_and(|guard| guard.0.lock().is_some())
    }

    /// Lets the registry of a context go.
    pub(super) fn release(context: &Context) {
        if let Some(guard) = context.extension::<Self>() {
            // Every change is a single assignment.
            guard.0.lock().take();
        }
    }
}
