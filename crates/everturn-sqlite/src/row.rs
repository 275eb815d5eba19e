//! A snapshot as the columns of a row.

use std::ops::Range;

use everturn_agent::store::Bookkeeping;
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_ai::JsonObject;
use everturn_core::{Error, RuntimeError};
use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::body;
use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::position::Position;

/// The greatest length, in bytes, of a snapshot id, a session id or a scope.
pub const MAX_ID: usize = 4096;

/// The columns that [`Stored::from_row`] reads, from `snapshot` joined with its `session`.
pub(crate) const COLUMNS: &str = "snapshot.key, snapshot.id, session.name, snapshot.parent, snapshot.created_at, \
    snapshot.updated_at, snapshot.heartbeat_at, snapshot.status, snapshot.finish_reason, snapshot.event, \
    snapshot.number, snapshot.turn, snapshot.orphaned, snapshot.details, snapshot.lineage, snapshot.up_to, \
    snapshot.custom, snapshot.artifacts, snapshot.prompt_input, snapshot.named, snapshot.rest, snapshot.session, \
    snapshot.scope, snapshot.checksum";

/// The columns that a row's checksum covers: from its id on, without the key of its session, whose name is among them.
const CHECKED: Range<usize> = 1..21;

/// A row as it is stored: the snapshot without its state, and references to the parts of the state.
#[derive(Clone, PartialEq)]
pub(crate) struct Stored {
    pub(crate) key: i64,
    pub(crate) session: i64,
    pub(crate) scope: i64,
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Option<StoredState>,
}

