//! Starting an invocation: the rules of its `init`, the state from which it starts, and its driver.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Context as TaskContext;

use everturn_core::stream_log::{StreamSubject, SubjectNote};
use everturn_core::{
    ActionType, Context, Emitter, Error, Inputs, Result, SpanKind, SpanRecorder, catch_panic, in_span,
};
use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::cursor::InvocationCursor;
use super::new_session::{GivenInput, given_custom, given_prompt_input, session_exists, settle_prompt_input};
use super::repeated::{Found, Repeated};
use super::turn_lock::EarlyLock;
use super::{Definition, Driver, RegistryGuard};
use crate::journal::call_mark;
use crate::policy::visibility::{check_owner, not_found};
use crate::policy::why_not;
use crate::storage::stored_session::TenantStore;
use crate::store::{Detail, Recalled, ResumeAt, check_id};
use crate::{
    AgentInit, AgentInput, AgentOutput, AgentStreamChunk, IdempotencyKey, NewConversation, SessionHandle,
    SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus, Timeline, Unstored,
};

/// Runs an invocation in its span, which is that of the agent's action. A panic becomes an error.
///
/// # Errors
/// The error for which the invocation was refused or cut short; `CANCELLED` or `DEADLINE_EXCEEDED` if the
/// context ends first.
pub(crate) async fn run(
    definition: Arc<Definition>,
    init: AgentInit,
    inputs: Inputs<AgentInput>,
    emitter: Emitter<AgentStreamChunk>,
    context: Context,
) -> Result<AgentOutput> {
    let agent = Arc::clone(&definition);
    in_span(
        &agent.name,
        SpanKind::Action(&ActionType::AGENT),
        context,
        |context, recorder| async move {
            recorder.init(&init);
            let key = ActionType::AGENT.key(&definition.name);
            let work = invoke(definition, init, inputs, emitter, context.clone());
            let output = catch_panic(&key, context.guard(work)).await?;
            recorder.output(&output);
            Ok(output)
        },
    )
    .await
}

