//! Names of turns, which the ids of protocol adapters contain.
//!
//! A turn is named after the snapshot that it will write. Content-addressed snapshots have no id before the
//! turn has ended. Such turns get a random name, which the snapshot records. The name contains the session in
//! which the snapshot is found.

use std::sync::Arc;

use everturn_agent::{ServerNote, SessionId, Snapshot, SnapshotEvent, SnapshotId};
use everturn_core::{Context, Result};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ServedAgent;
use crate::hex::{hex, text_of_hex};

/// The entry of a snapshot's note that holds the name of its turn.
const TURN: &str = "turn";

/// Returns the name of the turn that a snapshot holds.
pub fn turn_name(snapshot: &Snapshot) -> String {
    match (recorded(snapshot), &snapshot.session_id) {
        (Some(own), Some(session)) => in_session(own, session),
        _ => snapshot.snapshot_id.to_string(),
    }
}

fn recorded(snapshot: &Snapshot) -> Option<&str> {
    snapshot.server_note()?.get(TURN)?.as_str()
}

fn in_session(own: &str, session: &SessionId) -> String {
    format!("{own}-{}", hex(session.as_str().as_bytes()))
}

/// Returns the turn's own name and its session; `None` for a name that is a snapshot's id.
fn parse(name: &str) -> Option<(&str, SessionId)> {
    let (own, session) = name.split_once('-')?;
    let session = text_of_hex(session)?;
    (own.len() == 32 && !session.is_empty()).then(|| (own, SessionId::from(session)))
}

/// A name that is given to a turn before it starts.
#[derive(Debug)]
pub(crate) struct TurnName(String);

impl TurnName {
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }

    /// Records the name in the snapshot of the turn, in addition to the existing notes.
    pub(crate) fn noted(&self, context: Context) -> Context {
        let mut note = context
            .extension::<ServerNote>()
            .map_or_else(|| json!({}), |note| note.0.clone());
        if let Value::Object(note) = &mut note {
            note.insert(TURN.to_owned(), self.0.as_str().into());
        }
        context.with_extension(Arc::new(ServerNote(note)))
    }

    /// Returns the whole name of the turn.
    pub(crate) fn in_session(&self, session: &SessionId) -> String {
        in_session(&self.0, session)
    }
}

impl ServedAgent {
    /// Returns the snapshot of the turn with this [name](turn_name); `None` if this caller has no such turn.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn turn(&self, name: &str, context: &Context) -> Result<Option<Snapshot>> {
        let Some((own, session)) = parse(name).filter(|_| self.names_turns_itself()) else {
            return self.snapshot(&SnapshotId::from(name), context).await;
        };
        let mut held = self.summaries(&session, context).await?;
        held.retain(|snapshot| recorded(snapshot) == Some(own));
        // Snapshots in the middle of the turn and at the invocation's end have the same note.
        let of_turn = held
            .iter()
            .find(|snapshot| snapshot.event == Some(SnapshotEvent::TurnEnd));
        match of_turn {
            Some(found) => self.snapshot(&found.snapshot_id, context).await,
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_session() {
        let name = TurnName::new();

        for session in ["t", "0199-ab_c", "Küche"] {
            let session = SessionId::from(session);
            let whole = name.in_session(&session);
            assert_eq!(parse(&whole), Some((name.0.as_str(), session)));
        }
        for other in ["", "t", "0199b1f2-aaaa-7000-8000-0123456789ab", &name.0] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
