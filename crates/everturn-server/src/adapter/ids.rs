//! The ids of protocol adapters: names of turns, and positions in a session.
//!
//! A turn is named after the snapshot that it will write. Content-addressed snapshots have no id before the
//! turn has ended. Such turns get a random name, which the snapshot records. The name contains the session in
//! which the snapshot is found.

use std::sync::Arc;

use everturn_agent::{ServerNote, SessionId, Snapshot, SnapshotEvent, SnapshotId};
use everturn_core::{Context, Result, hex};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ServedAgent;

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

/// The position of a text, call or result in a session.
///
/// Its [id](Self::id) contains the name of its turn, so no index is needed to find the turn's snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessagePosition {
    /// The index of the message in the session.
    pub message: usize,
    /// The number of the text, call or result in the message.
    pub number: usize,
}

impl MessagePosition {
    /// Creates a position.
    pub fn new(message: usize, number: usize) -> Self {
        Self { message, number }
    }

    /// Returns the id of this position in the turn of that [name](crate::turn_name), after a prefix for its
    /// kind.
    pub fn id(self, kind: &str, turn: &str) -> String {
        let Self { message, number } = self;
        match number {
            0 => format!("{kind}_{turn}_{message}"),
            number => format!("{kind}_{turn}_{message}.{number}"),
        }
    }

    /// Returns the position at the end of an id, whatever its kind and turn.
    pub fn of_id(id: &str) -> Option<Self> {
        let (_, position) = id.rsplit_once('_')?;
        let (message, number) = position.split_once('.').unwrap_or((position, "0"));
        Some(Self::new(message.parse().ok()?, number.parse().ok()?))
    }

    /// Returns the kind, the turn and the position that an id names; `None` for an id of another form.
    pub fn parse(id: &str) -> Option<(&str, &str, Self)> {
        let (kind, rest) = id.split_once('_')?;
        let (turn, _) = rest.rsplit_once('_').filter(|(turn, _)| !turn.is_empty())?;
        Some((kind, turn, Self::of_id(id)?))
    }
}

/// Decodes hexadecimal digits into text; returns `None` if they are not the digits of UTF-8 text.
pub fn text_of_hex(digits: &str) -> Option<String> {
    // `from_str_radix` accepts a sign.
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
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

    #[test]
    fn an_id_leads_back_to_its_turn_and_position() {
        for (position, id) in [
            (MessagePosition::new(0, 0), "msg_01_99_0"),
            (MessagePosition::new(12, 3), "msg_01_99_12.3"),
        ] {
            assert_eq!(position.id("msg", "01_99"), id);
            assert_eq!(MessagePosition::parse(id), Some(("msg", "01_99", position)));
        }
        for other in [
            "",
            "item",
            "call_abc",
            "msg_1",
            "msg__1",
            "msg_0199_x",
            "call_0199_1.y",
        ] {
            assert_eq!(MessagePosition::parse(other), None, "{other}");
        }
    }

    #[test]
    fn only_pairs_of_digits_are_decoded() {
        assert_eq!(text_of_hex(&hex("é".as_bytes())).as_deref(), Some("é"));
        for invalid in ["+5", "a", "zz", "ff"] {
            assert_eq!(text_of_hex(invalid), None, "{invalid}");
        }
    }
}
