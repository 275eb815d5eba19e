//! Reading a session from one file, and writing its snapshots into the store.

use std::collections::{HashMap, HashSet, VecDeque};

use everturn_ai::history::{awaiting, closing};
use everturn_ai::{History, Message, metadata};
use everturn_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncBufRead;

use super::record::{
    Base, EXPORT_VERSION, End, Entry, FORMAT, Field, Header, Lines, Preamble, Record, unreadable,
};
use super::{Archive, ImportInit, named_session};
use crate::storage::snapshot::Transition;
use crate::store::{Deletion, Detail, Precondition, TIP_MOVED};
use crate::{SessionId, SessionState, Snapshot, SnapshotId, SnapshotStatus};

/// The number of recent snapshots that are remembered, because the next ones probably follow them; older ones
/// are read from the store again.
const RECENT: usize = 8;

/// The options of an import. By default the session keeps its id, which must be free.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "settings alone import nothing"]
pub struct Import {
    session: Option<SessionId>,
    replace: bool,
}

impl Import {
    everturn_core::setters! {
        /// Imports under another session id; snapshots get new ids, so that the original may be in the same
        /// store.
        pub fn into_session(mut self, session: impl Into<SessionId>) { self.session = Some(session.into()) }

        /// Replaces an existing session of that id. It is deleted once the whole file has been read and
        /// checked.
        pub fn replacing(mut self) { self.replace = true }
    }
}

everturn_core::conversions! {
    From<ImportInit> for Import: |init| Self {
        session: init.session_id,
        replace: init.replace,
    };
    From<Import> for ImportInit: |how| Self {
        session_id: how.session,
        replace: how.replace,
    };
}

/// The outcome of an import or a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Imported {
    /// The session's id.
    pub session_id: SessionId,
    /// The number of its snapshots.
    pub snapshots: u64,
}

impl Archive {
    /// Imports a session that [`Archive::export`] wrote.
    ///
    /// Under its own id, all snapshots are restored to the last field. Under another, only the ids are new.
    /// Tool requests that wait for answers are an exception: the file may have been edited, so they are
    /// closed, and the tools ask again. For the same reason a background run does not continue: its snapshot
    /// is `aborted`. If the file has any fault, no snapshot of it remains in the store;
    /// only dropping the call, or a crash, leaves a part.
    ///
    /// Snapshots are read one at a time: memory holds their ids and the latest few. Give a buffered reader,
    /// such as `tokio::io::BufReader`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the line, for a file that is not an export, is from a newer version, was cut
    /// off or is not consistent; `ALREADY_EXISTS` if the session or a snapshot exists; the errors of reading.
    pub async fn import(&self, from: impl AsyncBufRead + Unpin + Send, how: Import) -> Result<Imported> {
        let mut lines = Lines::new(from);
        let header = read_header(&mut lines).await?;
        let renamed = how.session.is_some();
        let session = named_session(how.session.unwrap_or_else(|| header.session_id.clone()))?;
        if how.replace && self.exists(&session).await? {
            return self.replace(lines, &header, session, renamed).await;
        }
        let names = if renamed { Names::replaced() } else { Names::Kept };
        let mut intake = Intake::into_session(self, session.clone(), names).await?;
        let read = self.read_entries(&mut lines, &header, &mut intake).await;
        let snapshots = intake.settle(read).await?;
        Ok(Imported {
            session_id: session,
            snapshots: snapshots.len() as u64,
        })
    }

    /// Imports a session under a temporary id, and replaces the existing one when the import is complete.
    async fn replace<R: AsyncBufRead + Unpin + Send>(
        &self,
        mut lines: Lines<R>,
        header: &Header,
        session: SessionId,
        renamed: bool,
    ) -> Result<Imported> {
        // A file is trusted only when it was read to its end. Until then it is written under a temporary id.
        let beside = SessionId::generate();
        let mut intake = Intake::into_session(self, beside.clone(), Names::replaced()).await?;
        let read = self.read_entries(&mut lines, header, &mut intake).await;
        let arrived = intake.arrived().to_vec();
        let origins = intake.settle(read).await?;

        let moved = async {
            // From here on a failure loses nothing: the error names the session that holds the import.
            self.tenant.delete(&Deletion::Session(session.clone())).await?;
            let names = if renamed { Names::replaced() } else { Names::Kept };
            let mut intake = Intake::into_session(self, session.clone(), names).await?;
            let mut outcome = Ok(());
            for (id, origin) in arrived.iter().zip(&origins) {
                outcome = async {
                    let snapshot = self.stored(id, Detail::Whole).await?;
                    intake.put(origin.restore(snapshot)).await
                }
                .await
                .map(drop);
                if outcome.is_err() {
                    break;
                }
            }
            intake.settle(outcome).await
        };
        moved.await.map_err(|error: Error| {
            error.context(format_args!(
                "what was imported is complete in session '{beside}'"
            ))
        })?;
        self.tenant.delete(&Deletion::Session(beside)).await?;
        Ok(Imported {
            session_id: session,
            snapshots: origins.len() as u64,
        })
    }

