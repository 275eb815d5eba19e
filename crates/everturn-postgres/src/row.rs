//! A snapshot as the columns of a row.

use std::borrow::Cow;

use everturn_agent::store::{Bookkeeping, Checksum};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_ai::JsonObject;
use everturn_core::{Error, RuntimeError};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::body::{self, Encoder};
use crate::connection::column;
use crate::fault::{Fault, Outcome};
use crate::position::{LineageKey, Position, SessionKey, column as number_column, length};
use crate::tail::Tail;

/// The greatest length, in bytes, of a snapshot id, a session id or a scope: two of them fit into an index of PostgreSQL.
pub const MAX_ID: usize = 1024;

/// The columns that [`Stored::from_row`] reads, from a snapshot `s` and its session `n`.
pub(crate) const COLUMNS: &str = "s.id, n.name, s.parent, s.created_at, s.updated_at, s.heartbeat_at, s.status, \
    s.finish_reason, s.event, s.number, s.turn, s.orphaned, s.details, s.lineage, s.up_to, s.custom, s.artifacts, \
    s.prompt_input, s.named, s.rest, s.tenant, s.session, s.line_session, s.scope, s.tail, s.checksum";

/// The column of the tenant's name.
pub(crate) const SCOPE: usize = 23;

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
    /// The history's position, and the checksum of its last message; `None` for an empty history.
    pub(crate) messages: Option<(Position, Tail)>,
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

/// The columns of a row, beside those that identify it.
pub(crate) struct Columns<'a> {
    pub(crate) parent: Option<&'a [u8]>,
    pub(crate) created_at: i64,
    pub(crate) updated_at: Option<i64>,
    pub(crate) heartbeat_at: Option<i64>,
    pub(crate) status: Cow<'a, str>,
    pub(crate) finish_reason: Option<Cow<'a, str>>,
    pub(crate) event: Option<Cow<'a, str>>,
    pub(crate) number: Option<i64>,
    pub(crate) turn: Option<i64>,
    pub(crate) orphaned: bool,
    pub(crate) details: Option<Cow<'a, [u8]>>,
    pub(crate) lineage: Option<i64>,
    /// The session of the lineage, where that is another one.
    pub(crate) line_session: Option<Uuid>,
    pub(crate) up_to: Option<i32>,
    pub(crate) tail: Option<Tail>,
    pub(crate) custom: Option<i64>,
    pub(crate) artifacts: Option<i64>,
    pub(crate) prompt_input: Option<i64>,
    pub(crate) named: bool,
    pub(crate) rest: Option<Cow<'a, [u8]>>,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a row that is about to be stored in a session.
    pub(crate) fn of(
        row: &'a Snapshot,
        state: Option<&StoredState>,
        session: SessionKey,
        encoder: Encoder,
    ) -> Outcome<Self> {
        let messages = state.and_then(|state| state.messages);
        let at = messages.map(|(at, _)| at);
        let (named, rest) = Rest::of(row, state)?;
        let packed = |text: Option<String>| {
            let packed = text.map(|text| encoder.pack(&text)).transpose()?;
            Outcome::Ok(packed.map(Cow::Owned))
        };
        let up_to = match state {
            Some(_) => Some(number_column(at.map_or(0, |at| at.len))?),
            None => None,
        };
        let owner = at.map(|at| at.lineage.session).filter(|owner| *owner != session);
        Ok(Self {
            parent: row.parent_id.as_ref().map(|parent| parent.as_str().as_bytes()),
            created_at: to_nanos(row.created_at)?,
            updated_at: row.updated_at.map(to_nanos).transpose()?,
            heartbeat_at: row.heartbeat_at.map(to_nanos).transpose()?,
            status: to_word(&row.status)?.into(),
            finish_reason: row
                .finish_reason
                .as_ref()
                .map(to_word)
                .transpose()?
                .map(Cow::Owned),
            event: row.event.as_ref().map(to_word).transpose()?.map(Cow::Owned),
            number: row.index.map(u64::cast_signed),
            turn: row.turn_index.map(u64::cast_signed),
            orphaned: row.orphaned,
            details: packed(Details::of(row)?)?,
            lineage: at.map(|at| at.lineage.number),
            line_session: owner.map(|owner| owner.id),
            up_to,
            tail: messages.map(|(_, tail)| tail),
            custom: state.and_then(|state| state.custom),
            artifacts: state.and_then(|state| state.artifacts),
            prompt_input: state.and_then(|state| state.prompt_input),
            named,
            rest: packed(rest)?,
        })
    }

    fn from_row(row: &'a Row) -> Outcome<Self> {
        let word = |index| Outcome::Ok(column::<Option<&str>>(row, index)?.map(Cow::Borrowed));
        let bytes = |index| Outcome::Ok(column::<Option<&[u8]>>(row, index)?.map(Cow::Borrowed));
        Ok(Self {
            parent: column(row, 2)?,
            created_at: column(row, 3)?,
            updated_at: column(row, 4)?,
            heartbeat_at: column(row, 5)?,
            status: column::<&str>(row, 6)?.into(),
            finish_reason: word(7)?,
            event: word(8)?,
            number: column(row, 9)?,
            turn: column(row, 10)?,
            orphaned: column(row, 11)?,
            details: bytes(12)?,
            lineage: column(row, 13)?,
            up_to: column(row, 14)?,
            custom: column(row, 15)?,
            artifacts: column(row, 16)?,
            prompt_input: column(row, 17)?,
            named: column(row, 18)?,
            rest: bytes(19)?,
            line_session: column(row, 22)?,
            tail: column(row, 24)?,
        })
    }

    /// Returns the checksum of the row with this id, in the session of this name and the scope.
    pub(crate) fn checksum(&self, scope: &[u8], session: &[u8], id: &[u8]) -> i64 {
        let number = |sum: Checksum, number: Option<i64>| sum.optional(number, Checksum::integer);
        let sum = Checksum::default().bytes(scope).bytes(session).bytes(id);
        let sum = sum
            .optional(self.parent, Checksum::bytes)
            .integer(self.created_at);
        let sum = number(number(sum, self.updated_at), self.heartbeat_at).text(&*self.status);
        let sum = sum.optional(self.finish_reason.as_deref(), Checksum::text);
        let sum = sum.optional(self.event.as_deref(), Checksum::text);
        let sum = number(number(sum, self.number), self.turn).integer(self.orphaned.into());
        let sum = number(
            sum.optional(self.details.as_deref(), Checksum::bytes),
            self.lineage,
        );
        let sum = sum.optional(self.line_session, Checksum::bytes);
        let sum = number(number(sum, self.up_to.map(i64::from)), self.tail);
        let sum = number(number(sum, self.custom), self.artifacts);
        let sum = number(sum, self.prompt_input).integer(self.named.into());
        sum.optional(self.rest.as_deref(), Checksum::bytes).finish()
    }
}