/// Opens an invocation, starts its driver and waits for the output.
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
    let starting = Box::pin(start(definition, init, inputs, emitter, context));
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
async fn start(
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
    if !matches!(found, Ok(None)) {
        release(early_lock.take()).await;
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
    let mut driver = match driver {
        Ok(driver) => driver,
        Err(error) => {
            release(early_lock).await;
            return Err(error);
        }
    };
    early_lock.into_iter().for_each(EarlyLock::hand_over);
    // The lease in the store must not lapse while the function computes.
    if is_nested || definition.turn_lease.is_some() {
        driver.move_function_to_task();
    }
    let running = driver.run().instrument(tracing::Span::current());
    let mut driving = Driving(Some(Box::pin(definition.invocations.track_future(running))));
    // An agent called by another one runs in its own task, not on top of the caller's stack.
    if is_nested {
        driving.move_to_task();
    }
    Ok((driving, outcome))
}

/// Releases the lock of a turn that does not begin.
async fn release(lock: Option<EarlyLock>) {
    if let Some(lock) = lock {
        Box::pin(lock.release()).await;
    }
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

/// The session and the state from which an invocation starts.
pub(crate) struct Opening {
    pub(crate) session_id: SessionId,
    pub(crate) state: SessionState,
    /// Which snapshot the next one follows; `None` if the client keeps the state.
    pub(crate) cursor: Option<Box<InvocationCursor>>,
    /// Whether the state differs from the resumed snapshot: it holds a new prompt input, or what a session
    /// begins with.
    pub(crate) differs_from_snapshot: bool,
    /// Whether the state was supplied by a client and cannot be verified.
    pub(crate) is_clients_word: bool,
    /// How the invocation was called, as its function may see it.
    pub(crate) init: AgentInit,
    /// Whether the caller gave the session its custom state.
    pub(crate) gives_custom: bool,
    /// The id of the first turn, if the turn has one already.
    pub(crate) first_turn: Option<SnapshotId>,
    /// The mark of the call, which the snapshot of its first turn records.
    pub(crate) call: Option<String>,
    /// If the invocation starts from a head, the state in the snapshot before it, for policies that compare.
    pub(crate) listed: Option<SessionState>,
}

/// Where an invocation starts, before a new session is given its content.
struct Start {
    session_id: SessionId,
    state: SessionState,
    cursor: Option<Box<InvocationCursor>>,
    /// Whether the session has no snapshot and no content yet.
    is_new: bool,
}

/// Finds the state from which an invocation starts. Nothing is written, and nothing runs if this fails.
///
/// If the first input has arrived, the turn's lock may be taken in the store. That lock is returned and
/// handed over once the invocation has begun.
pub(crate) async fn open(
    definition: &Definition,
    init: AgentInit,
    context: &Context,
    takes_turn: bool,
) -> Result<(Opening, Option<EarlyLock>)> {
    let mut init = AgentInit {
        session_id: init.session_id.and_then(SessionId::given),
        snapshot_id: init.snapshot_id.and_then(SnapshotId::given),
        ..init
    };
    init.check_sources()?;
    let called = init.clone();
    let is_of_client = !RegistryGuard::is_held(context);
    let custom = given_custom(definition, &mut init, is_of_client)?;
    let prompt_input = given_prompt_input(definition, &mut init, is_of_client)?;
    let is_unstored = context.extension::<Unstored>().is_some();
    let is_given = init.session_id.is_none() && init.snapshot_id.is_none();
    let is_clients_word = is_of_client && is_given && (is_unstored || definition.store.is_none());
    if let Some(state) = init.state.as_ref().filter(|_| is_clients_word) {
        definition
            .client_rules
            .check_state(state, &definition.beginning.messages)?;
    }
    // A turn that stores nothing takes no lock.
    let first_turn = (takes_turn && !is_unstored).then(SnapshotId::generate);
    let mut early_lock = None;
    let start = match &definition.store {
        Some(_) if is_unstored && is_given => resume_given(&definition.name, init)?,
        Some(_) if init.state.is_some() => {
            return Err(Error::failed_precondition(format!(
                "Cannot send 'state' to agent '{}': it keeps its sessions itself; send a 'snapshotId' or a 'sessionId'",
                definition.name
            )));
        }
        Some(_) => {
            let stored = Stored {
                definition,
                tenant: definition.tenant_store(context)?,
            };
            let starts_new = context.extension::<NewConversation>().is_some();
            // Boxed, so that an invocation of a new session does not carry these large futures.
            let recalled = match &first_turn {
                Some(turn) if !starts_new => Box::pin(stored.resume_recalled(&init, turn)).await?,
                _ => None,
            };
            match (recalled, init.snapshot_id, init.session_id) {
                (Some((start, lock)), ..) => {
                    early_lock = Some(lock);
                    start
                }
                (None, None, None) => stored.begin(),
                (None, Some(id), session_id) => Box::pin(stored.resume(id, session_id)).await?,
                (None, None, Some(session_id)) if starts_new => {
                    Box::pin(stored.new_conversation(session_id)).await?
                }
                (None, None, Some(session_id)) => Box::pin(stored.resume_latest(session_id)).await?,
            }
        }
        None => resume_given(&definition.name, init)?,
    };
    let start = Start {
        cursor: start.cursor.filter(|_| !is_unstored),
        ..start
    };
    match complete(definition, start, custom, prompt_input, context).await {
        Ok(completed) => {
            let opening = Opening {
                init: called,
                is_clients_word,
                first_turn,
                ..completed
            };
            Ok((opening, early_lock))
        }
        Err(error) => {
            release(early_lock).await;
            Err(error)
        }
    }
}

/// Gives a new session its content, and settles the prompt input.
async fn complete(
    definition: &Definition,
    start: Start,
    custom: Option<Arc<Value>>,
    prompt_input: Option<GivenInput>,
    context: &Context,
) -> Result<Opening> {
    let (session_id, mut state, cursor) = (start.session_id, start.state, start.cursor);
    let is_compared = definition.snapshots.compares();
    let at_head = cursor
        .as_ref()
        .filter(|cursor| is_compared && cursor.is_at_head());
    let listed = match at_head.and_then(|cursor| Some((cursor.tenant().clone(), cursor.listed()?.clone()))) {
        Some((tenant, listed)) => Box::pin(tenant.get(&listed, Detail::Whole)).await?,
        None => None,
    };
    let listed = listed.and_then(|snapshot| snapshot.state);
    let stored = state.clone();
    let gives_custom = custom.is_some();
    if start.is_new {
        definition.beginning.fill(&mut state, custom, context).await?;
    } else if gives_custom {
        return Err(session_exists(&session_id));
    }
    settle_prompt_input(&mut state, prompt_input, definition.prompt_input.as_ref())?;
    if stored.prompt_input.is_none() {
        let settled = state.prompt_input.as_deref();
        definition.check_prompt_input(settled.unwrap_or(&Value::Null))?;
    }
    Ok(Opening {
        session_id,
        differs_from_snapshot: !state.is_unchanged_since(&stored),
        state,
        cursor,
        init: AgentInit::default(),
        is_clients_word: false,
        gives_custom,
        first_turn: None,
        call: None,
        listed,
    })
}

/// Starts from the state that the client sent.
fn resume_given(agent: &str, init: AgentInit) -> Result<Start> {
    // These messages are not public: they reveal whether the agent has a store.
    let refused = |field: &str| {
        Error::failed_precondition(format!(
            "Cannot use '{field}' with agent '{agent}': it has no store; send the 'state' of the last output instead"
        ))
    };
    if init.snapshot_id.is_some() {
        return Err(refused("snapshotId"));
    }
    if init.session_id.is_some() {
        return Err(refused("sessionId"));
    }
    let state = init.state.unwrap_or_default();
    let is_new = state.session_id.is_none() && state.messages.is_empty();
    let session_id = state
        .session_id
        .clone()
        .and_then(SessionId::given)
        .unwrap_or_else(SessionId::generate);
    Ok(Start {
        session_id,
        state,
        cursor: None,
        is_new,
    })
}

/// Starts from the agent's store.
struct Stored<'a> {
    definition: &'a Definition,
    tenant: TenantStore,
}

impl Stored<'_> {
    /// Creates a cursor. It is boxed because it is large and passes through many hands before the driver has
    /// it.
    fn cursor(&self, session_id: SessionId) -> Box<InvocationCursor> {
        let cursor = InvocationCursor::new(
            self.tenant.session(session_id),
            self.definition.concurrency,
            self.definition.clock.clone(),
        )
        .with_rules(
            self.definition.timeline,
            self.definition.snapshot_ids,
            self.definition.failed_turns,
        )
        .with_store_locks(self.definition.turn_lease);
        Box::new(cursor)
    }

    async fn latest(&self, session: &SessionId, detail: Detail) -> Result<Option<Snapshot>> {
        read(self.tenant.session(session.clone()).tip(detail).await)
    }

    fn begin(&self) -> Start {
        let session_id = SessionId::generate();
        let mut cursor = self.cursor(session_id.clone());
        cursor.watch_lock();
        resumed(session_id, None, cursor)
    }

    /// Starts a new conversation in a session, next to everything that the session holds.
    async fn new_conversation(&self, session_id: SessionId) -> Result<Start> {
        let mut cursor = self.cursor(session_id.clone());
        let latest = self.latest(&session_id, Detail::Metadata).await?;
        let session = self.tenant.session(session_id.clone());
        let beside = read(session.successors(None).await)?;
        cursor.resume_latest(None, latest.as_ref(), beside)?;
        Ok(resumed(session_id, None, cursor))
    }

    /// Resumes the latest snapshot of a session as the store remembers it, under the lock of the first turn,
    /// which shows that nothing has changed. Returns `None` if the session has to be read: nothing is
    /// remembered, or the snapshot needs the checks of an ordinary read.
    ///
    /// # Errors
    /// The store's own errors.
    async fn resume_recalled(
        &self,
        init: &AgentInit,
        turn: &SnapshotId,
    ) -> Result<Option<(Start, EarlyLock)>> {
        let at = match (&init.snapshot_id, &init.session_id) {
            (Some(id), _) => ResumeAt::Snapshot(id.clone()),
            (None, Some(session)) => ResumeAt::Tip(session.clone()),
            (None, None) => return Ok(None),
        };
        let Some(locks) = self.tenant.store().turn_locks() else {
            return Ok(None);
        };
        let Some(Recalled { snapshot, version }) = locks.recall(self.tenant.scope(), &at).await else {
            return Ok(None);
        };
        let is_usual = snapshot.status == SnapshotStatus::Completed
            && !snapshot.orphaned
            && !snapshot.has_unfinished_rewind();
        let (true, Some(session_id)) = (is_usual, snapshot.session_id.clone()) else {
            return Ok(None);
        };
        if init.session_id.as_ref().is_some_and(|given| *given != session_id) {
            return Ok(None);
        }
        let mut cursor = self.cursor(session_id.clone());
        cursor.resume_from(&snapshot, Some(&snapshot), false)?;
        let lock = EarlyLock::take(&mut cursor, turn, version, &self.definition.invocations).await;
        let lock = read(lock)?;
        Ok(lock.map(|lock| (resumed(session_id, Some(snapshot), cursor), lock)))
    }

    async fn resume(&self, id: SnapshotId, session_id: Option<SessionId>) -> Result<Start> {
        let snapshot = read(self.tenant.get(&id, Detail::Whole).await)?;
        let snapshot = snapshot.ok_or_else(|| not_found(&id))?;
        if let Some(session_id) = &session_id {
            check_owner(&snapshot, session_id)?;
        }
        if !self.definition.failed_turns.admit(&snapshot) {
            return Err(self.refusal(&snapshot, "cannot resume").await?);
        }
        let session_id = snapshot.session_id.clone().unwrap_or_else(SessionId::generate);
        let mut cursor = self.cursor(session_id.clone());
        let latest = self.latest(&session_id, Detail::Metadata).await?;
        let is_latest = latest
            .as_ref()
            .is_some_and(|latest| latest.snapshot_id == snapshot.snapshot_id);
        // Nothing follows the latest snapshot, and a linear timeline requires nothing else.
        let is_followed = !is_latest
            && self.definition.timeline == Timeline::Branching
            && read(
                self.tenant
                    .session(session_id.clone())
                    .is_followed(&snapshot)
                    .await,
            )?;
        cursor.resume_from(&snapshot, latest.as_ref(), is_followed)?;
        Ok(resumed(session_id, Some(snapshot), cursor))
    }

    async fn resume_latest(&self, session_id: SessionId) -> Result<Start> {
        let mut cursor = self.cursor(session_id.clone());
        loop {
            let latest = self.latest(&session_id, Detail::Whole).await?;
            if latest.is_none() {
                // A session begins here: an id that a store cannot keep would fail after the model was paid.
                check_id("session id", session_id.as_str())?;
            }
            let (good, beside) = match &latest {
                Some(latest) => {
                    check_answer(latest, &session_id)?;
                    if self.definition.failed_turns.admit(latest) {
                        (Some(latest.clone()), Vec::new())
                    } else if self.definition.resume_past_failures {
                        let good = self.resumable_before(latest).await?;
                        let session = self.tenant.session(session_id.clone());
                        let beside = read(session.successors(good.as_ref()).await)?;
                        (good, beside)
                    } else {
                        let what = "cannot resume the session: its latest is";
                        return Err(self.refusal(latest, what).await?);
                    }
                }
                None => (None, Vec::new()),
            };
            if !beside.is_empty() && self.has_moved(&session_id, latest.as_ref()).await? {
                // A faster turn is not passed over: the search starts again.
                continue;
            }
            cursor.resume_latest(good.as_ref(), latest.as_ref(), beside)?;
            return Ok(resumed(session_id, good, cursor));
        }
    }

    /// Returns the error of a snapshot that cannot be resumed, with the possible alternatives.
    async fn refusal(&self, snapshot: &Snapshot, what: &str) -> Result<Error> {
        let mut shown = snapshot.clone();
        if self.definition.liveness().is_expired(snapshot) {
            shown.status = SnapshotStatus::Expired;
        }
        let why = format!("{what} snapshot '{}': {}", snapshot.snapshot_id, why_not(&shown));
        if shown.status.is_under_way() {
            // The run may yet complete.
            return Ok(Error::failed_precondition(why).with_public());
        }
        let before = self.resumable_before(snapshot).await?;
        let first = match snapshot.status {
            // Another worker may take the run over until it is ended.
            SnapshotStatus::Pending => "abort it, then ",
            _ => "",
        };
        let advice = match &before {
            Some(before) => format!(
                "{first}resume snapshot '{}' with 'snapshotId' to go on before it",
                before.snapshot_id
            ),
            None => "nothing was saved before it, so begin another session".to_owned(),
        };
        let public = format!("{why}; {advice}");
        let private = match &snapshot.error {
            Some(error) => format!("{public} (it failed with: {})", error.message),
            None => public.clone(),
        };
        let refusal = Error::failed_precondition(private).with_public_message(public);
        Ok(match before {
            Some(before) => refusal.with_details(json!({ "resumableSnapshotId": before.snapshot_id })),
            None => refusal,
        })
    }

    /// Returns the nearest ancestor of a snapshot from which the conversation can be resumed.
    async fn resumable_before(&self, snapshot: &Snapshot) -> Result<Option<Snapshot>> {
        let mut seen = HashSet::from([snapshot.snapshot_id.clone()]);
        let mut parent = snapshot.parent_id.clone();
        while let Some(id) = parent {
            if !seen.insert(id.clone()) {
                return Err(Error::failed_precondition(format!(
                    "the ancestors of snapshot '{id}' form a circle"
                )));
            }
            let Some(ancestor) = read(self.tenant.get(&id, Detail::Whole).await)? else {
                return Ok(None);
            };
            if self.definition.failed_turns.admit(&ancestor) {
                return Ok(Some(ancestor));
            }
            parent = ancestor.parent_id;
        }
        Ok(None)
    }

    /// Returns whether the session's latest snapshot is no longer this one.
    async fn has_moved(&self, session_id: &SessionId, latest: Option<&Snapshot>) -> Result<bool> {
        let now = self.latest(session_id, Detail::Metadata).await?;
        let id = |snapshot: &Snapshot| snapshot.snapshot_id.clone();
        Ok(now.as_ref().map(id) != latest.map(id))
    }
}

fn resumed(session_id: SessionId, snapshot: Option<Snapshot>, cursor: Box<InvocationCursor>) -> Start {
    let is_new = snapshot.is_none();
    let state = snapshot.and_then(|snapshot| snapshot.state).unwrap_or_default();
    Start {
        session_id,
        state,
        cursor: Some(cursor),
        is_new,
    }
}

fn read<T>(answer: Result<T>) -> Result<T> {
    answer.map_err(|error| error.context("the session could not be loaded"))
}

/// Checks that the store returned a snapshot of the requested session.
fn check_answer(snapshot: &Snapshot, session_id: &SessionId) -> Result<()> {
    if snapshot.session_id.as_ref() == Some(session_id) {
        return Ok(());
    }
    Err(Error::internal(format!(
        "the store violates its contract: asked for session '{session_id}', it answered with snapshot '{}' of another",
        snapshot.snapshot_id
    )))
}
