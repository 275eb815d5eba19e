//! The journal of one turn, as the generations in the turn use it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everturn_ai::metadata::is_outcome_unknown;
use everturn_ai::{
    Approval, EffectId, EffectJournal, Message, ModelEffect, ModelResponse, Repeat, Replay, ToolDefinition,
    ToolEffect, ToolOutcome, ToolRecord, ToolRequest, async_trait, reason, with_journal,
};
use everturn_core::{Context, Error, Result, Status};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::approved::{ApprovedCall, Made};
use super::cut_short::CutShortCalls;
use super::entry::Entry;
use super::identity::{AskedModel, call_fingerprint, call_of, effect_fingerprint};
use super::known_effects::{KnownEffects, Met};
use super::sweep::Retention;
use super::writer::{JournalLocation, Writer};
use crate::session::{Change, Changes};
use crate::storage::snapshot::OpenTurn;
use crate::storage::unfinished_call::settles_itself;
use crate::store::{BegunCall, JournalKey, Precondition, UnfinishedTurn};
use crate::{SessionHandle, SessionId};

/// One turn's journal. The store is first read when the turn's first effect is due.
pub(crate) struct TurnJournal {
    writer: Arc<Writer>,
    session: SessionHandle,
    retention: Arc<Retention>,
    taken_up: OnceCell<()>,
    live: Mutex<Live>,
    /// The number of records when the turn last reached a point from which it can be continued.
    marked: AtomicU64,
    /// The tasks that show that the turn is in progress.
    renewals: Mutex<JoinSet<()>>,
}

struct Live {
    known: KnownEffects,
    /// The calls that this attempt makes.
    calls: HashMap<EffectId, Call>,
    /// Whether this attempt recorded the beginning of a call that must not be made twice.
    has_begun: bool,
    /// The status that the last tool failed with.
    failure: Option<Status>,
    /// The session's other unfinished turns, as they were when this attempt read its journal.
    elsewhere: Vec<UnfinishedTurn>,
    adopted: Vec<Adopted>,
}

/// The journal of another turn of the session, which died, and the calls that this turn takes over from it.
struct Adopted {
    writer: Arc<Writer>,
    calls: Vec<EffectId>,
}

/// What to list of a call that begins: its name and, if it is a tool's, the request.
type Beginning = (String, Option<ToolRequest>);

/// A call in progress.
struct Call {
    /// The digest of the tool and its input.
    what: String,
    begins: Option<Beginning>,
    /// The reply that requests it.
    asked_by: Option<EffectId>,
    replay: Replay,
    has_begun: bool,
    /// Whether an earlier attempt at this turn made the call.
    began_before: bool,
    changes: Arc<Changes>,
    /// The record that every resumption finds, if the call was approved.
    approved: Option<Arc<ApprovedCall>>,
}

impl TurnJournal {
    pub(crate) fn new(location: JournalLocation, session: SessionHandle, retention: Arc<Retention>) -> Self {
        let live = Live {
            known: KnownEffects::new(location.turn.clone()),
            calls: HashMap::new(),
            has_begun: false,
            failure: None,
            elsewhere: Vec::new(),
            adopted: Vec::new(),
        };
        let marked = AtomicU64::new(location.past);
        Self {
            writer: Arc::new(Writer::new(location)),
            session,
            retention,
            taken_up: OnceCell::new(),
            live: Mutex::new(live),
            marked,
            renewals: Mutex::default(),
        }
    }

    /// Makes the journal reachable from the turn's context.
    pub(crate) fn enter_turn(self: &Arc<Self>, context: Context) -> Context {
        let context = context.with_extension(Arc::clone(self));
        with_journal(context, Arc::clone(self) as Arc<dyn EffectJournal>)
    }

    /// Returns the journal of the turn that this context belongs to, if it is a turn of that session.
    pub(crate) fn of(context: &Context, session: &SessionId) -> Option<Arc<Self>> {
        let journal = context.extension::<Self>()?;
        (journal.session.session_id() == session).then_some(journal)
    }

    /// Returns the journal if it has records.
    fn written(&self) -> Option<JournalKey> {
        self.writer.has_written().then(|| self.writer.key())
    }

    /// Returns the journal to drop when the turn ends, if there is one. It is kept if another turn left a
    /// call there whose outcome is unknown and which this turn could not take over.
    pub(crate) fn to_drop(&self) -> Option<JournalKey> {
        self.written()
            .filter(|_| !self.live().known.cut_short.holds_unknown())
    }

