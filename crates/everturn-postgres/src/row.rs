//! A snapshot as the columns of a row.

use std::borrow::Cow;

use everturn_agent::Snapshot;
use everturn_agent::store::Checksum;
use everturn_sql::{Encoding, StoreFault};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::body::{Packed, pack};
use crate::fault::{Fault, Outcome};
use crate::position::{Position, SessionKey, Tail, column as number_column, length};
use crate::statement::{column, session_key};

/// References to the parts of a state: the history's position with the checksum of its last message, and
/// documents of the row's own session.
pub(crate) type StoredState = everturn_sql::StoredState<(Position, Tail)>;

/// The greatest length, in bytes, of a snapshot id, a session id or a scope: two of them fit into an index of
/// PostgreSQL.
pub const MAX_ID: usize = 1024;

/// The columns that [`Stored::from_row`] reads, from a snapshot `s` and its session `n`.
pub(crate) const COLUMNS: &str = "s.id, n.name, s.parent, s.created_at, s.updated_at, s.heartbeat_at, s.status, \
    s.finish_reason, s.event, s.number, s.turn, s.orphaned, s.details, s.lineage, s.up_to, s.custom, s.artifacts, \
    s.prompt_input, s.named, s.rest, s.tenant, s.session, s.line_session, s.scope, s.tail, s.checksum";

/// The column of the tenant's name.
pub(crate) const SCOPE: usize = 23;

/// The columns of a row, apart from those that identify it.
pub(crate) struct Columns<'a> {
    pub(crate) common: everturn_sql::Columns<'a, Packed<'a>>,
    pub(crate) lineage: Option<i64>,
    /// The session of the lineage, if that is another one.
    pub(crate) line_session: Option<Uuid>,
    pub(crate) up_to: Option<i32>,
    pub(crate) tail: Option<Tail>,
    pub(crate) custom: Option<i64>,
    pub(crate) artifacts: Option<i64>,
    pub(crate) prompt_input: Option<i64>,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a row that is about to be stored in a session.
    pub(crate) fn of(
        row: &'a Snapshot,
        state: Option<&StoredState>,
        session: SessionKey,
        encoding: Encoding,
    ) -> Outcome<Self> {
        let fields = state.map(|state| (&state.session_id, &state.extra));
        let packed = |text: String| Outcome::Ok(Packed(pack(encoding, &text)?.into()));
        let messages = state.and_then(|state| state.messages);
        let at = messages.map(|(at, _)| at);
        let up_to = match state {
            Some(_) => Some(number_column(at.map_or(0, |at| at.len))?),
            None => None,
        };
        let owner = at.map(|at| at.lineage.session).filter(|owner| *owner != session);
        Ok(Self {
            common: everturn_sql::Columns::of(row, fields, packed)?,
            lineage: at.map(|at| at.lineage.number),
            line_session: owner.map(|owner| owner.id),
            up_to,
            tail: messages.map(|(_, tail)| tail),
            custom: state.and_then(|state| state.custom),
            artifacts: state.and_then(|state| state.artifacts),
            prompt_input: state.and_then(|state| state.prompt_input),
        })
    }

    fn from_row(row: &'a Row) -> Outcome<Self> {
        let word = |index| Outcome::Ok(column::<Option<&str>>(row, index)?.map(Cow::Borrowed));
        let packed = |index| {
            let bytes = column::<Option<&[u8]>>(row, index)?;
            Outcome::Ok(bytes.map(|bytes| Packed(Cow::Borrowed(bytes))))
        };
        Ok(Self {
            common: everturn_sql::Columns {
                parent: optional_text(row, 2)?.map(Cow::Borrowed),
                created_at: column(row, 3)?,
                updated_at: column(row, 4)?,
                heartbeat_at: column(row, 5)?,
                status: column::<&str>(row, 6)?.into(),
                finish_reason: word(7)?,
                event: word(8)?,
                number: column(row, 9)?,
                turn: column(row, 10)?,
                orphaned: column(row, 11)?,
                details: packed(12)?,
                named: column(row, 18)?,
                rest: packed(19)?,
            },
            lineage: column(row, 13)?,
            up_to: column(row, 14)?,
            custom: column(row, 15)?,
            artifacts: column(row, 16)?,
            prompt_input: column(row, 17)?,
            line_session: column(row, 22)?,
            tail: column(row, 24)?,
        })
    }

    /// Returns the checksum of the row with this id, in the session of this name and the scope.
    pub(crate) fn checksum(&self, scope: &[u8], session: &[u8], id: &[u8]) -> i64 {
        let common = &self.common;
        let number = |sum: Checksum, number: Option<i64>| sum.optional(number, Checksum::integer);
        let sum = Checksum::default().bytes(scope).bytes(session).bytes(id);
        let sum = sum
            .optional(common.parent.as_deref().map(str::as_bytes), Checksum::bytes)
            .integer(common.created_at);
        let sum = number(number(sum, common.updated_at), common.heartbeat_at).text(&*common.status);
        let sum = sum.optional(common.finish_reason.as_deref(), Checksum::text);
        let sum = sum.optional(common.event.as_deref(), Checksum::text);
        let sum = number(number(sum, common.number), common.turn).integer(common.orphaned.into());
        let sum = number(
            sum.optional(common.details.as_ref().map(|packed| &*packed.0), Checksum::bytes),
            self.lineage,
        );
        let sum = sum.optional(self.line_session, Checksum::bytes);
        let sum = number(number(sum, self.up_to.map(i64::from)), self.tail);
        let sum = number(number(sum, self.custom), self.artifacts);
        let sum = number(sum, self.prompt_input).integer(common.named.into());
        sum.optional(common.rest.as_ref().map(|packed| &*packed.0), Checksum::bytes)
            .finish()
    }
}

/// A row as it is stored: the snapshot without its state, and references to the parts of the state.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) session: SessionKey,
    pub(crate) snapshot: Snapshot,
    pub(crate) state: Option<StoredState>,
}

impl Stored {
    pub(crate) fn from_row(row: &Row) -> Outcome<Self> {
        let columns = Columns::from_row(row)?;
        let (id, name) = (text(row, 0)?, text(row, 1)?);
        let scope = column(row, SCOPE)?;
        if column::<i64>(row, 25)? != columns.checksum(scope, name.as_bytes(), id.as_bytes()) {
            return Err(Fault::damaged(format!(
                "the row of snapshot '{id}' of session '{name}' does not match its checksum"
            )));
        }
        let snapshot = columns.common.snapshot(id, name)?;
        let session = session_key(row, 20)?;
        let state = columns.state(&snapshot, session)?;
        Ok(Self {
            session,
            snapshot,
            state,
        })
    }
}

impl Columns<'_> {
    fn state(&self, snapshot: &Snapshot, session: SessionKey) -> Outcome<Option<StoredState>> {
        let Some(len) = self.up_to else {
            return Ok(None);
        };
        let messages = match (self.lineage, self.tail) {
            (None, _) => None,
            (Some(_), None) => return Err(Fault::damaged("a history has no checksum")),
            (Some(number), Some(tail)) => {
                let owner = SessionKey::new(session.tenant, self.line_session.unwrap_or(session.id));
                let lineage = owner.lineage(number);
                let len = length(len);
                Some((Position::new(lineage, len), tail))
            }
        };
        let documents = [self.custom, self.artifacts, self.prompt_input];
        Ok(Some(self.common.state(snapshot, messages, documents)?))
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

/// Refuses an id that is longer than [`MAX_ID`].
pub(crate) fn check_id(what: &str, id: &str) -> Outcome<()> {
    Ok(everturn_sql::check_id(what, id, MAX_ID)?)
}
