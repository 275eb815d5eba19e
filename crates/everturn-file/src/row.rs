//! A row as the content of a file: whole, without its conversation, or only its header.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use everturn_agent::store::Detail;
use everturn_agent::{SessionId, Snapshot, SnapshotId, SnapshotStatus};
use everturn_core::{Error, Result};
use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::checksum::Seal;
use crate::layout::Folder;

/// Parses the content of a row's file. With [`Detail::Metadata`] the conversation is scanned but no message
/// is built.
///
/// # Errors
/// `DATA_LOSS` if the content is not a snapshot, or not the one that was written.
pub(crate) fn parse(path: &Path, content: &[u8], detail: Detail) -> Result<Snapshot> {
    if Seal::of(content) == Seal::Broken {
        return Err(damaged(path, "its content is not what its checksum says"));
    }
    deserialize(content, detail).map_err(|error| damaged(path, error))
}

/// Returns the error of a file that does not hold what it must.
pub(crate) fn damaged(path: &Path, why: impl fmt::Display) -> Error {
    Error::data_loss(format!(
        "'{}' is not a snapshot: {why}; restore it from a backup",
        path.display()
    ))
}

fn deserialize(content: &[u8], detail: Detail) -> serde_json::Result<Snapshot> {
    if detail == Detail::Metadata {
        return serde_json::from_slice(content).map(|Metadata(row)| row);
    }
    let mut row: Snapshot = serde_json::from_slice(content)?;
    let inside = row.state.as_ref().and_then(|state| state.session_id.clone());
    row.session_id = session_of(row.session_id.take(), inside);
    Ok(row)
}

/// Returns the session of a row. Other runtimes may name the session only in the state.
fn session_of(own: Option<SessionId>, in_state: Option<SessionId>) -> Option<SessionId> {
    own.into_iter()
        .chain(in_state)
        .find(|session| !session.as_str().is_empty())
}

/// A row without its state.
struct Metadata(Snapshot);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(RowVisitor).map(Self)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Snapshot;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> std::result::Result<Snapshot, A::Error> {
        let mut in_state = None;
        let without_state = WithoutState {
            fields,
            session: &mut in_state,
        };
        let mut row = Snapshot::deserialize(MapAccessDeserializer::new(without_state))?;
        row.session_id = session_of(row.session_id.take(), in_state);
        Ok(row)
    }
}

/// Returns the parent that a row names, from the beginning of its file; `None` if it is not before the state.
///
/// The beginning alone cannot be checked. A file that is damaged is no row, so its parent does not matter.
pub(crate) fn parent_in(start: &[u8]) -> Option<SnapshotId> {
    let mut parent = None;
    // It ends in an error, because the beginning is not a document.
    let _ = serde_json::Deserializer::from_slice(start).deserialize_map(ParentVisitor(&mut parent));
    parent
}

/// Returns the value of a field in a damaged file, as far as that can be read.
pub(crate) fn field_in<T: DeserializeOwned>(content: &[u8], name: &str) -> Option<T> {
    let name = format!("\"{name}\"");
    let at = content
        .windows(name.len())
        .position(|text| text == name.as_bytes())?;
    let value = content[at + name.len()..].trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter();
    values.next()?.ok()
}

/// Returns the session that a file names which is not a row, as far as that can be read.
pub(crate) fn session_in(content: &[u8]) -> Option<SessionId> {
    field_in(content, "sessionId")
}

struct ParentVisitor<'a>(&'a mut Option<SnapshotId>);

impl<'de> Visitor<'de> for ParentVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a snapshot")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            match &*name {
                "parentId" => {
                    *self.0 = fields.next_value()?;
                    break;
                }
                "state" => break,
                _ => fields.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(())
    }
}

/// The fields of a row without its state. Of the state only the session's name is kept.
struct WithoutState<'a, A> {
    fields: A,
    session: &'a mut Option<SessionId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateHeader {
    #[serde(default)]
    session_id: Option<SessionId>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutState<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> std::result::Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.fields.next_key::<String>()? {
            if name != "state" {
                return seed.deserialize(name.into_deserializer()).map(Some);
            }
            let state: Option<StateHeader> = self.fields.next_value()?;
            *self.session = state.and_then(|state| state.session_id);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> std::result::Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}