    /// Returns the work that notes, once the turn is committed, which calls it took over from other turns.
    pub(crate) fn settled(&self) -> Option<BoxFuture<'static, ()>> {
        let mut live = self.live();
        if live.adopted.is_empty() {
            return None;
        }
        let adopted = std::mem::take(&mut live.adopted);
        let notes = adopted.into_iter().map(|Adopted { writer, mut calls }| {
            calls.retain(|call| !live.known.cut_short.holds(call));
            async move {
                if !calls.is_empty() {
                    writer.settle(calls).await;
                }
            }
        });
        Some(join_all(notes.collect::<Vec<_>>()).map(drop).boxed())
    }

    /// Stops showing that the turn is in progress: its code has ended.
    pub(crate) fn rest(&self) {
        self.renewals.lock().abort_all();
    }

    fn renew(&self, writer: &Arc<Writer>) {
        let (writer, interval) = (Arc::clone(writer), self.retention.heartbeat.interval);
        if let Ok(runtime) = Handle::try_current() {
            let renewal = async move { writer.renew(interval).await };
            self.renewals.lock().spawn_on(renewal, &runtime);
        }
    }

    /// Returns the turn as it began.
    pub(crate) fn beginning(&self) -> OpenTurn {
        let location = self.writer.location();
        OpenTurn::new(location.key.turn(), location.past).named(location.turn.turn())
    }

    /// Notes that the turn can be continued from its state at this moment, which holds the effects that are
    /// recorded. Returns `false` if it does not hold all of them, because the turn still replays an earlier
    /// attempt.
    pub(crate) fn mark(&self) -> bool {
        // Before the first effect nothing was read: the turn stands where it began.
        if !self.taken_up.initialized() {
            return true;
        }
        if !self.live().known.is_replayed() {
            return false;
        }
        let records = self.writer.records().max(self.writer.location().past);
        self.marked.store(records, Ordering::Release);
        true
    }

    /// Returns the turn as it is left if it fails: with the records up to the last mark.
    pub(crate) fn left(&self) -> OpenTurn {
        let location = self.writer.location();
        OpenTurn::new(location.key.turn(), self.marked.load(Ordering::Acquire)).named(location.turn.turn())
    }

    /// Returns the turn with its records so far, if there are any.
    pub(crate) fn so_far(&self) -> Option<OpenTurn> {
        let key = self.written()?;
        let turn = self.writer.location().turn.turn();
        Some(OpenTurn::new(key.turn(), self.writer.records()).named(turn))
    }

    /// The invocation wrote a snapshot while the turn ran; the next one is written under this condition.
    pub(crate) fn moved_on(&self, precondition: Precondition) {
        for adopted in &self.live().adopted {
            adopted.writer.moved_on(precondition.clone());
        }
        self.writer.moved_on(precondition);
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock()
    }

    async fn take_up(&self) -> Result<()> {
        let read = async {
            let ([past, since], elsewhere) = self.writer.take_up().await?;
            let mut live = self.live();
            live.elsewhere = elsewhere;
            for (turn, entry) in past {
                match turn {
                    None => live.known.learn_past(entry),
                    Some(turn) => live.known.learn_of_another(entry, &turn, true),
                }
            }
            for (turn, entry) in since {
                match turn {
                    None => live.known.learn(entry),
                    Some(turn) => live.known.learn_of_another(entry, &turn, false),
                }
            }
            Ok(())
        };
        // Once per attempt, however many effects begin at the same time; a failed reading is tried again by
        // the next.
        self.taken_up.get_or_try_init(|| read).await.copied()
    }

    /// Takes over the calls with an unknown outcome of turns that began elsewhere in the session and died, as
    /// far as they are of these tools. A turn that has added to its journal of late is in progress, and a
    /// pending run is taken over by itself: both are left alone.
    async fn adopt(&self, tools: &[ToolDefinition]) -> Result<()> {
        let silent_since = self.retention.silent_since();
        let is_offered = |(_, begun): &(EffectId, BegunCall)| {
            let request = begun.request.as_ref();
            request.is_some_and(|request| tools.iter().any(|tool| tool.name == request.name))
        };
        let takes = |turn: &mut UnfinishedTurn| {
            turn.added_at < silent_since && turn.unknown_outcomes().iter().any(is_offered)
        };
        // Out of the list, because generations of a turn may run at the same time.
        let elsewhere: Vec<_> = self.live().elsewhere.extract_if(.., takes).collect();
        for turn in elsewhere {
            let store = self.writer.location().session.tenant().store();
            let mut calls = Vec::new();
            for (id, begun) in turn.unknown_outcomes().into_iter().filter(is_offered) {
                if !settles_itself(&**store, &turn.scope, &begun.snapshot).await? {
                    calls.push(id);
                }
            }
            if calls.is_empty() {
                continue;
            }
            let writer = Arc::new(self.writer.elsewhere(turn.key.clone()));
            let Some(entries) = writer.claim(&turn.records).await? else {
                continue;
            };
            let mut known = CutShortCalls::default();
            for (by, entry) in entries {
                known.learn(entry, by.as_ref().unwrap_or(&turn.key));
            }
            self.renew(&writer);
            let mut live = self.live();
            live.known.cut_short.adopt(known, &calls);
            live.adopted.push(Adopted { writer, calls });
        }
        Ok(())
    }

    async fn append(&self, entry: Entry) -> Result<()> {
        // Old journals are swept by turns that write, so that turns without tools cost nothing.
        let is_first = !self.writer.has_written();
        self.writer.append(entry).await?;
        if is_first {
            self.retention.sweep(self.writer.location().journal()?).await;
        }
        Ok(())
    }

    /// Repeats the changes of the session by an effect that is not repeated.
    fn change_again(&self, changes: &[Change]) -> Result<()> {
        self.session
            .change_again(changes)
            .map_err(|error| error.context("a recorded change of the session no longer applies"))
    }

    /// Returns the identity of an effect of the turn's own code, or of a tool's, and its record.
    pub(crate) async fn calling_own(
        &self,
        name: &str,
        replay: Replay,
        is_of_tool: bool,
    ) -> Result<(EffectId, ToolRecord)> {
        self.take_up().await?;
        let what = effect_fingerprint(name);
        // An effect of a tool is part of the tool's call.
        let begins = (!is_of_tool).then(|| (name.to_owned(), None));
        self.meet((what.clone(), begins), None, replay, |known| {
            let met = known.meet_call(&what, &what, replay);
            if !is_of_tool || met.record != ToolRecord::Nothing {
                return met;
            }
            match known.cut_short.take_ended(&what) {
                Some((outcome, changes)) => Met {
                    record: ToolRecord::Ended(outcome),
                    changes,
                    ..met
                },
                None => met,
            }
        })
    }

    fn meet(
        &self,
        (what, begins): (String, Option<Beginning>),
        asked_by: Option<EffectId>,
        replay: Replay,
        look_up: impl FnOnce(&mut KnownEffects) -> Met,
    ) -> Result<(EffectId, ToolRecord)> {
        let Met { id, record, changes } = {
            let mut live = self.live();
            let met = look_up(&mut live.known);
            let started = Call {
                what,
                begins,
                asked_by,
                replay,
                has_begun: false,
                began_before: false,
                changes: Changes::of(self.session.session_id().clone()),
                approved: None,
            };
            live.calls.insert(met.id.clone(), started);
            met
        };
        // Outside the lock: the session takes its own locks.
        self.change_again(&changes)?;
        Ok((id, record))
    }

    /// Returns the record of an approved call that every resumption of the conversation finds. `own` is the
    /// record of this turn, or of another that was cut short.
    async fn approved(
        &self,
        id: &EffectId,
        effect: &ToolEffect<'_>,
        approval: &Approval,
        (own, cut_short): (&ToolRecord, Option<&JournalKey>),
    ) -> Result<ToolRecord> {
        let location = self.writer.location();
        let (call, made) = ApprovedCall::open(location, approval, self.writer.attempt()).await?;
        let is_refused = approval.answers.last().is_some_and(|answer| answer.refuses);
        // An equal turn may have been committed before, and its journal dropped.
        let is_own = |turn: &str| {
            let began = cut_short.unwrap_or(&location.turn);
            *own == ToolRecord::Started && turn == began.turn()
        };
        let (record, began_before) = match made {
            Made::Never => (ToolRecord::Nothing, false),
            Made::Began { turn } if is_own(&turn) => (ToolRecord::Started, true),
            Made::Began { .. } => (ToolRecord::StartedElsewhere, false),
            Made::Ended {
                answer,
                turn,
                outcome,
                changes,
            } => {
                // A refusal comes too late.
                let is_same = is_refused || answer == call.answer();
                if is_own(&turn) || (is_same && effect.repeat == Repeat::Recorded) {
                    self.change_again(&changes)?;
                    (ToolRecord::Ended(*outcome), false)
                } else {
                    (ToolRecord::AlreadyMade, false)
                }
            }
        };
        // A refused call has no effect that another resumption must not repeat, so it is not recorded there.
        if let Some(under_way) = self.live().calls.get_mut(id).filter(|_| !is_refused) {
            under_way.began_before = began_before;
            under_way.approved = Some(Arc::new(call));
        }
        Ok(record)
    }

    /// Ends the journal of a turn that failed by itself.
    ///
    /// If a retry may help, the journal stays as it is. If the turn came to a dead end, a replay would only
    /// lead there again: then only the calls that must not be repeated are kept.
    pub(crate) async fn turn_failed(&self, error: &Error) {
        if !self.writer.has_written() || self.writer.is_lost().await || self.may_help(error) {
            return;
        }
        let must_remember = {
            let live = self.live();
            live.has_begun || live.known.holds_calls_not_to_repeat()
        };
        let put_away = async {
            // A worker that has lost the turn is refused here, before it drops the records of the new worker.
            self.writer.append(Entry::Abandoned).await?;
            if must_remember {
                return Ok(());
            }
            self.writer.location().clear().await
        };
        if let Err(error) = put_away.await {
            tracing::warn!(%error, "the journal of a failed turn could not be put away");
        }
    }

    /// Returns whether a retry may come further than this attempt.
    fn may_help(&self, error: &Error) -> bool {
        if error.is(reason::MAX_ROUNDS_EXCEEDED) || error.is(reason::REPEATED_CALL) {
            return false;
        }
        let of_tool = self.live().failure;
        let (status, by_tool) = if error.is(reason::TOOL_FAILED) {
            // A strict generation reports every failed tool as `INTERNAL`; the tool's own status determines
            // whether a retry may help.
            (of_tool.unwrap_or(error.status()), true)
        } else {
            // The error of a tool keeps its own reason.
            (error.status(), of_tool == Some(error.status()))
        };
        match status {
            Status::Unavailable
            | Status::DeadlineExceeded
            | Status::ResourceExhausted
            | Status::Cancelled
            | Status::Aborted => true,
            // A tool that fails on the model's input fails on it again.
            Status::Internal | Status::Unknown => !by_tool,
            _ => false,
        }
    }
}

