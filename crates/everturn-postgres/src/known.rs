//! The cached knowledge of a session at one version.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::SnapshotId;
use everturn_agent::store::{Checksum, JournalGuard};
use everturn_sql::{StoreFault, to_time};
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::fault::{Fault, Outcome};
use crate::position::{LineageKey, SessionKey, length};
use crate::row::{Stored, optional_text};
use crate::statement::column;

/// How many lineages of a session are remembered.
const MAX_LINES: usize = 32;

/// The columns that [`known`] reads, of a session `n` and the lineage `l` of a snapshot `s`. They follow
/// [`COLUMNS`](crate::row::COLUMNS).
pub(crate) const KNOWN: &str = "n.version, n.tip_at, n.tip, n.tokens, l.parent_session, l.parent, l.base, l.cut, \
    (SELECT max(m.number) FROM @message m WHERE m.tenant = l.tenant AND m.session = l.session AND m.lineage = l.number), \
    l.checksum";

/// Joins the lineage that [`KNOWN`] refers to: that of the snapshot, if it is the session's own.
pub(crate) const KNOWN_LINE: &str = "LEFT JOIN @lineage l ON l.tenant = s.tenant AND l.session = s.session \
    AND l.number = s.lineage AND s.line_session IS NULL";

const FIRST_KNOWN: usize = 26;

/// The column of the session's tip among [`KNOWN`].
pub(crate) const TIP: usize = FIRST_KNOWN + 2;

/// Where a session's tip is in the order of rows.
pub(crate) type Tip = (Timestamp, SnapshotId);

/// A stored lineage at a version of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) parent: Option<LineageKey>,
    pub(crate) base: usize,
    /// The length of the longest history in it.
    pub(crate) end: usize,
    /// Where it lost its messages, if it did.
    pub(crate) cut: Option<usize>,
}

/// A session at one version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) version: i64,
    pub(crate) tip: Option<Tip>,
    pub(crate) lines: HashMap<i64, Line>,
    /// A snapshot of the session: mostly the parent of the next one.
    pub(crate) row: Option<Arc<Stored>>,
    /// A journal's guard that allowed writing.
    pub(crate) guard: Option<JournalGuard>,
}

impl Known {
    /// Returns the session's latest snapshot, if it is the one that is remembered.
    pub(crate) fn tip_row(&self) -> Option<&Arc<Stored>> {
        let (_, tip) = self.tip.as_ref()?;
        self.row.as_ref().filter(|row| row.snapshot.snapshot_id == *tip)
    }

    pub(crate) fn learn_line(&mut self, number: i64, line: Line) {
        if self.lines.len() >= MAX_LINES {
            self.lines.clear();
        }
        self.lines.insert(number, line);
    }
}

/// A session as a read found it, and the tokens of its last commits.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) known: Arc<Known>,
    pub(crate) tokens: Vec<i64>,
}

/// Reads the columns [`KNOWN`] of a row; `None` if there is no such session. `stored` is the snapshot in the
/// row.
pub(crate) fn known(row: &Row, stored: Option<&Stored>) -> Outcome<Option<Found>> {
    let at = |index: usize| FIRST_KNOWN + index;
    let Some(version) = column::<Option<i64>>(row, at(0))? else {
        return Ok(None);
    };
    let tip = match (column::<Option<i64>>(row, at(1))?, optional_text(row, at(2))?) {
        (Some(created_at), Some(id)) => Some((to_time(created_at)?, SnapshotId::from(id))),
        _ => None,
    };
    let mut known = Known {
        version,
        tip,
        ..Known::default()
    };
    if let Some(stored) = stored {
        known.row = Some(Arc::new(stored.clone()));
        let position = stored.state.as_ref().and_then(|state| state.messages);
        if let Some((position, _)) = position
            && let Some(line) = line(row, at(4), position.lineage)?
        {
            known.learn_line(position.lineage.number, line);
        }
    }
    Ok(Some(Found {
        known: Arc::new(known),
        tokens: column(row, at(3))?,
    }))
}

/// Reads a lineage from six columns: the session and the number of its parent, its base, its cut, its last
/// message and its checksum.
pub(crate) fn line(row: &Row, first: usize, key: LineageKey) -> Outcome<Option<Line>> {
    let Some(base) = column::<Option<i32>>(row, first + 2)? else {
        return Ok(None);
    };
    let parent = match (
        column::<Option<Uuid>>(row, first)?,
        column::<Option<i64>>(row, first + 1)?,
    ) {
        (Some(id), Some(number)) => Some(LineageKey {
            session: SessionKey::new(key.session.tenant, id),
            number,
        }),
        _ => None,
    };
    let cut: Option<i32> = column(row, first + 3)?;
    if column::<i64>(row, first + 5)? != line_checksum(key, parent, base, cut) {
        return Err(Fault::damaged(format!(
            "the row of lineage {} is not what its checksum says",
            key.number
        )));
    }
    let last: Option<i32> = column(row, first + 4)?;
    Ok(Some(Line {
        parent,
        base: length(base),
        end: last.map_or(length(base), |last| length(last) + 1),
        cut: cut.map(length),
    }))
}

/// Returns the checksum of a lineage's row.
pub(crate) fn line_checksum(key: LineageKey, parent: Option<LineageKey>, base: i32, cut: Option<i32>) -> i64 {
    Checksum::default()
        .bytes(key.session.id)
        .integer(key.number)
        .optional(parent, |sum, parent| {
            sum.bytes(parent.session.id).integer(parent.number)
        })
        .integer(base.into())
        .optional(cut, |sum, cut| sum.integer(cut.into()))
        .finish()
}
