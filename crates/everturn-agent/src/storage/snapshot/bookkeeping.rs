//! The framework's own notes in a snapshot.

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::{JsonObject, UsageTotal};
use everturn_core::{Error, Result};
use everturn_macros::wire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{BackgroundRun, Lease, OpenTurn, Rewind, Snapshot};
use crate::{AgentInput, SnapshotId};

/// The framework's own notes in a snapshot: the usage of the conversation, the background run behind the
/// snapshot, the turn in whose middle it was taken, an unfinished rewind, and which calls the last turns
/// answered.
///
/// A store keeps them like every other field, under their own keys, and interprets none of them. Clients see
/// only the usage.
#[wire]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Bookkeeping {
    usage: Option<NotedUsage>,
    /// The first snapshot of the branch that this one is counted with, in a session with a limit that has
    /// branches.
    counted_with: Option<Noted<SnapshotId>>,
    background_run: Option<Noted<BackgroundRun>>,
    open_turn: Option<Noted<OpenTurn>>,
    unfinished_rewind: Option<Noted<Rewind>>,
    /// The marks of the last calls of the branch, newest first, separated by spaces.
    calls: Option<Box<str>>,
    /// Only in a session's head, and in a snapshot that follows one.
    listing: Option<Noted<Listing>>,
    /// The inputs that a background run has left, in a snapshot that is shown to a client; never stored.
    #[serde(skip)]
    left: Option<Box<InputsLeft>>,
}

/// The relation of a row to the snapshots that clients see. A turn that the policy takes no snapshot of is
/// durable as a row too: the session's head, from which the next turn continues.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Listing {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    head: bool,
    /// The nearest ancestor that is a snapshot; `None` if there is none.
    parent: Option<SnapshotId>,
}

/// Boxed, because few snapshots have any.
#[derive(Debug, Clone, PartialEq)]
struct InputsLeft(Vec<AgentInput>);

impl Bookkeeping {
    /// Returns whether there are no notes other than the usage, its account, and the answered calls.
    pub fn is_empty(&self) -> bool {
        self.background_run.is_none() && self.open_turn.is_none() && self.unfinished_rewind.is_none()
    }

    /// Returns the notes that are about the conversation, which its copies have too.
    pub(crate) fn of_conversation(self) -> Self {
        Self {
            usage: self.usage,
            listing: self.listing,
            ..Self::default()
        }
    }

    /// Returns the notes that count in a snapshot from a file: none that a worker acts on.
    pub(crate) fn of_file(self) -> Self {
        Self {
            calls: self.calls.clone(),
            ..self.of_conversation()
        }
    }
}

/// The usage of a conversation, or JSON in its place that this version cannot read. Either is written back
/// unchanged.
///
/// It is shared, because a snapshot is cloned several times on its way into a store.
#[derive(Debug, Clone, PartialEq)]
enum NotedUsage {
    Total(Arc<UsageTotal>),
    Other(Arc<Value>),
}

impl NotedUsage {
    fn read(&self) -> Option<UsageTotal> {
        match self {
            Self::Total(total) => Some(**total),
            Self::Other(value) => UsageTotal::deserialize(&**value).ok(),
        }
    }
}

impl From<UsageTotal> for NotedUsage {
    fn from(mut total: UsageTotal) -> Self {
        // As exact as in JSON, so that a snapshot is equal to what a store reads back.
        for time in [&mut total.model_time, &mut total.tool_time, &mut total.turn_time] {
            *time = Duration::from_nanos_u128(time.as_micros() * 1_000);
        }
        Self::Total(Arc::new(total))
    }
}

impl Serialize for NotedUsage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Total(total) => total.serialize(serializer),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NotedUsage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            #[serde(flatten)]
            total: UsageTotal,
            #[serde(flatten)]
            of_other_versions: JsonObject,
        }

        let value = Value::deserialize(deserializer)?;
        Ok(match Fields::deserialize(&value) {
            Ok(fields) if fields.of_other_versions.is_empty() => Self::Total(Arc::new(fields.total)),
            _ => Self::Other(Arc::new(value)),
        })
    }
}

