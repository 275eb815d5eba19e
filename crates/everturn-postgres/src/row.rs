//! A snapshot as the columns of a row.

use everturn_agent::store::Bookkeeping;
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_ai::JsonObject;
use everturn_core::{Error, RuntimeError};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::body;
use crate::connection::column;
use crate::fault::{Fault, Outcome};
use crate::position::{LineageKey, Position, SessionKey, length};

/// The greatest length, in bytes, of a snapshot id, a session id or a scope: two of them fit into an index of PostgreSQL.
pub const MAX_ID: usize = 1024;

/// The columns that [`Stored::from_row`] reads, from a snapshot `s` and its session `n`.
pub(crate) const COLUMNS: &str = "s.id, n.name, s.parent, s.created_at, s.updated_at, s.heartbeat_at, s.status, \
    s.finish_reason, s.event, s.number, s.turn, s.orphaned, s.details, s.lineage, s.up_to, s.custom, s.artifacts, \
    s.prompt_input, s.named, s.rest, s.tenant, s.session, s.line_session";

/// A row as it is stored: the snapshot without its state, and references to the parts of the state.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) session: SessionKey,
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Option<StoredState>,
}

/// References to the parts of a state. Documents are those of the row's own session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StoredState {
    /// `None` for an empty history.
    pub(crate) messages: Option<Position>,
    pub(crate) custom: Option<i64>,
    pub(crate) artifacts: Option<i64>,
    pub(crate) prompt_input: Option<i64>,
    pub(crate) session_id: Option<SessionId>,
    pub(crate) extra: JsonObject,
}

impl StoredState {
    pub(crate) fn documents(&self) -> impl Iterator<Item = i64> {
        [self.custom, self.artifacts, self.prompt_input]
            .into_iter()
            .flatten()
    }
}

/// The fields of a snapshot that few rows have; stored as JSON.
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Details {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RuntimeError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    extra: Extra,
}

/// What the framework notes for itself and the fields of other versions, in one object.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Extra {
    #[serde(flatten)]
    bookkeeping: Bookkeeping,
    #[serde(flatten)]
    others: JsonObject,
}

impl Extra {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Details {
    /// Returns the rare fields of a row as JSON.
    pub(crate) fn of(row: &Snapshot) -> Outcome<Option<String>> {
        let details = Self {
            error: row.error.clone(),
            labels: row.labels.clone(),
            note: row.note.clone(),
            extra: Extra {
                bookkeeping: row.bookkeeping.clone(),
                others: row.extra.clone(),
            },
        };
        (details != Self::default())
            .then(|| body::write(&details))
            .transpose()
    }
}

/// The fields of a state that few states have; stored as JSON.
#[derive(Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// The state's session id, where it differs from the row's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    extra: JsonObject,
}

impl Rest {
    /// Returns whether the state repeats its row's session id, and its rare fields as JSON.
    pub(crate) fn of(row: &Snapshot, state: Option<&StoredState>) -> Outcome<(bool, Option<String>)> {
        let Some(state) = state else {
            return Ok((false, None));
        };
        let named = state.session_id.is_some() && state.session_id == row.session_id;
        let rest = Self {
            session_id: state.session_id.clone().filter(|_| !named),
            extra: state.extra.clone(),
        };
        let text = (rest != Self::default())
            .then(|| body::write(&rest))
            .transpose()?;
        Ok((named, text))
    }
}

