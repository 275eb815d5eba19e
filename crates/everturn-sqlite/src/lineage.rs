//! Stored histories: a message is stored once, and a snapshot refers to a position in a lineage.
//!
//! Invariants: the messages of a lineage are contiguous from its base on; a position names the lineage that
//! holds its last message; a message is never replaced, and a lineage that lost messages is never appended to
//! again. So the messages at an existing position never change, and a position exists if its last message
//! does.

use everturn_ai::{History, Message};
use everturn_core::Error;
use everturn_sql::{StoreFault, check_history, parse, write};
use rusqlite::types::ValueRef;

use crate::cache::Place;
use crate::checksum::{Checksum, check};
use crate::fault::{Fault, Outcome};
use crate::position::{POSITION_BITS, Position, end_of_keys, message_index, message_key};
use crate::prepare::{Encoded, PreparedHistory, Preparing, Start};
use crate::read::Reading;
use crate::statement::Statements;
use crate::write::Writing;

/// A stored lineage, and the length of the longest history in it.
struct Line {
    parent: Option<i64>,
    base: usize,
    open: bool,
    tip: usize,
}

/// Returns the checksum of what a lineage refers to.
fn checksum_of(lineage: i64, parent: Option<i64>, base: usize) -> i64 {
    let base = i64::try_from(base).unwrap_or(i64::MAX);
    Checksum::default()
        .with(ValueRef::Integer(lineage))
        .with(parent.map_or(ValueRef::Null, ValueRef::Integer))
        .with(ValueRef::Integer(base))
        .finish()
}

impl Reading<'_> {
    /// Returns the history at a position. It shares the messages that other snapshots have read or written.
    pub(crate) fn history(&mut self, at: Position) -> Outcome<History> {
        let mut missing = Vec::new();
        let mut position = at;
        let mut history = loop {
            if let Some(known) = self.cache.history(position.lineage) {
                // The lineage has grown since it was read: only the rest is missing.
                if known.len() < position.len {
                    missing.push((position.lineage, known.len(), position.len));
                }
                break known.truncate_to(position.len);
            }
            let line = self
                .line(position.lineage)?
                .ok_or_else(|| Fault::damaged("a lineage is missing"))?;
            // A damaged chain could otherwise lead in a circle.
            if line.base >= position.len {
                return Err(Fault::damaged("a lineage begins after its last message"));
            }
            missing.push((position.lineage, line.base, position.len));
            match line.parent {
                Some(parent) => position = Position::new(parent, line.base),
                None => break History::new(),
            }
        };
        // From the root upwards, because a fork continues its parent's messages.
        for (lineage, from, to) in missing.into_iter().rev() {
            self.extend(&mut history, lineage, from, to)?;
            self.cache.learn_history(lineage, &history);
        }
        Ok(history)
    }

    /// Appends the messages `from..to` of a lineage to a history.
    fn extend(&mut self, history: &mut History, lineage: i64, from: usize, to: usize) -> Outcome<()> {
        let mut statement = self.db.prepare_cached(
            "SELECT key, cuts, body, checksum FROM message WHERE key >= ?1 AND key < ?2 ORDER BY key",
        )?;
        let mut rows = statement.query([message_key(lineage, from), message_key(lineage, to)])?;
        for index in from..to {
            let missing = || Fault::damaged(format!("message {index} is missing"));
            let row = rows.next()?.ok_or_else(missing)?;
            let key: i64 = row.get(0)?;
            // A gap in the keys is a lost message, and skipping it would shift all later ones.
            if message_index(key) != index {
                return Err(missing());
            }
            let (cuts, checksum) = (row.get::<_, i64>(1)?, row.get(3)?);
            let text = self.decoder.text(row.get_ref(2)?)?;
            let message_of = |text: &str| -> Outcome<Message> {
                check(&format!("message {index}"), checksum, || {
                    Checksum::of_text(key, text)
                })?;
                Ok(parse(text)?)
            };
            let message = if cuts == 0 {
                message_of(text)?
            } else {
                let text = text.to_owned();
                let whole = self.with_message_blobs(key, &text, cuts)?;
                message_of(&whole)?
            };
            history.push(message);
        }
        Ok(())
    }

    /// Returns the checksum of a lineage as it is stored.
    pub(crate) fn lineage_checksum(&self, lineage: i64) -> Outcome<i64> {
        let sql = "SELECT parent, base FROM lineage WHERE key = ?1";
        let (parent, base) = self
            .db
            .one(sql, [lineage], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(checksum_of(lineage, parent, base))
    }

    fn line(&self, lineage: i64) -> Outcome<Option<Line>> {
        let sql = "SELECT parent, base, open, \
             (SELECT key FROM message WHERE key >= ?2 AND key < ?3 ORDER BY key DESC LIMIT 1), checksum \
             FROM lineage WHERE key = ?1";
        let line = self.db.find(
            sql,
            (lineage, message_key(lineage, 0), end_of_keys(lineage)),
            |row| {
                let base = row.get(1)?;
                let last: Option<i64> = row.get(3)?;
                let tip = last.map_or(base, |key| message_index(key) + 1);
                let line = Line {
                    parent: row.get(0)?,
                    base,
                    open: row.get(2)?,
                    tip,
                };
                Ok((line, row.get(4)?))
            },
        )?;
        let Some((line, checksum)) = line else {
            return Ok(None);
        };
        check("a lineage", checksum, || {
            checksum_of(lineage, line.parent, line.base)
        })?;
        Ok(Some(line))
    }

    /// Returns the position in the lineage that holds its last message; `None` if the position no longer
    /// exists.
    fn resolve(&self, mut at: Position) -> Outcome<Option<(Position, Line)>> {
        let mut fork = usize::MAX;
        loop {
            let Some(line) = self.line(at.lineage)? else {
                return Ok(None);
            };
            if line.base >= fork {
                return Err(Fault::damaged("a lineage begins after its last message"));
            }
            fork = line.base;
            if at.len > line.base {
                return Ok((at.len <= line.tip).then_some((at, line)));
            }
            let Some(parent) = line.parent else {
                return Ok(None);
            };
            at.lineage = parent;
        }
    }
}