/// The cached fields of each row that a store has read: enough to find the row, to sort it and to see whether
/// it has ended.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) snapshot_id: SnapshotId,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) parent_id: Option<SnapshotId>,
    pub(crate) created_at: Timestamp,
    pub(crate) heartbeat_at: Option<Timestamp>,
    pub(crate) status: SnapshotStatus,
    pub(crate) orphaned: bool,
}

impl Header {
    pub(crate) fn of(row: &Snapshot) -> Self {
        Self {
            snapshot_id: row.snapshot_id.clone(),
            session_id: row.session_id.clone(),
            parent_id: row.parent_id.clone(),
            created_at: row.created_at,
            heartbeat_at: row.heartbeat_at,
            status: row.status,
            orphaned: row.orphaned,
        }
    }

    /// Parses the header of a file. Returns `None` if the file is not a row, or is not named after its row
    /// and so cannot be read by id.
    pub(crate) fn parse(folder: &Folder, path: &Path, content: &[u8]) -> Option<Self> {
        let row = parse(path, content, Detail::Metadata).ok()?;
        (folder.row(&row.snapshot_id).ok()? == path).then(|| Self::of(&row))
    }

    pub(crate) fn position(&self) -> (Timestamp, &SnapshotId) {
        (self.created_at, &self.snapshot_id)
    }

    /// Returns a row with the fields that the header holds.
    pub(crate) fn outline(&self) -> Snapshot {
        Snapshot {
            session_id: self.session_id.clone(),
            parent_id: self.parent_id.clone(),
            heartbeat_at: self.heartbeat_at,
            status: self.status,
            orphaned: self.orphaned,
            ..Snapshot::new(self.snapshot_id.clone(), SessionId::from(""), self.created_at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_its_state_is_otherwise_the_same() {
        for content in [
            r#"{"snapshotId": "a", "sessionId": "s", "createdAt": "2026-01-02T03:04:05Z", "status": "pending",
                "state": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "shelf": {"state": [1]}}"#,
            r#"{"state": {"sessionId": "s", "messages": []}, "snapshotId": "\u0061", "parentId": "", "sessionId": "",
                "createdAt": "2026-01-02T03:04:05Z", "heartbeatAt": "2026-01-02T03:04:06.5Z", "labels": ["x"]}"#,
            r#"{"snapshotId": "a", "createdAt": "2026-01-02T03:04:05Z", "status": "", "state": null}"#,
            r#"{"snapshotId": "a", "createdAt": "2026-01-02T03:04:05Z", "orphaned": true}"#,
        ] {
            let whole = deserialize(content.as_bytes(), Detail::Whole).unwrap();

            let metadata = deserialize(content.as_bytes(), Detail::Metadata).unwrap();

            assert_eq!(metadata, Detail::Metadata.cut(whole), "{content}");
        }
    }

    #[test]
    fn the_parent_is_found_at_the_beginning_of_a_file() {
        let start = br#"{"snapshotId": "b", "labels": {"parentId": "x"}, "parentId": "a", "state": {"messages": [{"ro"#;
        let after_state = br#"{"snapshotId": "b", "state": {"custom": 1}, "parentId": "a"}"#;

        assert_eq!(parent_in(start), Some("a".into()));
        assert_eq!(parent_in(after_state), None);
        assert_eq!(parent_in(&start[..20]), None);
        assert_eq!(parent_in(b"\0"), None);
    }

    #[test]
    fn content_that_is_not_a_snapshot_has_no_metadata() {
        for content in [
            "",
            "[]",
            "{}",
            r#"{"snapshotId": "a", "createdAt": "2026-01-02T03:04:05Z", "status": "novel"}"#,
            r#"{"snapshotId": "a", "createdAt": "2026-01-02T03:04:05Z", "state": {"#,
        ] {
            assert!(
                deserialize(content.as_bytes(), Detail::Metadata).is_err(),
                "{content:?}"
            );
        }
    }
}
