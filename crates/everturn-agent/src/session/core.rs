//! The live state of a session, shared by all code that runs in one invocation, and its changes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::{self, ThreadId};

use everturn_ai::messages::Segment;
use everturn_ai::{History, Message, Messages};
use everturn_core::{Context, Error, Result};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SessionHandle;
use super::typed_write::{is_covered, rewritten};
use crate::patch::JsonPatch;
use crate::policy::transform::{StateTransform, shown_state};
use crate::storage::artifact::put;
use crate::storage::session_state::decode_custom;
use crate::{AgentStreamChunk, Artifact, CustomState, SessionId, SessionState};

/// The name of the part that [`Core::patcher`] guards.
const CUSTOM: &str = "the custom state";

/// The name of the part that [`Core::messages`] guards.
const MESSAGES: &str = "the messages";

/// The channel by which a session reports changes to its client; its methods never wait.
pub(crate) trait Publisher: Send + Sync {
    /// Returns whether there is no listener.
    fn is_silenced(&self) -> bool;

    /// Leaves a chunk for the client.
    fn post(&self, chunk: AgentStreamChunk);

    /// Fails the invocation.
    fn fault(&self, error: Error);
}

/// A session during an invocation.
///
/// Locks are short and never held across an await. `live` alone guards the state, and no user's function runs
/// under it: it may read the session. `patcher` and `messages` are each taken before `live` and span a whole
/// change, so that two changes of one kind do not overlap. For the custom state this includes the patch:
/// patches leave in the order in which the changes happened.
pub(crate) struct Core<S> {
    session_id: SessionId,
    live: Mutex<Live<S>>,
    patcher: ChangeLock<Patcher>,
    messages: ChangeLock<()>,
    publisher: Arc<dyn Publisher>,
    transform: Option<StateTransform>,
    /// The caller's context, for the transform.
    caller: Context,
}

struct Live<S> {
    state: SessionState,
    /// The document `state.custom`, decoded; the default where that is absent. Shared, so that user code that
    /// copies or serializes it runs outside the lock.
    custom: Arc<S>,
    /// `custom` as JSON, once that was needed. Unlike `state.custom` it has the type's defaults and names,
    /// and only the members that the type has; one document where the two are equal.
    typed: Option<Arc<Value>>,
    /// The part of the turn's conversation that is in a snapshot and not yet in `state.messages`.
    ahead: Ahead,
}

/// The conversation in the newest snapshot inside the current turn. The session gets the same messages when
/// the generation is done, and then shares them with the snapshot.
#[derive(Default)]
struct Ahead {
    messages: Option<History>,
    /// Messages, each without and with the id of the snapshot that it ended.
    named: Vec<(Message, Message)>,
}

impl Ahead {
    /// Returns the messages with the ids of the snapshots they ended; those before `known` have theirs.
    fn naming(&self, wanted: Messages, known: usize) -> Messages {
        if self.named.is_empty() {
            return wanted;
        }
        let mut messages = wanted.slice(0..known.min(wanted.len()));
        let named = |message: &Message| {
            let known = self.named.iter().find(|(original, _)| original.is_same(message));
            known.map_or_else(|| message.clone(), |(_, named)| named.clone())
        };
        messages.extend(wanted.slice(messages.len()..wanted.len()).iter().map(named));
        messages
    }
}

impl<S> Live<S> {
    fn new(state: SessionState, custom: S) -> Self {
        Self {
            state,
            custom: Arc::new(custom),
            typed: None,
            ahead: Ahead::default(),
        }
    }
}

/// A session without the type of its custom state.
pub(crate) trait AnySession: Send + Sync {
    fn session_id(&self) -> &SessionId;

    fn state(&self) -> SessionState;

    /// Replaces the state by another one of the same session.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if its custom state is not an `S`.
    fn reload(&self, state: SessionState) -> Result<()>;

    /// Makes the next patch a whole document.
    fn arm_patcher(&self);

    /// Returns the state in the middle of a turn, with a conversation that the session does not have yet.
    fn state_with(&self, conversation: Messages) -> SessionState;

    /// Notes a snapshot inside the current turn: its conversation, without and with the snapshot's id in it.
    fn saved_ahead(&self, conversation: &History, named: &History);

    /// Puts the snapshot's id into the last of the saved messages, unless the session has replaced them.
    fn adopt_named(&self, saved: &History, named: &History);

    /// Returns the custom state as its type writes it, the defaults included.
    fn custom_json(&self) -> Arc<Value>;