impl Preparing<'_> {
    /// Encodes the new messages of a history; `None` for an empty history.
    ///
    /// `start` is the result of [`Preparing::remembered_start`]. Without it, the history is compared with the
    /// histories at the `related` positions, which probably begin alike.
    pub(crate) fn history(
        &mut self,
        history: &History,
        start: Option<Start>,
        related: &[Position],
    ) -> Outcome<Option<PreparedHistory>> {
        if history.is_empty() {
            return Ok(None);
        }
        check_history(history)?;
        let start = match start {
            Some(start) => Some(start),
            None => self.common_start(history, related)?,
        };
        let stored = start.map_or(0, |start| start.at.len);
        let messages = history.since(stored).map(|message| {
            let text = write(message)?;
            self.encode(&text)
        });
        Ok(Some(PreparedHistory {
            messages: messages.collect::<Outcome<_>>()?,
            start,
            history: history.clone(),
        }))
    }

    /// Returns the longest beginning of a history that this process remembers to be stored. It may be gone by
    /// now.
    pub(crate) fn remembered_start(&self, history: &History) -> Option<Start> {
        let mut next = Some(history);
        while let Some(history) = next {
            let lineage = history.lineage();
            if let Some(place) = self.reading.cache.place(lineage.id()) {
                // The lineage may have grown in memory beyond the part that was saved.
                let len = history.len().min(place.saved);
                if len > 0 {
                    let at = Position::new(place.lineage, len);
                    let remembered = Some(lineage.id());
                    return Some(Start { at, remembered });
                }
            }
            next = lineage.parent();
        }
        None
    }

    /// Returns the longest beginning that a history has in common with a related one, by comparing messages.
    fn common_start(&mut self, history: &History, related: &[Position]) -> Outcome<Option<Start>> {
        let mut best: Option<Start> = None;
        for at in related {
            let other = self.reading.history(*at)?;
            let len = history.common_prefix(&other);
            if len > best.map_or(0, |best| best.at.len) {
                let at = Position::new(at.lineage, len);
                best = Some(Start { at, remembered: None });
            }
        }
        Ok(best)
    }
}

impl Writing<'_> {
    /// Stores the new messages of a history and returns its position.
    pub(crate) fn put_history(&mut self, prepared: &PreparedHistory) -> Outcome<Position> {
        let PreparedHistory {
            history,
            start,
            messages,
        } = prepared;
        let start = start.map(|start| self.still_there(start)).transpose()?;
        let stored = start.as_ref().map_or(0, |(at, _)| at.len);
        let lineage = match start {
            Some((at, _)) if at.len == history.len() => at.lineage,
            Some((at, line)) if line.open && line.tip == at.len => at.lineage,
            Some((at, _)) => self.new_lineage(Some(at))?,
            None => self.new_lineage(None)?,
        };
        for (index, message) in (stored..).zip(messages) {
            self.put_message(message_key(lineage, index), message)?;
        }
        self.remember(lineage, history);
        Ok(Position::new(lineage, history.len()))
    }

    /// Returns where a position is now, unless it was deleted since the save was prepared.
    fn still_there(&self, start: Start) -> Outcome<(Position, Line)> {
        let found = self.reading.resolve(start.at)?;
        if let (None, Some(lineage)) = (&found, start.remembered) {
            self.reading.cache.forget_place(lineage);
        }
        found.ok_or(Fault::Stale)
    }

    fn new_lineage(&self, parent: Option<Position>) -> Outcome<i64> {
        let base = parent.map_or(0, |parent| parent.len);
        let parent = parent.map(|parent| parent.lineage);
        let sql = "INSERT INTO lineage (parent, base, open, checksum) VALUES (?1, ?2, 1, 0)";
        let key = self.reading.db.insert(sql, (parent, base))?;
        let sql = "UPDATE lineage SET checksum = ?2 WHERE key = ?1";
        self.reading.db.run(sql, (key, checksum_of(key, parent, base)))?;
        if key > i64::MAX >> POSITION_BITS >> 1 {
            return Err(Error::resource_exhausted(
                "the session database has no lineages left: start a new one",
            )
            .into());
        }
        Ok(key)
    }

    fn put_message(&mut self, key: i64, message: &Encoded) -> Outcome<()> {
        let sql = "INSERT INTO message (key, cuts, body, checksum) VALUES (?1, ?2, ?3, ?4)";
        self.reading.db.run(
            sql,
            (key, message.pieces.len(), &message.body, message.checksum(key)),
        )?;
        for piece in &message.pieces {
            self.link_message_blob(key, piece)?;
        }
        Ok(())
    }

    /// Remembers where a history, and the histories that it forked from, are stored.
    fn remember(&mut self, lineage: i64, history: &History) {
        let mut next = history.lineage().parent();
        while let Some(earlier) = next
            && self.reading.cache.place(earlier.lineage().id()).is_none()
        {
            let saved = earlier.len();
            let place = Place { lineage, saved };
            self.reading.cache.learn_place(earlier.lineage().id(), place);
            next = earlier.lineage().parent();
        }
        self.reading.cache.learn_history(lineage, history);
    }
}