/// A note, or JSON in its place that this version cannot read. Either is written back unchanged.
#[derive(Debug, Clone, PartialEq)]
enum Noted<T> {
    Readable(Box<T>),
    Unreadable { value: Box<Value>, fault: Box<str> },
}

impl<T> From<T> for Noted<T> {
    fn from(note: T) -> Self {
        Self::Readable(Box::new(note))
    }
}

impl<T: Serialize> Serialize for Noted<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Readable(note) => note.serialize(serializer),
            Self::Unreadable { value, .. } => value.serialize(serializer),
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Noted<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(match T::deserialize(&value) {
            Ok(note) => Self::from(note),
            Err(error) => Self::Unreadable {
                fault: error.to_string().into(),
                value: Box::new(value),
            },
        })
    }
}

/// How many calls of a branch are recognised when they are repeated.
const CALLS: usize = 4;

impl Snapshot {
    /// Returns the marks of the last calls of the branch.
    pub(crate) fn calls(&self) -> Option<&str> {
        self.bookkeeping.calls.as_deref()
    }

    /// Returns whether the snapshot's turn, or one of those before it, answered this call.
    pub(crate) fn answers_call(&self, mark: &str) -> bool {
        self.calls()
            .is_some_and(|calls| calls.split(' ').any(|call| call == mark))
    }

    /// Records the mark of the call that the snapshot's turn answers, and those of the turns before it.
    pub(crate) fn set_calls(&mut self, own: Option<&str>, before: Option<&str>) {
        let before = before.into_iter().flat_map(|before| before.split(' '));
        let marks: Vec<&str> = own.into_iter().chain(before).take(CALLS).collect();
        self.bookkeeping.calls = (!marks.is_empty()).then(|| marks.join(" ").into());
    }

    /// Returns what the models and tools of the conversation have used up to this snapshot, from its first
    /// turn on. The latest snapshot of a session has the sum of its branch.
    pub fn usage(&self) -> Option<UsageTotal> {
        self.bookkeeping.usage.as_ref()?.read()
    }

    pub(crate) fn set_usage(&mut self, usage: Option<UsageTotal>) {
        self.bookkeeping.usage = usage.map(NotedUsage::from);
    }

    /// Returns the first snapshot of the branch that the snapshot is counted with; `None` for the session's
    /// first branch.
    pub(crate) fn counted_with(&self) -> Option<&SnapshotId> {
        match self.bookkeeping.counted_with.as_ref()? {
            Noted::Readable(branch) => Some(branch),
            Noted::Unreadable { .. } => None,
        }
    }

    pub(crate) fn set_counted_with(&mut self, branch: Option<SnapshotId>) {
        self.bookkeeping.counted_with = branch.map(Noted::from);
    }

    /// Returns the background run behind the snapshot; `None` if no worker of this framework began one.
    ///
    /// # Errors
    /// `DATA_LOSS` if the note cannot be read.
    pub(crate) fn background_run(&self) -> Result<Option<&BackgroundRun>> {
        self.read("backgroundRun", self.bookkeeping.background_run.as_ref())
    }

    /// Returns the lease on the background run behind the snapshot.
    ///
    /// # Errors
    /// As [`Snapshot::background_run`].
    pub(crate) fn lease(&self) -> Result<Option<Lease>> {
        Ok(self.background_run()?.map(|run| run.lease))
    }

    /// Returns the turn in whose middle the snapshot was taken.
    ///
    /// # Errors
    /// `DATA_LOSS` if the note cannot be read.
    pub(crate) fn open_turn(&self) -> Result<Option<&OpenTurn>> {
        self.read("openTurn", self.bookkeeping.open_turn.as_ref())
    }

    /// Returns the unfinished rewind.
    ///
    /// # Errors
    /// `DATA_LOSS` if the note cannot be read.
    pub(crate) fn unfinished_rewind(&self) -> Result<Option<&Rewind>> {
        self.read("unfinishedRewind", self.bookkeeping.unfinished_rewind.as_ref())
    }

    /// Returns whether a rewind is noted as unfinished, readable or not.
    pub(crate) fn has_unfinished_rewind(&self) -> bool {
        self.bookkeeping.unfinished_rewind.is_some()
    }

    /// Returns whether this is a session's head that is no snapshot: it is not listed, and only resumed.
    pub fn is_head(&self) -> bool {
        self.listing().is_some_and(|listing| listing.head)
    }