    /// Reads and writes all snapshots up to the end; returns the identity of each in the file.
    async fn read_entries<R: AsyncBufRead + Unpin + Send>(
        &self,
        lines: &mut Lines<R>,
        header: &Header,
        intake: &mut Intake<'_>,
    ) -> Result<Vec<Origin>> {
        let mut origins = Vec::new();
        let mut seen = HashSet::new();
        let mut recent = VecDeque::new();
        let mut counted = End::default();
        let mut renamed = HashMap::new();
        loop {
            let Some(line) = lines.next().await? else {
                let fault = "the file ends before its last line: it was cut off";
                return Err(unreadable(lines.number, fault));
            };
            let record = serde_json::from_slice(line);
            let number = lines.number;
            let entry = match record.map_err(|error| unreadable(number, error))? {
                Record::Entry(entry) => *entry,
                // The counts show that no line is missing, which a valid last line alone does not.
                Record::End(end) if end == counted && counted.snapshots > 0 => break,
                Record::End(_) => {
                    return Err(unreadable(
                        number,
                        "snapshots are missing: the last line counts another number of them",
                    ));
                }
            };
            check_entry(&entry, header).map_err(|fault| unreadable(number, fault))?;
            // Found here, so that the error names the line.
            if !seen.insert(entry.snapshot.snapshot_id.clone()) {
                return Err(unreadable(number, "a snapshot of that id came before"));
            }
            let added = entry
                .snapshot
                .state
                .as_ref()
                .map_or(0, |state| state.messages.len());
            counted.snapshots += 1;
            counted.messages += added as u64;
            let base = match &entry.base {
                Some(base) => Some(self.base_state(base, &recent, intake, number).await?),
                None => None,
            };
            let snapshot = whole(entry, base).map_err(|fault| unreadable(number, fault))?;
            let snapshot = unanswered(without_run(snapshot), &mut renamed)?;
            origins.push(Origin::of(&snapshot));
            let place = intake.arrived().len();
            let written = intake
                .put(snapshot)
                .await
                .map_err(|error| error.context(format_args!("line {number} of the export")))?;
            if let Some(state) = written.state {
                if recent.len() == RECENT {
                    recent.pop_front();
                }
                recent.push_back((place, state));
            }
        }
        // A file that was appended to by mistake is refused as a whole.
        while let Some(line) = lines.next().await? {
            if !line.is_empty() {
                return Err(unreadable(lines.number, "there is more after the last line"));
            }
        }
        Ok(origins)
    }

    /// Returns the state of an earlier snapshot.
    async fn base_state(
        &self,
        base: &Base,
        recent: &VecDeque<(usize, SessionState)>,
        intake: &Intake<'_>,
        line: usize,
    ) -> Result<SessionState> {
        // Snapshots mostly continue from one of the last few, so the store is seldom read.
        if let Some((_, state)) = recent.iter().find(|(entry, _)| *entry == base.entry) {
            return Ok(state.clone());
        }
        let id = intake
            .arrived()
            .get(base.entry)
            .ok_or_else(|| unreadable(line, "its base is not an earlier snapshot of the file"))?;
        let state = self.stored(id, Detail::Whole).await?.state;
        state.ok_or_else(|| unreadable(line, "its base is a snapshot without a state"))
    }
}

/// A snapshot's identity and links in the file, without its state.
struct Origin {
    snapshot: Snapshot,
    state_session: Option<SessionId>,
}

impl Origin {
    fn of(snapshot: &Snapshot) -> Self {
        Self {
            state_session: snapshot.state.as_ref().and_then(|state| state.session_id.clone()),
            snapshot: Detail::Metadata.cut(snapshot.clone()),
        }
    }

    /// Restores the original snapshot around the state that was imported under another id.
    fn restore(&self, elsewhere: Snapshot) -> Snapshot {
        let state = elsewhere.state.map(|state| SessionState {
            session_id: self.state_session.clone(),
            ..state
        });
        Snapshot {
            state,
            ..self.snapshot.clone()
        }
    }
}