impl Stored {
    pub(crate) fn from_row(row: &Row) -> Outcome<Self> {
        let columns = Columns::from_row(row)?;
        let (id, name) = (text(row, 0)?, text(row, 1)?);
        let scope = column(row, SCOPE)?;
        if column::<i64>(row, 25)? != columns.checksum(scope, name.as_bytes(), id.as_bytes()) {
            return Err(Fault::damaged(format!(
                "the row of snapshot '{id}' of session '{name}' is not what its checksum says"
            )));
        }
        let details: Details = optional(columns.details.as_deref())?.unwrap_or_default();
        let snapshot = Snapshot {
            snapshot_id: SnapshotId::from(id),
            session_id: Some(SessionId::from(name)),
            parent_id: columns.parent.map(utf8).transpose()?.map(SnapshotId::from),
            created_at: to_time(columns.created_at)?,
            updated_at: columns.updated_at.map(to_time).transpose()?,
            heartbeat_at: columns.heartbeat_at.map(to_time).transpose()?,
            status: from_word(&columns.status)?,
            finish_reason: columns.finish_reason.as_deref().map(from_word).transpose()?,
            event: columns.event.as_deref().map(from_word).transpose()?,
            index: columns.number.map(i64::cast_unsigned),
            turn_index: columns.turn.map(i64::cast_unsigned),
            orphaned: columns.orphaned,
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
        let state = StoredState::of(&columns, &snapshot, session)?;
        Ok(Self {
            session,
            snapshot,
            state,
        })
    }
}

impl StoredState {
    fn of(columns: &Columns<'_>, snapshot: &Snapshot, session: SessionKey) -> Outcome<Option<Self>> {
        let Some(len) = columns.up_to else {
            return Ok(None);
        };
        let rest: Rest = optional(columns.rest.as_deref())?.unwrap_or_default();
        let owner = SessionKey {
            tenant: session.tenant,
            id: columns.line_session.unwrap_or(session.id),
        };
        let messages = match (columns.lineage, columns.tail) {
            (None, _) => None,
            (Some(_), None) => return Err(Fault::damaged("a history has no checksum")),
            (Some(number), Some(tail)) => {
                let lineage = LineageKey {
                    session: owner,
                    number,
                };
                let len = length(len);
                Some((Position { lineage, len }, tail))
            }
        };
        Ok(Some(Self {
            messages,
            custom: columns.custom,
            artifacts: columns.artifacts,
            prompt_input: columns.prompt_input,
            session_id: if columns.named {
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

fn optional<T: DeserializeOwned>(packed: Option<&[u8]>) -> Outcome<Option<T>> {
    let Some(bytes) = packed else {
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
