//! Writing a session to one file.

use std::sync::Arc;

use everturn_ai::History;
use everturn_core::offload::{is_heavy_to_serialize, offload};
use everturn_core::{Error, Result};
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::record::{Base, EXPORT_VERSION, End, Entry, FORMAT, Field, Header, MAX_LINE, Record};
use super::{Archive, named_session};
use crate::store::Detail;
use crate::{SessionId, SessionState, Snapshot, SnapshotId};

/// The number of exports in this process that read a snapshot at once. A snapshot and the one it follows are
/// in memory then, and only the next line while a reader takes its time.
static READING: Semaphore = Semaphore::const_new(2);

impl Archive {
    /// Writes a session to a file or another writer, and returns the number of its snapshots. Every snapshot
    /// is written as it is stored, including pending and superseded ones, and each message once.
    /// [`Archive::import`] reads it.
    ///
    /// Snapshots are read and written one at a time: memory holds their ids and one line. Equal sessions give
    /// equal bytes. Snapshots that are added meanwhile are not part of the export.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has no snapshots, `INVALID_ARGUMENT` for an empty id, `RESOURCE_EXHAUSTED`
    /// if one snapshot adds more than a line may hold ([`MAX_LINE`]); the errors of reading and writing.
    pub async fn export(
        &self,
        session: impl Into<SessionId>,
        mut to: impl AsyncWrite + Unpin + Send,
    ) -> Result<u64> {
        let session = named_session(session)?;
        let ids = self.stored_ids(&session).await?;
        let header = Header {
            format: FORMAT.to_owned(),
            version: EXPORT_VERSION,
            session_id: session,
        };
        to.write_all(&print_line(&header)?).await?;
        let mut written = Vec::new();
        let mut end = End::default();
        for id in ids {
            let reading = READING.acquire().await.map_err(Error::foreign)?;
            // A snapshot that was deleted since the ids were read is not exported.
            let Some(snapshot) = self.tenant.get(&id, Detail::Whole).await? else {
                continue;
            };
            let base = match &snapshot.state {
                Some(state) => self.base(&snapshot, state, &written).await?,
                None => None,
            };
            let record = Entry::going_on(snapshot, base);
            let added = record.snapshot.state.as_ref();
            end.messages += added.map_or(0, |state| state.messages.len()) as u64;
            end.snapshots += 1;
            let is_heavy = is_heavy_to_serialize(&record.snapshot);
            let print = move || print_line(&Record::Entry(Box::new(record)));
            let line = if is_heavy { offload(print).await } else { print() }?;
            drop(reading);
            to.write_all(&line).await?;
            written.push(id);
        }
        to.write_all(&print_line(&Record::End(end))?).await?;
        to.flush().await?;
        Ok(end.snapshots)
    }

    /// Returns what a snapshot shares with its parent, or with the snapshot that was written last if the
    /// parent is not in the file.
    async fn base(
        &self,
        snapshot: &Snapshot,
        state: &SessionState,
        written: &[SnapshotId],
    ) -> Result<Option<Base>> {
        let parent = snapshot.parent_id.as_ref();
        let parent = parent.and_then(|parent| written.iter().rposition(|id| id == parent));
        let Some(entry) = parent.or_else(|| written.len().checked_sub(1)) else {
            return Ok(None);
        };
        let earlier = self.tenant.get(&written[entry], Detail::Whole).await?;
        let Some(earlier) = earlier.and_then(|earlier| earlier.state) else {
            return Ok(None);
        };
        let messages = state.messages.common_prefix(&earlier.messages);
        let same = same_fields(state, &earlier);
        Ok((messages > 0 || !same.is_empty()).then_some(Base {
            entry,
            messages,
            same,
        }))
    }
}

impl Entry {
    /// Creates the entry of a snapshot without the part that it takes from `base`.
    fn going_on(mut snapshot: Snapshot, base: Option<Base>) -> Self {
        if let (Some(state), Some(base)) = (&mut snapshot.state, &base) {
            let added = state.messages.since(base.messages).cloned();
            state.messages = added.collect::<History>();
            for field in &base.same {
                match field {
                    Field::Custom => state.custom = None,
                    Field::Artifacts => state.artifacts = Arc::default(),
                    Field::PromptInput => state.prompt_input = None,
                }
            }
        }
        Self { snapshot, base }
    }
}

/// Returns the non-empty fields that two states have in common.
fn same_fields(one: &SessionState, other: &SessionState) -> Vec<Field> {
    fn same<T: PartialEq>(one: &Arc<T>, other: &Arc<T>) -> bool {
        Arc::ptr_eq(one, other) || one == other
    }
    let both = |one: &Option<Arc<_>>, other: &Option<Arc<_>>| match (one, other) {
        (Some(one), Some(other)) => same(one, other),
        _ => false,
    };
    let mut fields = Vec::new();
    if both(&one.custom, &other.custom) {
        fields.push(Field::Custom);
    }
    if !one.artifacts.is_empty() && same(&one.artifacts, &other.artifacts) {
        fields.push(Field::Artifacts);
    }
    if both(&one.prompt_input, &other.prompt_input) {
        fields.push(Field::PromptInput);
    }
    fields
}

fn print_line<T: Serialize>(line: &T) -> Result<Vec<u8>> {
    let mut line = serde_json::to_vec(line)?;
    if line.len() > MAX_LINE {
        return Err(Error::resource_exhausted(format!(
            "one snapshot adds {} bytes, and a line of an export has at most {MAX_LINE}",
            line.len()
        )));
    }
    line.push(b'\n');
    Ok(line)
}