/// Returns the end of an approved call that began; `None` if it is unknown.
fn end_of_approved(
    id: &EffectId,
    answer: &str,
    outcome: &ToolOutcome,
    changes: Vec<Change>,
) -> Option<Entry> {
    match outcome {
        ToolOutcome::Finished(_) => Some(Entry::Ended {
            effect: id.clone(),
            call: answer.to_owned(),
            reply: None,
            outcome: Box::new(outcome.clone()),
            changes,
        }),
        ToolOutcome::Interrupted(data) if is_outcome_unknown(data) => None,
        // A call that asks again has done nothing else: another answer may lead further.
        ToolOutcome::Interrupted(_) => Some(Entry::Failed { effect: id.clone() }),
    }
}

#[async_trait]
impl EffectJournal for TurnJournal {
    async fn asking(&self, effect: ModelEffect<'_>) -> Result<(EffectId, Option<ModelResponse>)> {
        self.take_up().await?;
        self.adopt(effect.request.tools()).await?;
        let (id, reply, changes) = self.live().known.meet_model(AskedModel::from(&effect));
        self.change_again(&changes)?;
        let reply = reply.or_else(|| {
            let requests = || -> Vec<_> {
                self.session
                    .messages()
                    .iter()
                    .flat_map(Message::tool_requests)
                    .cloned()
                    .collect()
            };
            self.live().known.cut_short.reply(&id, requests)
        });
        Ok((id, reply))
    }