async fn read_header<R: AsyncBufRead + Unpin>(lines: &mut Lines<R>) -> Result<Header> {
    let foreign = || unreadable(1, "this is not an exported session");
    let line = lines.next().await?.ok_or_else(foreign)?;
    let preamble: Preamble = serde_json::from_slice(line).map_err(|_| foreign())?;
    if preamble.format != FORMAT {
        return Err(foreign());
    }
    if preamble.version != EXPORT_VERSION {
        return Err(unreadable(
            1,
            format!(
                "it was written in version {} of the form, and this program reads version {EXPORT_VERSION}",
                preamble.version
            ),
        ));
    }
    serde_json::from_slice(line).map_err(|error| unreadable(1, error))
}

fn check_entry(entry: &Entry, header: &Header) -> Result<(), &'static str> {
    if entry.snapshot.snapshot_id.as_str().is_empty() {
        return Err("a snapshot without an id");
    }
    if entry.snapshot.session_id.as_ref() != Some(&header.session_id) {
        return Err("a snapshot of another session");
    }
    if entry.base.is_some() && entry.snapshot.state.is_none() {
        return Err("a snapshot without a state has a base");
    }
    Ok(())
}

/// Returns a snapshot that no worker continues. The file may have been edited, and its notes name the caller
/// on whose behalf a run acts.
fn without_run(snapshot: Snapshot) -> Snapshot {
    let status = match snapshot.status {
        SnapshotStatus::Pending | SnapshotStatus::Aborting => SnapshotStatus::Aborted,
        status => status,
    };
    Snapshot {
        status,
        heartbeat_at: None,
        bookkeeping: snapshot.bookkeeping.of_file(),
        ..snapshot
    }
}

/// Returns a snapshot in which no tool request waits for an answer. One that is named after its content gets
/// another name, which the snapshots after it have as their parent's.
fn unanswered(mut snapshot: Snapshot, renamed: &mut HashMap<SnapshotId, SnapshotId>) -> Result<Snapshot> {
    if let Some(parent) = snapshot.parent_id.as_ref().and_then(|parent| renamed.get(parent)) {
        snapshot.parent_id = Some(parent.clone());
    }
    let is_named_by_content = matches!(snapshot.verify(), Ok(true));
    if let Some(state) = &mut snapshot.state
        && close_questions(&mut state.messages)
        && is_named_by_content
    {
        let name = SnapshotId::of_state(state)?;
        renamed.insert(std::mem::replace(&mut snapshot.snapshot_id, name.clone()), name);
    }
    Ok(snapshot)
}

/// Closes the tool requests that wait for answers, and returns whether there were any. The file may have been
/// edited, so neither the questions in it nor the answers that it records count: the tool asks again.
///
/// No message changes its place, because later snapshots of the file take the first ones from this one.
fn close_questions(messages: &mut History) -> bool {
    if let Some(closing) = closing(messages) {
        messages.push(closing);
        return true;
    }
    let Some(asking) = awaiting(messages) else {
        return false;
    };
    // Messages that waited for the answers come after the requests, and wait no longer.
    let waited: Vec<Message> = messages.since(asking + 1).cloned().collect();
    *messages = messages.truncate_to(asking + 1);
    let waited = waited.into_iter();
    messages.extend(waited.map(|message| message.without_metadata_entry(metadata::WAITING)));
    true
}

/// Completes a snapshot with the part of its state that it takes from an earlier one.
fn whole(entry: Entry, base: Option<SessionState>) -> Result<Snapshot, &'static str> {
    let mut snapshot = entry.snapshot;
    let (Some(state), Some(base), Some(from)) = (&mut snapshot.state, entry.base, base) else {
        return Ok(snapshot);
    };
    if base.messages > from.messages.len() {
        return Err("its base has fewer messages than it takes from it");
    }
    let mut messages = from.messages.truncate_to(base.messages);
    messages.extend(state.messages.iter().cloned());
    state.messages = messages;
    for field in base.same {
        match field {
            Field::Custom if state.custom.is_none() => state.custom.clone_from(&from.custom),
            Field::Artifacts if state.artifacts.is_empty() => state.artifacts.clone_from(&from.artifacts),
            Field::PromptInput if state.prompt_input.is_none() => {
                state.prompt_input.clone_from(&from.prompt_input);
            }
            // A field that is both shared and given has two values, and the file does not define which one
            // counts.
            _ => return Err("a field is both its own and taken from its base"),
        }
    }
    Ok(snapshot)
}