    /// Adds artifacts and streams each of them.
    fn add_artifacts(&self, artifacts: Vec<Artifact>);

    /// Makes recorded changes again, in place of the call that made them first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state would no longer be an `S`, `INTERNAL` if a patch does not fit.
    fn change_again(&self, changes: &[Change]) -> Result<()>;

    /// Returns a context in which code finds the session, with the type of its custom state and without.
    fn enter(self: Arc<Self>, context: Context) -> Context;
}

impl<S: CustomState> Core<S> {
    /// Creates the live state of a session.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the custom state is not an `S`.
    pub(crate) fn new(
        session_id: SessionId,
        mut state: SessionState,
        publisher: Arc<dyn Publisher>,
        transform: Option<StateTransform>,
        caller: Context,
    ) -> Result<Self> {
        let custom = custom_of(&session_id, &state)?;
        state.session_id = Some(session_id.clone());
        Ok(Self {
            session_id,
            live: Mutex::new(Live::new(state, custom)),
            patcher: ChangeLock::default(),
            messages: ChangeLock::default(),
            publisher,
            transform,
            caller,
        })
    }

    /// Begins a turn: the next patch is a whole document, and nothing of the turn is in a snapshot yet.
    pub(crate) fn begin_turn(&self) {
        self.arm_patcher();
        self.live.lock().ahead = Ahead::default();
    }

    /// Replaces all messages.
    pub(super) fn set_messages(&self, messages: Messages) {
        let _changing = self.messages.enter(MESSAGES);
        let mut live = self.live.lock();
        live.state.messages = live.adopted(messages);
    }

    /// Changes the messages, all or nothing.
    pub(super) fn update_messages<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        let _changing = self.messages.enter(MESSAGES);
        let mut messages = self.edit(|state| state.messages.clone());
        let answer = change(&mut messages);
        self.edit(|state| state.messages = messages);
        answer
    }

    /// Reads or changes the state under its lock: `access` is never a user's function.
    pub(super) fn edit<T>(&self, access: impl FnOnce(&mut SessionState) -> T) -> T {
        access(&mut self.live.lock().state)
    }

    pub(super) fn custom(&self) -> S {
        let custom = Arc::clone(&self.live.lock().custom);
        S::clone(&custom)
    }

    /// Returns the custom state as it is stored, the default where it was never set.
    fn document(&self) -> Arc<Value> {
        let stored = self.live.lock().state.custom.clone();
        stored.unwrap_or_else(|| self.custom_json())
    }

    /// Changes the custom state, all or nothing, and streams the change. Stored members that the type does
    /// not have stay.
    pub(super) fn update_custom<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        self.write_custom(change, |stored, after| {
            // Most stored states are covered, so the state before the change is rarely needed.
            let stored = stored.filter(|stored| !is_covered(stored, after))?;
            let before = self.custom_json();
            (!Arc::ptr_eq(stored, &before)).then(|| rewritten::<S>(stored, &before, after))
        })
    }

    /// Replaces the whole stored custom state, and streams the change.
    pub(crate) fn replace_custom(&self, custom: S) {
        self.write_custom(|present| *present = custom, |_, _| None);
    }

    /// Changes the custom state. `merged` gets the stored document and the changed state as its type writes
    /// it, and returns the document to store, `None` for the latter.
    fn write_custom<T>(
        &self,
        change: impl FnOnce(&mut S) -> T,
        merged: impl FnOnce(Option<&Arc<Value>>, &Value) -> Option<Value>,
    ) -> T {
        let mut patcher = self.patcher.enter(CUSTOM);
        // A copy: if `change` panics, or its result is not JSON, the live state is untouched.
        let mut custom = self.custom();
        let answer = change(&mut custom);
        match serde_json::to_value(&custom) {
            Ok(typed) => {
                let typed = Arc::new(typed);
                let stored = self.live.lock().state.custom.clone();
                let document = merged(stored.as_ref(), &typed).map_or_else(|| Arc::clone(&typed), Arc::new);
                // A replay repeats the change as a patch, because it does not run the code that made it.
                if let Some(changes) = Changes::current(&self.session_id) {
                    changes.note(Change::Custom(JsonPatch::diff(&self.document(), &document)));
                }
                self.put_custom(&mut patcher, custom, document, Some(typed));
            }
            Err(error) => self
                .publisher
                .fault(Error::from(error).context("the custom state cannot be written as JSON")),
        }
        answer
    }

    fn put_custom(&self, patcher: &mut Patcher, custom: S, document: Arc<Value>, typed: Option<Arc<Value>>) {
        let state = {
            let mut live = self.live.lock();
            live.state.custom = Some(document);
            live.custom = Arc::new(custom);
            live.typed = typed;
            live.state.clone()
        };
        self.publish(patcher, state);
    }

    fn publish(&self, patcher: &mut Patcher, state: SessionState) {
        // The transform is user code, and there is no listener for its result.
        if self.publisher.is_silenced() {
            return;
        }
        match shown_state(
            self.transform.as_ref(),
            state,
            Some(&self.session_id),
            &self.caller,
        ) {
            Ok(shown) => {
                let custom = shown.and_then(|shown| shown.custom).unwrap_or_default();
                if let Some(patch) = patcher.patch_to(custom) {
                    self.publisher.post(AgentStreamChunk::patch(patch));
                }
            }
            Err(error) => self.publisher.fault(error),
        }
    }

    /// Replaces all artifacts without telling the client.
    pub(super) fn set_artifacts(&self, artifacts: Vec<Artifact>) {
        if let Some(changes) = Changes::current(&self.session_id) {
            changes.note(Change::Artifacts(artifacts.clone()));
        }
        self.edit(|state| state.artifacts = Arc::new(artifacts));
    }

    pub(super) fn add_messages(&self, messages: Vec<Message>) {
        if let Some(changes) = Changes::current(&self.session_id) {
            for message in &messages {
                changes.note(Change::Message(message.clone()));
            }
        }
        let _changing = self.messages.enter(MESSAGES);
        self.edit(|state| state.messages.extend(messages));
    }

    fn patch_custom(&self, patch: &JsonPatch) -> Result<()> {
        let mut patcher = self.patcher.enter(CUSTOM);
        // Relative to the live document, so that changes of other calls since then stay.
        let document = patch.apply(&self.document()).map_err(Error::foreign)?;
        let custom = decode_custom(Some(&document))?;
        self.put_custom(&mut patcher, custom, Arc::new(document), None);
        Ok(())
    }
}