    async fn replied(&self, id: &EffectId, response: &ModelResponse) -> Result<()> {
        let mut requests = response.message.iter().flat_map(Message::tool_requests);
        // A final reply without tools is committed with the turn's snapshot. It is recorded only after other
        // records, so that their replay reaches the same end.
        if requests.next().is_none() && !self.writer.has_written() {
            return Ok(());
        }
        let response = ModelResponse {
            // The request is known from the conversation and would store it a second time.
            request: None,
            ..response.clone()
        };
        self.append(Entry::Replied {
            effect: id.clone(),
            response: Box::new(response),
        })
        .await
    }

    async fn calling(&self, effect: ToolEffect<'_>) -> Result<(EffectId, ToolRecord)> {
        self.take_up().await?;
        let call = call_of(effect.request);
        let asked_by = effect.asked_by.cloned();
        let begins = || (effect.request.name.clone(), Some(effect.request.clone()));
        let this = (call.clone(), (effect.replay == Replay::Once).then(begins));
        let cut_short = self.live().known.meet_cut_short(effect.asked_by, effect.request);
        if let Some(met) = cut_short {
            return self.meet(this, asked_by, effect.replay, |_| met);
        }
        let Some(approval) = effect.approval else {
            let fingerprint = call_fingerprint(effect.asked_by, effect.position, &call);
            return self.meet(this, asked_by, effect.replay, |known| {
                known.meet_call(&fingerprint, &call, effect.replay)
            });
        };
        let mut cut_short = None;
        let (id, record) = self.meet(this, asked_by, effect.replay, |known| {
            let (met, turn) = known.meet_approved(&approval.id, &call, effect.replay);
            cut_short = turn;
            met
        })?;
        if effect.replay != Replay::Once || matches!(record, ToolRecord::Ended(_)) {
            return Ok((id, record));
        }
        let own = (&record, cut_short.as_ref());
        let record = self.approved(&id, &effect, approval, own).await?;
        Ok((id, record))
    }

