//! A snapshot as the columns of a row.

use std::borrow::Cow;

use everturn_agent::store::Bookkeeping;
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_ai::JsonObject;
use everturn_core::{Error, RuntimeError};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Fault, Outcome, parse, write};

/// References to the parts of a state. `M` is the reference to the messages.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::exhaustive_structs, reason = "stores create it from their rows")]
pub struct StoredState<M> {
    /// `None` for an empty history.
    pub messages: Option<M>,
    /// The document of the custom state.
    pub custom: Option<i64>,
    /// The document of the artifacts.
    pub artifacts: Option<i64>,
    /// The document of the prompt input.
    pub prompt_input: Option<i64>,
    /// The session id that the state contains.
    pub session_id: Option<SessionId>,
    /// Unknown fields of the state.
    pub extra: JsonObject,
}

impl<M> StoredState<M> {
    /// Returns the documents of the state.
    pub fn documents(&self) -> impl Iterator<Item = i64> + use<M> {
        [self.custom, self.artifacts, self.prompt_input]
            .into_iter()
            .flatten()
    }
}

/// Rarely used fields of a snapshot, stored as JSON.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Details {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<RuntimeError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "Extra::is_empty")]
    extra: Extra,
}

/// The framework's bookkeeping and unknown fields, in one object.
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

/// Rarely used fields of a state, stored as JSON.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Rest {
    /// The state's session id, if it differs from the row's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session_id: Option<SessionId>,
    #[serde(default, skip_serializing_if = "JsonObject::is_empty")]
    extra: JsonObject,
}

/// A JSON column as a database stores it.
pub trait JsonColumn {
    /// Returns the stored text.
    ///
    /// # Errors
    /// [`Fault::Damaged`] if it cannot be decoded.
    fn text(&self) -> Outcome<Cow<'_, str>>;
}

impl JsonColumn for String {
    fn text(&self) -> Outcome<Cow<'_, str>> {
        Ok(Cow::Borrowed(self))
    }
}

/// The columns of a snapshot's row, apart from its keys and the references to its state. `J` is the type of
/// JSON columns.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "stores create it from their rows")]
pub struct Columns<'a, J> {
    /// The id of the parent snapshot.
    pub parent: Option<Cow<'a, str>>,
    /// When the snapshot was created, in nanoseconds.
    pub created_at: i64,
    /// When the snapshot was last changed, in nanoseconds.
    pub updated_at: Option<i64>,
    /// The last heartbeat of the snapshot's run, in nanoseconds.
    pub heartbeat_at: Option<i64>,
    /// The status, as on the wire.
    pub status: Cow<'a, str>,
    /// The finish reason, as on the wire.
    pub finish_reason: Option<Cow<'a, str>>,
    /// The snapshot's event, as on the wire.
    pub event: Option<Cow<'a, str>>,
    /// The bits of the snapshot's index: databases have no unsigned integers.
    pub number: Option<i64>,
    /// The bits of the turn's index.
    pub turn: Option<i64>,
    /// Whether a rewind superseded the snapshot.
    pub orphaned: bool,
    /// Rare fields of the snapshot.
    pub details: Option<J>,
    /// Whether the state repeats the row's session id.
    pub named: bool,
    /// Rare fields of the state.
    pub rest: Option<J>,
}

impl<J> Columns<'_, J> {
    /// Returns the columns of a snapshot whose state has this session id and these unknown fields, if it has
    /// a state.
    ///
    /// # Errors
    /// [`Fault::Refused`] for times and values that cannot be stored; the errors of `encode`.
    pub fn of<'a, E: From<Fault>>(
        row: &'a Snapshot,
        state: Option<(&Option<SessionId>, &JsonObject)>,
        encode: impl Fn(String) -> Result<J, E>,
    ) -> Result<Columns<'a, J>, E> {
        let details = Details {
            error: row.error.clone(),
            labels: row.labels.clone(),
            note: row.note.clone(),
            extra: Extra {
                bookkeeping: row.bookkeeping.clone(),
                others: row.extra.clone(),
            },
        };
        let named = state.is_some_and(|(id, _)| id.is_some() && *id == row.session_id);
        let rest = state.map_or_else(Rest::default, |(id, extra)| Rest {
            session_id: id.clone().filter(|_| !named),
            extra: extra.clone(),
        });
        Ok(Columns {
            parent: row.parent_id.as_ref().map(|parent| parent.as_str().into()),
            created_at: to_nanos(row.created_at)?,
            updated_at: row.updated_at.map(to_nanos).transpose()?,
            heartbeat_at: row.heartbeat_at.map(to_nanos).transpose()?,
            status: to_word(&row.status)?.into(),
            finish_reason: optional_word(row.finish_reason.as_ref())?,
            event: optional_word(row.event.as_ref())?,
            number: row.index.map(u64::cast_signed),
            turn: row.turn_index.map(u64::cast_signed),
            orphaned: row.orphaned,
            details: unless_default(&details)?.map(&encode).transpose()?,
            named,
            rest: unless_default(&rest)?.map(&encode).transpose()?,
        })
    }
}