impl<S: CustomState> AnySession for Core<S> {
    fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    fn state(&self) -> SessionState {
        self.live.lock().state.clone()
    }

    fn reload(&self, mut state: SessionState) -> Result<()> {
        let custom = custom_of(&self.session_id, &state)?;
        state.session_id = Some(self.session_id.clone());
        // A user's change that is in progress began on the old state and must not overwrite the new one.
        let _changing = (self.patcher.enter(CUSTOM), self.messages.enter(MESSAGES));
        *self.live.lock() = Live::new(state, custom);
        Ok(())
    }

    fn arm_patcher(&self) {
        self.patcher.enter(CUSTOM).arm();
    }

    fn state_with(&self, conversation: Messages) -> SessionState {
        let live = self.live.lock();
        SessionState {
            messages: live.adopted(conversation),
            ..live.state.clone()
        }
    }

    fn saved_ahead(&self, conversation: &History, named: &History) {
        let mut live = self.live.lock();
        live.ahead.messages = Some(named.clone());
        if let (Some(original), Some(named)) = (conversation.last(), named.last())
            && !original.is_same(named)
        {
            live.ahead.named.push((original.clone(), named.clone()));
        }
    }

    fn adopt_named(&self, saved: &History, named: &History) {
        let _changing = self.messages.enter(MESSAGES);
        let mut live = self.live.lock();
        let present = &live.state.messages;
        // Messages that were added since the snapshot are kept after the named one.
        if present.shared_prefix(saved) == saved.len() {
            let mut messages = named.clone();
            messages.extend(present.since(saved.len()).cloned());
            live.state.messages = messages;
        }
    }

    fn custom_json(&self) -> Arc<Value> {
        let (custom, stored) = {
            let live = self.live.lock();
            if let Some(typed) = &live.typed {
                return Arc::clone(typed);
            }
            (Arc::clone(&live.custom), live.state.custom.clone())
        };
        let typed = match (serde_json::to_value(&*custom), stored) {
            (Ok(typed), Some(stored)) if typed == *stored => stored,
            (Ok(typed), _) => Arc::new(typed),
            (Err(_), stored) => stored.unwrap_or_default(),
        };
        let mut live = self.live.lock();
        if Arc::ptr_eq(&live.custom, &custom) {
            live.typed = Some(Arc::clone(&typed));
        }
        typed
    }