    async fn started(&self, id: &EffectId) -> Result<()> {
        let (call, approved, begun, is_first) = {
            let mut live = self.live();
            let Some(call) = live.calls.get_mut(id).filter(|call| call.replay == Replay::Once) else {
                return Ok(());
            };
            // A hook that retries a tool makes the same call again.
            if std::mem::replace(&mut call.has_begun, true) {
                return Ok(());
            }
            let (what, approved, begins) = (call.what.clone(), call.approved.clone(), call.begins.take());
            let begun = begins.map(|(name, request)| {
                Box::new(BegunCall {
                    agent: self.retention.agent.clone(),
                    name,
                    request,
                    began_at: self.retention.clock.now(),
                    snapshot: self.writer.location().guard.reserved.clone(),
                })
            });
            (
                what,
                approved,
                begun,
                !std::mem::replace(&mut live.has_begun, true),
            )
        };
        if is_first {
            self.renew(&self.writer);
        }
        let effect = id.clone();
        self.append(Entry::Started { effect, call, begun }).await?;
        let Some(approved) = approved else {
            return Ok(());
        };
        let (effect, call) = (id.clone(), approved.answer().to_owned());
        let begun = None;
        approved
            .add(self.writer.location(), Entry::Started { effect, call, begun })
            .await
    }

    async fn ended(&self, id: &EffectId, outcome: &ToolOutcome) -> Result<()> {
        let (approved, entry) = {
            let mut live = self.live();
            let Some(call) = live.calls.remove(id) else {
                return Ok(());
            };
            // A call that only asks has no effect, so nothing is recorded; a replay asks again.
            let only_asks = matches!(outcome, ToolOutcome::Interrupted(_)) && !call.has_begun;
            if call.replay == Replay::Pure || only_asks {
                return Ok(());
            }
            let changes = call.changes.made();
            let ended = Entry::Ended {
                effect: id.clone(),
                call: call.what,
                reply: call.asked_by,
                outcome: Box::new(outcome.clone()),
                changes: changes.clone(),
            };
            let approved = call.approved.filter(|_| call.has_begun || call.began_before);
            (approved.map(|approved| (approved, changes)), ended)
        };
        // First, because the turn's own record may be dropped with the turn.
        if let Some((approved, changes)) = approved
            && let Some(end) = end_of_approved(id, approved.answer(), outcome, changes)
        {
            approved.add(self.writer.location(), end).await?;
        }
        self.append(entry).await
    }

    async fn failed(&self, id: &EffectId, error: &Error, had_no_effect: bool) {
        let call = {
            let mut live = self.live();
            live.failure = Some(error.status());
            live.calls.remove(id)
        };
        // Nothing was recorded of a call that has not begun, and a call that was cut short may have taken
        // effect.
        let Some(call) = call.filter(|call| call.has_begun && had_no_effect) else {
            return;
        };
        let failed = Entry::Failed { effect: id.clone() };
        let recorded = async {
            if let Some(approved) = &call.approved {
                approved.add(self.writer.location(), failed.clone()).await?;
            }
            self.append(failed.clone()).await
        };
        if let Err(error) = recorded.await {
            tracing::warn!(%error, "the failure of a call could not be recorded; its outcome counts as unknown");
        }
    }

    fn enter(&self, id: &EffectId, context: Context) -> Context {
        let changes = self.live().calls.get(id).map(|call| Arc::clone(&call.changes));
        match changes {
            Some(changes) => changes.enter(context),
            None => context,
        }
    }
}