/// The ids of snapshots in their new session.
pub(super) enum Names {
    /// The ids stay.
    Kept,
    /// New ids, so that the original and the copy can be in one store; content-addressed ids stay
    /// content-addressed. A parent that is not among the snapshots stays missing.
    Replaced(HashMap<SnapshotId, SnapshotId>),
}

impl Names {
    pub(super) fn replaced() -> Self {
        Self::Replaced(HashMap::new())
    }

    /// Renames a snapshot for its new session.
    fn rename(&mut self, snapshot: Snapshot, session: &SessionId) -> Result<Snapshot> {
        let mut renamed = Snapshot {
            session_id: Some(session.clone()),
            ..snapshot.clone()
        };
        let Self::Replaced(names) = self else {
            return Ok(renamed);
        };
        // The run behind a pending snapshot belongs to the original: a worker that finds the copy must not
        // run it again.
        renamed.clear_background_run();
        // A state without a session id stays without one, because the id is part of the hash.
        if let Some(state) = &mut renamed.state
            && state.session_id.is_some()
        {
            state.session_id = Some(session.clone());
        }
        renamed.snapshot_id = match (names.get(&snapshot.snapshot_id), &renamed.state) {
            (Some(name), _) => name.clone(),
            // The session's id is part of the hash, so the copy has another id than the original.
            (None, Some(state)) if matches!(snapshot.verify(), Ok(true)) => SnapshotId::of_state(state)?,
            _ => SnapshotId::generate(),
        };
        names.insert(snapshot.snapshot_id, renamed.snapshot_id.clone());
        // A parent may arrive later or never. Its new id is chosen now and used if it does.
        let mut name = |id: SnapshotId| names.entry(id).or_insert_with(SnapshotId::generate).clone();
        renamed.parent_id = snapshot.parent_id.map(&mut name);
        renamed.rename_listed_parent(|parent| name(parent.clone()));
        Ok(renamed)
    }
}

/// Snapshots that are being written into a new session.
pub(super) struct Intake<'a> {
    archive: &'a Archive,
    session: SessionId,
    names: Names,
    arrived: Vec<SnapshotId>,
}

impl<'a> Intake<'a> {
    /// Begins the intake into a session.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the session has snapshots.
    pub(super) async fn into_session(archive: &'a Archive, session: SessionId, names: Names) -> Result<Self> {
        if archive.exists(&session).await? {
            return Err(occupied(&session));
        }
        Ok(Self {
            archive,
            session,
            names,
            arrived: Vec::new(),
        })
    }

    /// Returns the new ids of the snapshots written so far, in order.
    pub(super) fn arrived(&self) -> &[SnapshotId] {
        &self.arrived
    }

    /// Writes a snapshot into the session.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if another writer began the session meanwhile, or a snapshot with that id exists.
    pub(super) async fn put(&mut self, snapshot: Snapshot) -> Result<Snapshot> {
        let snapshot = self.names.rename(snapshot, &self.session)?;
        let id = snapshot.snapshot_id.clone();
        // Only the first write decides who begins the session; after it the session is this intake's.
        let precondition = if self.arrived.is_empty() {
            Precondition::Tip(None)
        } else {
            Precondition::None
        };
        let import = Transition::Import {
            snapshot: Box::new(snapshot),
        };
        let written = self
            .archive
            .tenant
            .commit(&id, precondition, import, &[])
            .await
            .map_err(|error| {
                if error.is(TIP_MOVED) {
                    occupied(&self.session)
                } else {
                    error
                }
            })?;
        // Noted before the answer is examined: whatever was written has to be deleted after a failure.
        self.arrived.push(id.clone());
        written.ok_or_else(|| Error::internal(format!("the store did not write snapshot '{id}'")))
    }

    /// Ends the intake: after a failure, deletes the snapshots that were written.
    pub(super) async fn settle<T>(self, outcome: Result<T>) -> Result<T> {
        let Err(error) = outcome else {
            return outcome;
        };
        if self.arrived.is_empty() {
            return Err(error);
        }
        let undone = self
            .archive
            .tenant
            .delete(&Deletion::Snapshots(self.arrived))
            .await;
        Err(match undone {
            Ok(_) => error,
            Err(second) => error.context(format_args!(
                "session '{}' is incomplete and could not be deleted again ({second})",
                self.session
            )),
        })
    }
}

fn occupied(session: &SessionId) -> Error {
    Error::already_exists(format!("there is a session '{session}' already")).with_public()
}