    fn add_artifacts(&self, artifacts: Vec<Artifact>) {
        let changes = Changes::current(&self.session_id);
        let mut live = self.live.lock();
        for artifact in artifacts {
            if let Some(changes) = &changes {
                changes.note(Change::Artifact(artifact.clone()));
            }
            put(Arc::make_mut(&mut live.state.artifacts), artifact.clone());
            // Under the lock, so that chunks leave in the order of the changes. Posting never waits.
            self.publisher.post(AgentStreamChunk::artifact(artifact));
        }
    }

    fn change_again(&self, changes: &[Change]) -> Result<()> {
        for change in changes.iter().cloned() {
            match change {
                Change::Custom(patch) => self.patch_custom(&patch)?,
                Change::Artifact(artifact) => self.add_artifacts(vec![artifact]),
                Change::Artifacts(artifacts) => self.set_artifacts(artifacts),
                Change::Message(message) => self.add_messages(vec![message]),
            }
        }
        Ok(())
    }

    fn enter(self: Arc<Self>, context: Context) -> Context {
        context
            .with_extension(Arc::clone(&self))
            .with_extension(Arc::new(SessionHandle::new(self)))
    }
}

impl<S> Live<S> {
    /// Returns a history that holds `wanted` and shares as much as possible with the session and the turn's
    /// snapshots.
    fn adopted(&self, wanted: Messages) -> History {
        let present = &self.state.messages;
        let wanted = self.ahead.naming(wanted, present.len());
        let nearest = self
            .ahead
            .messages
            .as_ref()
            // Sharing with the turn's latest snapshot means that the next one stores only the messages after
            // it.
            .filter(|ahead| shared_prefix(ahead, &wanted) > shared_prefix(present, &wanted));
        adopt(nearest.unwrap_or(present), &wanted)
    }
}

fn custom_of<S: CustomState>(session: &SessionId, state: &SessionState) -> Result<S> {
    decode_custom(state.custom.as_deref())
        .map_err(|error: Error| error.context(format_args!("session '{session}'")))
}

/// Returns a history that holds `wanted` and shares with `current` what the two have in common.
///
/// Its cost is that of the messages added, whatever the length of the conversation.
fn adopt(current: &History, wanted: &Messages) -> History {
    let kept = shared_prefix(current, wanted);
    let mut history = current.truncate_to(kept);
    history.extend(wanted.slice(kept..wanted.len()).iter().cloned());
    history
}

fn shared_prefix(current: &History, wanted: &Messages) -> usize {
    let mut kept = 0;
    for segment in wanted.segments() {
        let (within, len) = match segment {
            Segment::Run(run) => {
                let same = |(index, message): &(usize, &Message)| {
                    current
                        .get(kept + index)
                        // By identity: comparing contents would cost the length of the conversation.
                        .is_some_and(|mine| mine.is_same(message))
                };
                (run.iter().enumerate().take_while(same).count(), run.len())
            }
            Segment::History { history, from } if from == kept => (
                history.shared_prefix(current).saturating_sub(from),
                history.len() - from,
            ),
            // A history that begins elsewhere shares nothing in place. The 1 ends the search.
            Segment::History { .. } => (0, 1),
        };
        kept += within;
        if within < len {
            break;
        }
    }
    kept
}

/// Remembers the document that was sent last. The first patch of every turn replaces the whole document, so a
/// client's view is wrong for one turn at most.
#[derive(Debug, Default)]
pub(super) struct Patcher {
    sent: Option<Arc<Value>>,
}

impl Patcher {
    /// Makes the next patch a whole document.
    pub(super) fn arm(&mut self) {
        self.sent = None;
    }

    /// Returns the patch that turns the client's view into `current`; `None` if the two are equal.
    pub(super) fn patch_to(&mut self, current: Arc<Value>) -> Option<JsonPatch> {
        let patch = match self.sent.as_deref() {
            None => JsonPatch::replace_document(Arc::clone(&current)),
            Some(sent) => JsonPatch::diff(sent, &current),
        };
        self.sent = Some(current);
        (!patch.is_empty()).then_some(patch)
    }
}

/// A lock under which a user's function runs. If that function takes the same lock again, it panics with a
/// message; with a plain mutex the thread would wait for itself.
#[derive(Debug, Default)]
pub(crate) struct ChangeLock<T> {
    value: Mutex<T>,
    holder: Mutex<Option<ThreadId>>,
}

/// Holds a [`ChangeLock`] until it is dropped.
pub(crate) struct ChangeGuard<'a, T> {
    value: MutexGuard<'a, T>,
    holder: &'a Mutex<Option<ThreadId>>,
}

