//! A row as the content of a file, whole or without its conversation.

use std::fmt;
use std::path::Path;

use everturn_agent::store::Detail;
use everturn_agent::{SessionId, Snapshot};
use everturn_core::{Error, Result};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The row in a file. Without its state it costs a look at the conversation's characters, and none of its messages is made.
///
/// # Errors
/// `DATA_LOSS` if there is none in it.
pub(crate) fn parse(path: &Path, content: &[u8], detail: Detail) -> Result<Snapshot> {
    let row = deserialize(content, detail);
    row.map_err(|error| Error::data_loss(format!("'{}' is not a snapshot: {error}", path.display())))
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

/// The session of a row; peers may name it nowhere but in the state.
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

/// The fields of a row but for its state, of which the session's name is kept.
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
    fn what_is_no_row_is_none_without_its_state() {
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
