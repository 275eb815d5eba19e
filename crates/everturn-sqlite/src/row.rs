//! A snapshot as the columns of a row.

use std::borrow::Cow;
use std::ops::Range;

use everturn_agent::{SessionId, Snapshot};
use everturn_sql::{Columns, StoreFault};
use rusqlite::Row;
use rusqlite::types::{Value, ValueRef};

use crate::checksum::Checksum;
use crate::fault::{Fault, Outcome};
use crate::position::Position;

/// References to the parts of a state.
pub(crate) type StoredState = everturn_sql::StoredState<Position>;

/// The greatest length, in bytes, of a snapshot id, a session id or a scope.
pub const MAX_ID: usize = 4096;

/// The columns that [`Stored::from_row`] reads, from `snapshot` joined with its `session`.
pub(crate) const COLUMNS: &str = "snapshot.key, snapshot.id, session.name, snapshot.parent, snapshot.created_at, \
    snapshot.updated_at, snapshot.heartbeat_at, snapshot.status, snapshot.finish_reason, snapshot.event, \
    snapshot.number, snapshot.turn, snapshot.orphaned, snapshot.details, snapshot.lineage, snapshot.up_to, \
    snapshot.custom, snapshot.artifacts, snapshot.prompt_input, snapshot.named, snapshot.rest, snapshot.session, \
    snapshot.scope, snapshot.checksum";

/// The columns that a row's checksum covers: from its id on, without the key of its session, whose name is
/// among them.
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

    /// Returns the checksum of a row that is about to be stored. `columns` are those of the `INSERT`
    /// statement, which do not repeat the session's name.
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
        let text = |column| Ok::<_, Fault>(row.get::<_, Option<String>>(column)?.map(Cow::Owned));
        let columns: Columns<'_, String> = Columns {
            parent: text(3)?,
            created_at: row.get(4)?,
            updated_at: row.get(5)?,
            heartbeat_at: row.get(6)?,
            status: row.get::<_, String>(7)?.into(),
            finish_reason: text(8)?,
            event: text(9)?,
            number: row.get(10)?,
            turn: row.get(11)?,
            orphaned: row.get(12)?,
            details: row.get(13)?,
            named: row.get(19)?,
            rest: row.get(20)?,
        };
        let name = |column| Ok::<_, Fault>(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?);
        let snapshot = columns.snapshot(name(1)?, name(2)?)?;
        // A state without messages has the length 0; a row without a state has none.
        let state = match row.get(15)? {
            Some(len) => {
                let lineage: Option<i64> = row.get(14)?;
                let messages = lineage.map(|lineage| Position::new(lineage, len));
                let documents = [row.get(16)?, row.get(17)?, row.get(18)?];
                Some(columns.state(&snapshot, messages, documents)?)
            }
            None => None,
        };
        Ok(Self {
            key: row.get(0)?,
            session: row.get(21)?,
            scope: row.get(22)?,
            snapshot,
            state,
        })
    }
}

/// The columns of [`columns`] that refer to the parts of a state.
pub(crate) const STATE_COLUMNS: Range<usize> = 12..17;

/// Returns the columns of a row that is about to be stored. The columns in [`STATE_COLUMNS`] are empty.
pub(crate) fn columns(row: &Snapshot) -> Outcome<Vec<Value>> {
    let state = row.state.as_ref().map(|state| (&state.session_id, &state.extra));
    let written = Columns::of(row, state, Outcome::Ok)?;
    let text = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned).into();
    let mut columns: Vec<Value> = vec![
        row.snapshot_id.as_str().to_owned().into(),
        text(written.parent),
        written.created_at.into(),
        written.updated_at.into(),
        written.heartbeat_at.into(),
        written.status.into_owned().into(),
        text(written.finish_reason),
        text(written.event),
        written.number.into(),
        written.turn.into(),
        written.orphaned.into(),
        written.details.into(),
    ];
    columns.resize(STATE_COLUMNS.end, Value::Null);
    columns.extend([written.named.into(), written.rest.into()]);
    Ok(columns)
}

/// Returns the columns that refer to the parts of a state, in their order.
pub(crate) fn state_columns(state: &StoredState) -> Outcome<[Value; 5]> {
    let len = state.messages.map_or(0, |messages| messages.len);
    let len = i64::try_from(len).map_err(|_| Fault::damaged("a history is too long to be counted"))?;
    Ok([
        state.messages.map(|messages| messages.lineage).into(),
        len.into(),
        state.custom.into(),
        state.artifacts.into(),
        state.prompt_input.into(),
    ])
}

/// Refuses an id that is longer than [`MAX_ID`].
pub(crate) fn check_id(what: &str, id: &str) -> Outcome<()> {
    Ok(everturn_sql::check_id(what, id, MAX_ID)?)
}