impl<T> ChangeLock<T> {
    /// Waits for the lock; `what` names the guarded value in the message of the panic.
    ///
    /// # Panics
    /// If this thread holds the lock already.
    pub(crate) fn enter(&self, what: &str) -> ChangeGuard<'_, T> {
        let this = Some(thread::current().id());
        assert!(
            *self.holder.lock() != this,
            "{what} cannot be changed from inside a function that is changing {what}: let that function return first"
        );
        let value = self.value.lock();
        *self.holder.lock() = this;
        ChangeGuard {
            value,
            holder: &self.holder,
        }
    }
}

impl<T> Deref for ChangeGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ChangeGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for ChangeGuard<'_, T> {
    fn drop(&mut self) {
        // The holder is removed before the value is unlocked, so that the next holder's name is not
        // overwritten.
        *self.holder.lock() = None;
    }
}

/// One change of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    /// A change of the custom state.
    Custom(JsonPatch),
    /// An artifact that was added or replaced.
    Artifact(Artifact),
    /// The artifacts that replaced all others.
    Artifacts(Vec<Artifact>),
    /// A message that was added.
    Message(Message),
}

/// The changes that one tool call or effect makes; an extension of the context in which it runs.
///
/// Calls that run at the same time have one each, so their changes are separate. Changes made in tasks that
/// are spawned without the context are not seen.
#[derive(Debug)]
pub(crate) struct Changes {
    session: SessionId,
    made: Mutex<Vec<Change>>,
}

impl Changes {
    pub(crate) fn of(session: SessionId) -> Arc<Self> {
        Arc::new(Self {
            session,
            made: Mutex::default(),
        })
    }

    /// Makes changes seen that are made in `context`.
    pub(crate) fn enter(self: &Arc<Self>, context: Context) -> Context {
        context.with_extension(Arc::clone(self))
    }

    /// Returns the changes of the call in which the calling code runs, if they are those of `session`. An
    /// agent that is called from a tool inherits the tool's context but has a separate session.
    pub(super) fn current(session: &SessionId) -> Option<Arc<Self>> {
        Context::current()
            .extension::<Self>()
            .filter(|changes| changes.session == *session)
    }

    pub(super) fn note(&self, change: Change) {
        self.made.lock().push(change);
    }

    /// Returns the changes so far.
    pub(crate) fn made(&self) -> Vec<Change> {
        self.made.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(texts: &[&str]) -> History {
        texts.iter().map(|text| Message::user(*text)).collect()
    }

    #[test]
    fn a_request_around_the_conversation_is_adopted_without_copying_it() {
        let current = history(&["a", "b"]);
        let mut wanted = Messages::from(&current);
        wanted.push("c");

        let adopted = adopt(&current, &wanted);

        assert_eq!(adopted.len(), 3);
        assert_eq!(adopted.shared_prefix(&current), 2);
        assert_eq!(adopted.lineage().id(), current.lineage().id());
    }

    #[test]
    fn a_rewritten_conversation_shares_what_was_kept() {
        let current = history(&["a", "b", "c"]);
        let mut wanted = Messages::from(&current).slice(0..1);
        wanted.push("summary");

        let adopted = adopt(&current, &wanted);

        let texts: Vec<_> = adopted
            .iter()
            .map(|message| message.text().into_owned())
            .collect();
        assert_eq!(texts, ["a", "summary"]);
        assert_eq!(adopted.shared_prefix(&current), 1);
        assert_eq!(current.len(), 3);
    }

    #[test]
    fn messages_taken_out_one_by_one_are_recognised() {
        let current = history(&["a", "b", "c"]);
        let wanted: Messages = current.iter().cloned().collect();

        assert_eq!(shared_prefix(&current, &wanted), 3);
        assert_eq!(shared_prefix(&current, &wanted.slice(1..3)), 0);
    }

    #[test]
    fn the_first_patch_is_the_whole_document_even_if_nothing_changed() {
        let mut patcher = Patcher::default();
        let document = Arc::new(json!({"n": 1}));

        let first = patcher.patch_to(Arc::clone(&document));
        let unchanged = patcher.patch_to(Arc::clone(&document));
        patcher.arm();
        let rearmed = patcher.patch_to(document);

        assert_eq!(first, Some(JsonPatch::replace_document(json!({"n": 1}))));
        assert_eq!(unchanged, None);
        assert_eq!(rearmed, first);
    }
}