/// References to the parts of a state.
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
    fn of(row: &Snapshot) -> Outcome<(bool, Option<String>)> {
        let Some(state) = &row.state else {
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
    /// Returns the checksum of a row as it is stored.
    pub(crate) fn checksum(row: &Row<'_>) -> Outcome<i64> {
        let mut checksum = Checksum::default();
        for column in CHECKED {
            checksum = checksum.with(row.get_ref(column)?);
        }
        // The tenant's key too: a row that has moved to another tenant is damage.
        Ok(checksum.with(row.get_ref(22)?).finish())
    }

    /// Returns the checksum of a row that is about to be stored. `columns` are those of the `INSERT` statement, which do not
    /// repeat the session's name.
    pub(crate) fn checksum_of(columns: &[Value], session: &SessionId, scope: i64) -> Outcome<i64> {
        let (id, others) = columns
            .split_first()
            .ok_or_else(|| Fault::damaged("a row has no columns"))?;
        let session = ValueRef::Text(session.as_str().as_bytes());
        let mut checksum = Checksum::default().with(id.into()).with(session);
        for column in others {
            checksum = checksum.with(column.into());
        }
        Ok(checksum.with(ValueRef::Integer(scope)).finish())
    }

    pub(crate) fn from_row(row: &Row<'_>) -> Outcome<Self> {
        if row.get::<_, i64>(23)? != Self::checksum(row)? {
            let (id, session): (String, String) = (row.get(1)?, row.get(2)?);
            return Err(Fault::damaged(format!(
                "the row of snapshot '{id}' of session '{session}' is not what its checksum says"
            )));
        }
        let session_id = SessionId::from(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?);
        let details: Details = optional(row, 13)?.unwrap_or_default();
        let snapshot = Snapshot {
            snapshot_id: SnapshotId::from(row.get::<_, String>(1)?),
            parent_id: row.get::<_, Option<String>>(3)?.map(SnapshotId::from),
            created_at: to_time(row.get(4)?)?,
            updated_at: row.get::<_, Option<i64>>(5)?.map(to_time).transpose()?,
            heartbeat_at: row.get::<_, Option<i64>>(6)?.map(to_time).transpose()?,
            status: from_word(&row.get::<_, String>(7)?)?,
            finish_reason: row
                .get::<_, Option<String>>(8)?
                .as_deref()
                .map(from_word)
                .transpose()?,
            event: row
                .get::<_, Option<String>>(9)?
                .as_deref()
                .map(from_word)
                .transpose()?,
            // SQLite has no unsigned integers, so the bits are stored as they are.
            index: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
            turn_index: row.get::<_, Option<i64>>(11)?.map(i64::cast_unsigned),
            orphaned: row.get(12)?,
            error: details.error,
            labels: details.labels,
            note: details.note,
            bookkeeping: details.extra.bookkeeping,
            extra: details.extra.others,
            session_id: Some(session_id),
            state: None,
        };
        let state = StoredState::from_row(row, &snapshot)?;
        Ok(Self {
            key: row.get(0)?,
            session: row.get(21)?,
            scope: row.get(22)?,
            snapshot,
            state,
        })
    }
}

impl StoredState {
    fn from_row(row: &Row<'_>, snapshot: &Snapshot) -> Outcome<Option<Self>> {
        // A state without messages has the length 0; a row without a state has none.
        let Some(len) = row.get::<_, Option<usize>>(15)? else {
            return Ok(None);
        };
        let rest: Rest = optional(row, 20)?.unwrap_or_default();
        let named: bool = row.get(19)?;
        Ok(Some(Self {
            messages: row
                .get::<_, Option<i64>>(14)?
                .map(|lineage| Position { lineage, len }),
            custom: row.get(16)?,
            artifacts: row.get(17)?,
            prompt_input: row.get(18)?,
            session_id: if named {
                snapshot.session_id.clone()
            } else {
                rest.session_id
            },
            extra: rest.extra,
        }))
    }
}

fn optional<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Outcome<Option<T>> {
    row.get::<_, Option<String>>(column)?
        .as_deref()
        .map(body::parse)
        .transpose()
}

/// The columns of [`columns`] that refer to the parts of a state.
pub(crate) const STATE_COLUMNS: Range<usize> = 12..17;

/// Returns the columns of a row that is about to be stored. Those of [`STATE_COLUMNS`] are empty.
pub(crate) fn columns(row: &Snapshot) -> Outcome<Vec<Value>> {
    let (named, rest) = Rest::of(row)?;
    let mut columns: Vec<Value> = vec![
        row.snapshot_id.as_str().to_owned().into(),
        row.parent_id
            .as_ref()
            .map(|parent| parent.as_str().to_owned())
            .into(),
        to_nanos(row.created_at)?.into(),
        row.updated_at.map(to_nanos).transpose()?.into(),
        row.heartbeat_at.map(to_nanos).transpose()?.into(),
        to_word(&row.status)?.into(),
        row.finish_reason.as_ref().map(to_word).transpose()?.into(),
        row.event.as_ref().map(to_word).transpose()?.into(),
        // SQLite has no unsigned integers, so the bits are stored as they are.
        row.index.map(u64::cast_signed).into(),
        row.turn_index.map(u64::cast_signed).into(),
        row.orphaned.into(),
        Details::of(row)?.into(),
    ];
    columns.resize(STATE_COLUMNS.end, Value::Null);
    columns.extend([named.into(), rest.into()]);
    Ok(columns)
}

impl StoredState {
    /// Returns the columns that refer to the parts of the state, in their order.
    pub(crate) fn columns(&self) -> Outcome<[Value; 5]> {
        let len = self.messages.map_or(0, |messages| messages.len);
        let len = i64::try_from(len).map_err(|_| Fault::damaged("a history is too long to be counted"))?;
        Ok([
            self.messages.map(|messages| messages.lineage).into(),
            len.into(),
            self.custom.into(),
            self.artifacts.into(),
            self.prompt_input.into(),
        ])
    }
}

/// Returns the name of an enum's variant on the wire.
pub(crate) fn to_word<T: Serialize>(variant: &T) -> Outcome<String> {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        _ => Err(Error::internal("an enum is not a word on the wire").into()),
    }
}

pub(crate) fn from_word<T: DeserializeOwned>(word: &str) -> Outcome<T> {
    serde_json::from_value(word.into()).map_err(|error| Fault::damaged(format!("'{word}': {error}")))
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