    /// Returns the snapshot's id or, for a head, that of the snapshot before it.
    pub(crate) fn listed(&self) -> Option<&SnapshotId> {
        if self.is_head() {
            self.listed_parent()
        } else {
            Some(&self.snapshot_id)
        }
    }

    /// Returns the snapshot that this one follows, past the heads in between.
    pub(crate) fn listed_parent(&self) -> Option<&SnapshotId> {
        match self.listing() {
            Some(listing) => listing.parent.as_ref(),
            None => self.parent_id.as_ref(),
        }
    }

    fn listing(&self) -> Option<&Listing> {
        match self.bookkeeping.listing.as_ref()? {
            Noted::Readable(listing) => Some(listing),
            Noted::Unreadable { .. } => None,
        }
    }

    /// Notes that this is a head, or that it follows one, and the nearest snapshot before it.
    pub(crate) fn set_listing(&mut self, head: bool, parent: Option<SnapshotId>) {
        let is_ordinary = !head && parent == self.parent_id;
        self.bookkeeping.listing = (!is_ordinary).then(|| Listing { head, parent }.into());
    }

    /// Renames the snapshot that this one follows, past the heads in between, in a copy of the session.
    pub(crate) fn rename_listed_parent(&mut self, rename: impl FnOnce(&SnapshotId) -> SnapshotId) {
        if let Some(Noted::Readable(listing)) = &mut self.bookkeeping.listing {
            listing.parent = listing.parent.as_ref().map(rename);
        }
    }

    pub(crate) fn set_background_run(&mut self, run: BackgroundRun) {
        self.bookkeeping.background_run = Some(run.into());
    }

    pub(crate) fn set_open_turn(&mut self, turn: OpenTurn) {
        self.bookkeeping.open_turn = Some(turn.into());
    }

    pub(crate) fn set_unfinished_rewind(&mut self, rewind: Rewind) {
        self.bookkeeping.unfinished_rewind = Some(rewind.into());
    }

    pub(crate) fn clear_unfinished_rewind(&mut self) {
        self.bookkeeping.unfinished_rewind = None;
    }

    /// Removes the background run, and the state that was kept for a takeover.
    pub(crate) fn clear_background_run(&mut self) {
        if self.bookkeeping.background_run.take().is_some() {
            self.state = None;
        }
    }

    /// Removes all notes of the framework but what the conversation has used.
    pub(crate) fn clear_bookkeeping(&mut self) {
        let left = match &mut self.bookkeeping.background_run {
            Some(Noted::Readable(run)) => Some(Box::new(InputsLeft(std::mem::take(&mut run.inputs)))),
            _ => None,
        };
        self.clear_background_run();
        self.bookkeeping = Bookkeeping {
            left,
            listing: None,
            ..std::mem::take(&mut self.bookkeeping).of_conversation()
        };
    }

    /// Returns the inputs that the background run behind the snapshot has not finished, in a snapshot that
    /// was read by the actions of an agent.
    pub fn inputs_left(&self) -> &[AgentInput] {
        self.bookkeeping.left.as_ref().map_or(&[], |left| &left.0)
    }