impl<J: JsonColumn> Columns<'_, J> {
    /// Returns the snapshot, without its state.
    ///
    /// # Errors
    /// [`Fault::Damaged`] for columns that no version writes.
    pub fn snapshot(&self, id: &str, session: &str) -> Outcome<Snapshot> {
        let details: Details = optional(self.details.as_ref())?;
        Ok(Snapshot {
            snapshot_id: SnapshotId::from(id),
            session_id: Some(SessionId::from(session)),
            parent_id: self.parent.as_deref().map(SnapshotId::from),
            created_at: to_time(self.created_at)?,
            updated_at: self.updated_at.map(to_time).transpose()?,
            heartbeat_at: self.heartbeat_at.map(to_time).transpose()?,
            status: from_word(&self.status)?,
            finish_reason: self.finish_reason.as_deref().map(from_word).transpose()?,
            event: self.event.as_deref().map(from_word).transpose()?,
            index: self.number.map(i64::cast_unsigned),
            turn_index: self.turn.map(i64::cast_unsigned),
            orphaned: self.orphaned,
            error: details.error,
            labels: details.labels,
            note: details.note,
            bookkeeping: details.extra.bookkeeping,
            extra: details.extra.others,
            state: None,
        })
    }

    /// Returns the state of a snapshot with these parts.
    ///
    /// # Errors
    /// [`Fault::Damaged`] for columns that no version writes.
    pub fn state<M>(
        &self,
        snapshot: &Snapshot,
        messages: Option<M>,
        [custom, artifacts, prompt_input]: [Option<i64>; 3],
    ) -> Outcome<StoredState<M>> {
        let rest: Rest = optional(self.rest.as_ref())?;
        let named = snapshot.session_id.clone().filter(|_| self.named);
        Ok(StoredState {
            messages,
            custom,
            artifacts,
            prompt_input,
            session_id: named.or(rest.session_id),
            extra: rest.extra,
        })
    }
}

fn unless_default<T: Default + PartialEq + Serialize>(fields: &T) -> Outcome<Option<String>> {
    (*fields != T::default()).then(|| write(fields)).transpose()
}

fn optional<T: Default + DeserializeOwned>(column: Option<&impl JsonColumn>) -> Outcome<T> {
    column.map_or_else(|| Ok(T::default()), |column| parse(&column.text()?))
}

fn optional_word<T: Serialize>(variant: Option<&T>) -> Outcome<Option<Cow<'static, str>>> {
    Ok(variant.map(to_word).transpose()?.map(Cow::Owned))
}

/// Returns the name of an enum's variant on the wire.
///
/// # Errors
/// [`Fault::Refused`] for a variant that is not a string on the wire.
pub fn to_word<T: Serialize>(variant: &T) -> Outcome<String> {
    match serde_json::to_value(variant) {
        Ok(Value::String(word)) => Ok(word),
        _ => Err(Error::internal("an enum is not a string on the wire").into()),
    }
}

/// Returns the variant of an enum with a name on the wire.
///
/// # Errors
/// [`Fault::Damaged`] for an unknown name.
pub fn from_word<T: DeserializeOwned>(word: &str) -> Outcome<T> {
    serde_json::from_value(word.into()).map_err(|error| Fault::damaged(format!("'{word}': {error}")))
}

/// Returns a time in nanoseconds.
///
/// # Errors
/// [`Fault::Refused`] for a time outside of the years 1678 to 2262.
pub fn to_nanos(time: Timestamp) -> Outcome<i64> {
    i64::try_from(time.as_nanosecond()).map_err(|_| {
        let refusal =
            format!("the time {time} cannot be stored: it must lie between the years 1678 and 2262");
        Error::invalid_argument(refusal).into()
    })
}

/// Returns the time of a stored number of nanoseconds.
///
/// # Errors
/// [`Fault::Damaged`] for a number outside of the range of times.
pub fn to_time(nanos: i64) -> Outcome<Timestamp> {
    Timestamp::from_nanosecond(nanos.into()).map_err(|error| Fault::damaged(error.to_string()))
}

/// Checks the length of an id or a name in bytes.
///
/// # Errors
/// [`Fault::Refused`] if it is longer than `max`.
pub fn check_id(what: &str, id: &str, max: usize) -> Outcome<()> {
    if id.len() <= max {
        return Ok(());
    }
    let length = id.len();
    Err(Error::invalid_argument(format!(
        "a {what} of {length} bytes is too long: {max} are allowed"
    ))
    .into())
}