impl Stored {
    pub(crate) fn from_row(row: &Row) -> Outcome<Self> {
        let details: Details = optional(row, 12)?.unwrap_or_default();
        let snapshot = Snapshot {
            snapshot_id: SnapshotId::from(text(row, 0)?),
            session_id: Some(SessionId::from(text(row, 1)?)),
            parent_id: optional_text(row, 2)?.map(SnapshotId::from),
            created_at: to_time(column(row, 3)?)?,
            updated_at: column::<Option<i64>>(row, 4)?.map(to_time).transpose()?,
            heartbeat_at: column::<Option<i64>>(row, 5)?.map(to_time).transpose()?,
            status: from_word(column(row, 6)?)?,
            finish_reason: column::<Option<&str>>(row, 7)?.map(from_word).transpose()?,
            event: column::<Option<&str>>(row, 8)?.map(from_word).transpose()?,
            index: column::<Option<i64>>(row, 9)?.map(i64::cast_unsigned),
            turn_index: column::<Option<i64>>(row, 10)?.map(i64::cast_unsigned),
            orphaned: column(row, 11)?,
            error: details.error,
            labels: details.labels,
            note: details.note,
            bookkeeping: details.extra.bookkeeping,
            extra: details.extra.others,
            state: None,
        };
        let session = SessionKey {
            tenant: column(row, 20)?,
            id: column(row, 21)?,
        };
        let state = StoredState::from_row(row, &snapshot, session)?;
        Ok(Self {
            session,
            snapshot,
            state,
        })
    }
}

impl StoredState {
    fn from_row(row: &Row, snapshot: &Snapshot, session: SessionKey) -> Outcome<Option<Self>> {
        let Some(len) = column::<Option<i32>>(row, 14)? else {
            return Ok(None);
        };
        let rest: Rest = optional(row, 19)?.unwrap_or_default();
        let named: bool = column(row, 18)?;
        let owner = SessionKey {
            tenant: session.tenant,
            id: column::<Option<Uuid>>(row, 22)?.unwrap_or(session.id),
        };
        let lineage = column::<Option<i64>>(row, 13)?;
        Ok(Some(Self {
            messages: lineage.map(|number| Position {
                lineage: LineageKey {
                    session: owner,
                    number,
                },
                len: length(len),
            }),
            custom: column(row, 15)?,
            artifacts: column(row, 16)?,
            prompt_input: column(row, 17)?,
            session_id: if named {
                snapshot.session_id.clone()
            } else {
                rest.session_id
            },
            extra: rest.extra,
        }))
    }
}

/// Returns a name or an id.
pub(crate) fn text(row: &Row, index: usize) -> Outcome<&str> {
    utf8(column(row, index)?)
}

pub(crate) fn optional_text(row: &Row, index: usize) -> Outcome<Option<&str>> {
    column::<Option<&[u8]>>(row, index)?.map(utf8).transpose()
}

fn utf8(bytes: &[u8]) -> Outcome<&str> {
    std::str::from_utf8(bytes).map_err(|error| Fault::damaged(format!("a name is not UTF-8: {error}")))
}

fn optional<T: DeserializeOwned>(row: &Row, index: usize) -> Outcome<Option<T>> {
    let Some(bytes) = column::<Option<&[u8]>>(row, index)? else {
        return Ok(None);
    };
    body::parse(&body::unpack(bytes)?).map(Some)
}

/// Returns the name of an enum's variant on the wire.
pub(crate) fn to_word<T: Serialize>(variant: &T) -> Outcome<String> {
    match serde_json::to_value(variant) {
        Ok(Value::String(word)) => Ok(word),
        _ => Err(Error::internal("an enum is not a word on the wire").into()),
    }
}

pub(crate) fn from_word<T: DeserializeOwned>(word: &str) -> Outcome<T> {
    serde_json::from_value(Value::from(word)).map_err(|error| Fault::damaged(format!("'{word}': {error}")))
}

pub(crate) fn to_nanos(time: Timestamp) -> Outcome<i64> {
    i64::try_from(time.as_nanosecond()).map_err(|_| {
        let refusal = format!("the time {time} cannot be kept: it must lie between the years 1678 and 2262");
        Error::invalid_argument(refusal).into()
    })
}

pub(crate) fn to_time(nanos: i64) -> Outcome<Timestamp> {
    Timestamp::from_nanosecond(nanos.into()).map_err(|error| Fault::damaged(error.to_string()))
}

/// Refuses an id that is longer than [`MAX_ID`].
pub(crate) fn check_id(what: &str, id: &str) -> Outcome<()> {
    if id.len() <= MAX_ID {
        return Ok(());
    }
    let length = id.len();
    Err(Error::invalid_argument(format!(
        "a {what} of {length} bytes is too long: {MAX_ID} are allowed"
    ))
    .into())
}