    /// Reads a note. An unreadable note is not a missing one: treating it as missing would let a worker write
    /// to a run that another version of the framework has leased to another worker.
    fn read<'a, T>(&self, key: &str, noted: Option<&'a Noted<T>>) -> Result<Option<&'a T>> {
        match noted {
            None => Ok(None),
            Some(Noted::Readable(note)) => Ok(Some(note)),
            Some(Noted::Unreadable { fault, .. }) => Err(Error::data_loss(format!(
                "snapshot '{}' of session '{}' holds a '{key}' that cannot be read ({fault}): it is damaged, or was \
                 written by another version of the framework",
                self.snapshot_id,
                self.session_id.as_ref().map_or("", crate::SessionId::as_str),
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use everturn_core::Status;
    use serde_json::json;

    use super::*;

    fn stored(key: &str, note: &Value) -> Value {
        json!({
            "snapshotId": "run", "sessionId": "dinner", "createdAt": "2026-01-02T03:04:05Z", "status": "pending",
            key: note, "shelf": "top",
        })
    }

    #[test]
    fn notes_are_read_and_written_under_their_keys_with_fields_of_other_versions() {
        let run = json!({
            "agent": "chef", "worker": "00000000-0000-0000-0000-000000000001", "epoch": 2, "attempts": 3, "turns": 4,
            "inputs": [{"message": {"role": "user", "content": [{"text": "soup"}]}}],
            "turn": {"journal": "j", "records": 5, "novelty": 1}, "context": {"user": "ann"}, "tenant": "acme",
            "novelty": 2,
        });
        let turn = json!({"journal": "j", "records": 5, "novelty": 3});
        let rewind = json!({
            "keep": "a", "fork": {"createdAt": "2026-01-02T03:04:05Z", "snapshotId": "b"}, "novelty": 4,
        });
        for (key, note) in [
            ("backgroundRun", run),
            ("openTurn", turn),
            ("unfinishedRewind", rewind),
        ] {
            let stored = stored(key, &note);

            let snapshot: Snapshot = serde_json::from_value(stored.clone()).unwrap();

            assert_eq!(serde_json::to_value(&snapshot).unwrap(), stored);
            assert_eq!(snapshot.extra.keys().collect::<Vec<_>>(), ["shelf"]);
            assert_eq!(
                snapshot.background_run().unwrap().is_some(),
                key == "backgroundRun"
            );
            assert_eq!(snapshot.open_turn().unwrap().is_some(), key == "openTurn");
            assert_eq!(
                snapshot.unfinished_rewind().unwrap().is_some(),
                key == "unfinishedRewind"
            );
        }
    }

    #[test]
    fn the_usage_is_read_written_back_and_shown_to_clients() {
        let known = json!({"inputTokens": 7, "modelCalls": 1, "modelMs": 1.5});
        let novel = json!({"inputTokens": 7, "novelty": {"x": 1}});
        for (usage, tokens) in [(known, Some(7)), (novel, Some(7)), (json!("a lot"), None)] {
            let stored = stored("usage", &usage);

            let mut snapshot: Snapshot = serde_json::from_value(stored.clone()).unwrap();

            assert_eq!(serde_json::to_value(&snapshot).unwrap(), stored);
            assert_eq!(snapshot.usage().map(|usage| usage.input_tokens), tokens);
            snapshot.clear_bookkeeping();
            assert_eq!(serde_json::to_value(&snapshot).unwrap()["usage"], usage);
        }
    }

    #[test]
    fn a_snapshot_with_a_usage_is_equal_to_what_is_read_back() {
        let mut snapshot: Snapshot = serde_json::from_value(stored("usage", &json!({}))).unwrap();
        let mut usage = UsageTotal::default();
        usage.model_time = Duration::from_nanos(1_234_567);
        snapshot.set_usage(Some(usage));

        let read: Snapshot = serde_json::from_str(&serde_json::to_string(&snapshot).unwrap()).unwrap();

        assert_eq!(read, snapshot);
    }

    #[test]
    fn a_note_that_cannot_be_read_is_an_error_that_names_the_snapshot_and_is_written_back() {
        for key in ["backgroundRun", "openTurn", "unfinishedRewind"] {
            let stored = stored(key, &json!({"format": 2}));

            let snapshot: Snapshot = serde_json::from_value(stored.clone()).unwrap();
            let error = match key {
                "backgroundRun" => snapshot.background_run().map(drop),
                "openTurn" => snapshot.open_turn().map(drop),
                _ => snapshot.unfinished_rewind().map(drop),
            }
            .unwrap_err();

            assert_eq!(error.status(), Status::DataLoss);
            for word in ["'run'", "'dinner'", key] {
                assert!(error.message().contains(word), "{error}");
            }
            assert_eq!(serde_json::to_value(&snapshot).unwrap(), stored);
        }
    }

    #[test]
    fn clearing_a_background_run_removes_the_state_that_was_kept_for_its_next_worker() {
        let mut snapshot: Snapshot = serde_json::from_value(stored("backgroundRun", &json!({}))).unwrap();
        snapshot.state = Some(crate::SessionState::default());

        snapshot.clear_bookkeeping();

        assert!(snapshot.state.is_none() && snapshot.bookkeeping.is_empty());
    }
}
