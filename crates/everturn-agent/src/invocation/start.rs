//! Starting an invocation: by a call, or by a takeover.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Context as TaskContext;

use everturn_ai::prompt::PromptOverrides;
use everturn_ai::{with_tool_errors, with_window};
use everturn_core::stream_log::{StreamSubject, SubjectNote};
use everturn_core::{Context, Emitter, Error, Inputs, Registry, Result, SpanRecorder};
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::RegistryGuard;
use super::agent_session::InvocationFacts;
use super::broadcast::Broadcast;
use super::client::{AnswerSender, Client, ClientStream};
use super::function::{RunningFunction, Turns};
use super::machine::{Machine, StoreSupport};
use super::opening::{Opening, open};
use super::repeated::{Found, Repeated};
use super::run_worker::RunWorker;
use super::signals::Signals;
use super::snapshots::{Journals, Snapshots};
use super::usage_tracker::UsageTracker;
use super::{Definition, Driver, QueuedInput};
use crate::invocation::cursor::InvocationCursor;
use crate::invocation::turn_lock::EarlyLock;
use crate::journal::call_mark;
use crate::policy::state_limit::StateLimit;
use crate::storage::snapshot::BackgroundRun;
use crate::storage::stored_session::TenantStore;
use crate::{
    AgentInit, AgentInput, AgentOutput, AgentStreamChunk, FailedTurns, IdempotencyKey, SessionHandle,
    SnapshotEvent, SnapshotId, TurnDetails,
};

/// Opens an invocation and waits for its output.
///
/// The work belongs to a driver, which this future polls. Dropping the future ends the work unless it was
/// detached, and moves the driver to a separate task.
pub(crate) fn invoke(
    definition: Arc<Definition>,
    init: AgentInit,
    inputs: Inputs<AgentInput>,
    emitter: Emitter<AgentStreamChunk>,
    context: Context,
) -> impl Future<Output = Result<AgentOutput>> {
    // Boxed, because it is large and completes long before the output.
    let starting = Box::pin(open_and_start(definition, init, inputs, emitter, context));
    async move {
        let (mut driving, mut outcome) = starting.await?;
        let outcome = poll_fn(|cx| {
            // First, because it may answer.
            driving.poll(cx);
            outcome.poll_unpin(cx)
        });
        let answered = outcome.await;
        let output = answered.map_err(|_| Error::internal("the invocation ended without an answer"))??;
        Ok(*output)
    }
}

/// Opens an invocation and starts its driver, which sends the output to the receiver.
async fn open_and_start(
    definition: Arc<Definition>,
    init: AgentInit,
    mut inputs: Inputs<AgentInput>,
    emitter: Emitter<AgentStreamChunk>,
    context: Context,
) -> Result<(Driving, oneshot::Receiver<Result<Box<AgentOutput>>>)> {
    let is_nested = SessionHandle::of(&context).is_some();
    let key = context.extension::<IdempotencyKey>().filter(|_| !is_nested);
    let (mut has_arrived, mut call) = (false, None);
    let is_of_client = !RegistryGuard::is_held(&context);
    if is_of_client || definition.turn_lease.is_some() || key.is_some() {
        let first = first_input(&mut inputs);
        // A call that is refused does not begin, so that HTTP answers with the error's status.
        if let Some(first) = first.as_ref().filter(|_| is_of_client) {
            definition.client_rules.check(first)?;
        }
        has_arrived = first.is_some();
        call = key.zip(first).map(|(key, input)| call_mark(key.as_str(), &input));
    }
    // If the first input has arrived, its turn may take the lock in the store in place of a read.
    let takes_turn = definition.turn_lease.is_some() && has_arrived;
    // Nothing runs and nothing is written before the init was accepted.
    let (mut opening, mut early_lock) = open(&definition, init, &context, takes_turn).await?;
    SpanRecorder::current().session_id(opening.session_id.as_str());
    if let Some(note) = context.extension::<SubjectNote>() {
        let scope = definition.scope(&context);
        note.leave(StreamSubject::session(
            scope.as_str(),
            opening.session_id.as_str(),
        ));
    }
    let answering = call.as_deref().zip(opening.cursor.as_deref());
    let answering = answering.and_then(|(call, cursor)| Some((call, cursor.answering(call)?)));
    let found = match answering {
        Some((call, at)) => Box::pin(Repeated::find(opening.session_id.clone(), call, at)).await,
        None => Ok(None),
    };
    if !matches!(found, Ok(None))
        && let Some(lock) = early_lock.take()
    {
        Box::pin(lock.release()).await;
    }
    match found? {
        Some(Found::Ended(repeated)) => {
            let (answer, outcome) = oneshot::channel();
            let output = Box::pin(repeated.replay(&definition, &emitter, &context)).await;
            let _ = answer.send(output.map(Box::new));
            return Ok((Driving(None), outcome));
        }
        Some(Found::Failed(snapshot)) => {
            inputs = without_first_message(inputs);
            let init = AgentInit::snapshot(snapshot);
            (opening, early_lock) = Box::pin(open(&definition, init, &context, takes_turn)).await?;
        }
        None => {}
    }
    let opening = Opening { call, ..opening };
    let (answer, outcome) = oneshot::channel();
    let driver = Driver::start(Arc::clone(&definition), opening, inputs, emitter, context, answer);
    let mut driver = match (driver, early_lock) {
        (Ok(driver), lock) => {
            lock.into_iter().for_each(EarlyLock::hand_over);
            driver
        }
        (Err(error), lock) => {
            if let Some(lock) = lock {
                Box::pin(lock.release()).await;
            }
            return Err(error);
        }
    };
    // The lease in the store must not lapse while the function computes.
    if is_nested || definition.turn_lease.is_some() {
        driver.function.move_to_task();
    }
    let running = driver.run().instrument(tracing::Span::current());
    let mut driving = Driving(Some(Box::pin(definition.invocations.track_future(running))));
    // An agent called by another one runs in its own task, not on top of the caller's stack.
    if is_nested {
        driving.move_to_task();
    }
    Ok((driving, outcome))
}

/// The work of a driver. Its holder polls it. Dropping this moves the work to a separate task.
struct Driving(Option<BoxFuture<'static, ()>>);

impl Driving {
    fn poll(&mut self, cx: &mut TaskContext<'_>) {
        if let Some(work) = &mut self.0
            && work.poll_unpin(cx).is_ready()
        {
            self.0 = None;
        }
    }

    fn move_to_task(&mut self) {
        // Without a runtime nothing can continue: it is shutting down.
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.move_to_task();
    }
}

/// Returns the first input if it has arrived; it stays the first of the inputs.
fn first_input(inputs: &mut Inputs<AgentInput>) -> Option<AgentInput> {
    let first = inputs.next().now_or_never()??;
    let rest = std::mem::replace(inputs, Inputs::from_stream(stream::empty()));
    *inputs = Inputs::from_stream(stream::iter([first.clone()]).chain(rest));
    Some(first)
}

/// Returns the inputs of a call whose turn failed and is continued: the session has its message and its
/// answers.
fn without_first_message(inputs: Inputs<AgentInput>) -> Inputs<AgentInput> {
    let mut is_first = true;
    Inputs::from_stream(inputs.map(move |input| {
        if !std::mem::take(&mut is_first) {
            return input;
        }
        AgentInput {
            message: None,
            answers: None,
            earlier: Vec::new(),
            ..input
        }
    }))
}

impl Driver {
    /// Starts the agent's function on a session.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the session's stored custom state does not fit the agent, `INVALID_ARGUMENT`
    /// if the client's does not.
    pub(crate) fn start(
        definition: Arc<Definition>,
        opening: Opening,
        inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        caller: Context,
        answer: AnswerSender,
    ) -> Result<Box<Self>> {
        let support = match &opening.cursor {
            None => StoreSupport::None,
            Some(cursor) if cursor.can_watch() => StoreSupport::WithSubscription,
            Some(_) => StoreSupport::WithoutSubscription,
        };
        let keeps_ends =
            opening.cursor.is_some() && definition.snapshots.listens_to(SnapshotEvent::InvocationEnd);
        let machine = Machine::new(support);
        let machine = if keeps_ends {
            machine.keeping_ends()
        } else {
            machine
        };
        let machine = if definition.failed_turns == FailedTurns::Keep {
            machine.keeping_failures()
        } else {
            machine
        };
        let client = Client::new(inputs, caller, answer);
        Self::assemble(definition, opening, client, emitter, machine)
    }

    /// Starts the agent's function on a run that was taken over, with the inputs that are left and without a
    /// client.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub(crate) fn take_over(
        definition: Arc<Definition>,
        id: SnapshotId,
        run: BackgroundRun,
        opening: Opening,
        context: Context,
    ) -> Result<Box<Self>> {
        let (machine, commands) = Machine::take_over(run.inputs.into_iter().map(Box::new).collect());
        let client = Client::departed(context, run.by_program);
        let mut driver = Self::assemble(definition, opening, client, Emitter::silent(), machine)?;
        driver.turns = Turns::after(run.turns);
        // There is no client, so chunks go to the watchers from the beginning.
        driver.client_stream.silence();
        driver.play_to_watchers();
        driver.go_to_background(id, run.lease);
        for command in commands {
            driver.execute(command);
        }
        Ok(driver)
    }

    /// Puts the parts of an invocation together and spawns the agent's function.
    fn assemble(
        definition: Arc<Definition>,
        opening: Opening,
        client: Client,
        emitter: Emitter<AgentStreamChunk>,
        machine: Machine<QueuedInput, Error>,
    ) -> Result<Box<Self>> {
        let Opening {
            session_id,
            state,
            cursor,
            differs_from_snapshot,
            init,
            is_clients_word,
            gives_custom,
            first_turn,
            call,
            listed,
        } = opening;
        let caller = client.context().clone();
        let work = CancellationToken::new();
        let keeps_rounds = cursor.is_some() && definition.snapshots.listens_to(SnapshotEvent::RoundEnd);
        let (signals, receiver) = Signals::new(
            work.clone(),
            emitter.is_streaming(),
            keeps_rounds,
            definition.status_schema.clone(),
            caller.extension::<TurnDetails>().is_some(),
        );
        let transform = definition.state_transform.clone();
        let opened_session = session_id.clone();
        let opened = definition
            .function
            .open(session_id, state, &signals, transform, caller.clone());
        let is_stored = cursor.is_some() || init.session_id.is_some() || init.snapshot_id.is_some();
        let (session, run_function) = opened.map_err(|error| {
            if is_stored {
                definition.unreadable_state(&opened_session, &caller, &error)
            } else {
                // A client that keeps the state sent it, and may read what is wrong with it.
                error.with_public()
            }
        })?;
        // Only clients that keep the state need the last good one; others resume from the last snapshot.
        let last_good = cursor.is_none().then(|| Box::new(session.state()));
        let resumed = cursor.as_ref().is_some_and(|cursor| cursor.last().is_some());
        let newest = resumed.then(|| session.state());
        let unsaved = differs_from_snapshot.then(|| session.state());
        let is_at_head = cursor.as_ref().is_some_and(|cursor| cursor.is_at_head());
        let listed = if is_at_head { listed } else { newest.clone() };
        let snapshots = Snapshots::after(newest, unsaved, listed, call);

        // The work is cancelled by the machine alone: after a detach it must outlive its caller's
        // cancellation.
        let context = session.enter(caller.detached().with_cancellation(work));
        let registry = definition.registry.upgrade()?;
        let used_before = cursor.as_deref().map(InvocationCursor::used_before);
        let limits = definition.limits.for_call(&caller, &registry);
        // Agents that this one calls have their own meters inside this one.
        let store = definition.store.clone();
        let tenant = store.map(|store| TenantStore::new(store, definition.scope(&caller)));
        let repeated_calls = limits.most_repeated_calls();
        let usage = UsageTracker::begin(&caller, limits, &used_before.unwrap_or_default(), tenant);
        RegistryGuard::release(&caller);
        let mut context = with_settings(usage.enter(context), &definition, &registry);
        let overrides = caller
            .extension::<PromptOverrides>()
            .filter(|overrides| !overrides.is_empty());
        if overrides.is_some() {
            // They are for this invocation, not for the agents that it calls.
            context = context.with_extension(Arc::new(PromptOverrides::new()));
        }
        let facts = InvocationFacts {
            init,
            overrides,
            snapshots: snapshots.created(),
            limit: StateLimit::new(definition.max_state_bytes),
            session_flow: definition.is_session_flow.then(|| definition.name.clone()),
            agent: definition.name.clone(),
            usage: Arc::clone(&usage),
            repeated_calls,
            observers: definition.turn_observers.clone(),
            input_validation: definition.input_validation(!client.is_program(), is_clients_word),
            resources: definition.client_rules.clone(),
            custom_schema: definition.custom_schema.clone(),
        };
        let running = run_function(context.clone(), signals.clone(), facts);
        let function = RunningFunction::new(&definition.name, running, context, receiver);

        Ok(Box::new(Self {
            machine,
            raised: VecDeque::new(),
            client,
            client_stream: ClientStream::new(emitter),
            function,
            turns: Turns::beginning_with(first_turn),
            lock_queue: None,
            releases: FuturesUnordered::new(),
            cursor,
            writes: FuturesUnordered::new(),
            background: RunWorker::new(definition.heartbeat.interval),
            broadcast: Broadcast::new(Arc::clone(&definition.run_log)),
            snapshots,
            journals: Journals::default(),
            last_good,
            gives_custom,
            shown: None,
            result: None,
            is_stopped: false,
            usage,
            definition,
            _registry: registry,
            session,
            signals,
        }))
    }
}

/// Returns the context with what the agent and its application provide to the work.
fn with_settings(context: Context, definition: &Definition, registry: &Registry) -> Context {
    // Weak, because models and tools, which the registry holds, may keep their context.
    let context = context.with_extension(Arc::new(registry.downgrade()));
    let context = context.with_dependencies(registry.dependencies());
    let context = with_window(context, definition.window.clone());
    with_tool_errors(context, definition.tool_errors)
}
