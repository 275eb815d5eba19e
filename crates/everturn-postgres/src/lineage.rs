//! Stored histories: a message is stored once, and a snapshot refers to a position in a lineage.
//!
//! Invariants: the messages of a lineage are contiguous from its base on; a position names the lineage that
//! holds its last message; a message is never replaced, and a lineage that lost messages is never appended to
//! again. So the messages at an existing position never change, and a position exists if its last message
//! does.
//!
//! A lineage belongs to the session that wrote it. Other sessions may fork from it, or refer to it; a commit
//! that does locks the lineage against deletion.

use everturn_ai::{History, Message};
use everturn_sql::{StoreFault, check_history, parse, write};

use crate::blob::Pieces;
use crate::body::pack;
use crate::cache::{Grown, Place, StoredHistory};
use crate::change::{Cut, Plan, Remember};
use crate::fault::{Fault, Outcome};
use crate::known::{Line, line};
use crate::position::{
    LineageKey, Position, SessionKey, Tail, column as number_column, follows, length, tail,
};
use crate::read::{Reading, ids};
use crate::statement::{Statement, column};

/// A position that exists, in the lineage that holds its last message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) at: Position,
    /// The checksum of its last message.
    pub(crate) tail: Tail,
    /// Whether the next message can follow it in its lineage.
    open: bool,
}

/// The messages `from..to` of a lineage.
struct Segment {
    lineage: LineageKey,
    from: usize,
    to: usize,
}

impl Reading<'_> {
    /// Returns the history at a position, whose last message has this checksum. It shares the messages that
    /// other snapshots have read or written.
    pub(crate) async fn history(&self, at: Position, tail: Tail) -> Outcome<StoredHistory> {
        if let Some(known) = self.store.cache.history(at.lineage)
            && known.tail(at.len) == Some(tail)
        {
            return Ok(known.truncate_to(at.len));
        }
        match self.read_history(at, tail, true).await {
            // The cached history may be from before the database was restored.
            Err(Fault::Damaged(_)) => self.read_history(at, tail, false).await,
            outcome => outcome,
        }
    }

    /// Reads a history. With `recalls`, messages in memory are not read again.
    async fn read_history(&self, at: Position, tail: Tail, recalls: bool) -> Outcome<StoredHistory> {
        let remembered = |lineage: LineageKey| {
            let known = self.store.cache.history(lineage).filter(|_| recalls);
            // One that is long enough was compared already, and differs.
            known.filter(|known| lineage != at.lineage || known.len() < at.len)
        };
        let rest = |begun: &StoredHistory| Segment {
            lineage: at.lineage,
            from: begun.len(),
            to: at.len,
        };
        if let Some(known) = remembered(at.lineage) {
            let rest = rest(&known);
            return self.extend(known, &[rest], tail).await;
        }
        let mut segments = Vec::new();
        let mut position = at;
        let mut begun = StoredHistory::default();
        for (lineage, line) in self.lines(at.lineage).await? {
            if lineage != position.lineage || line.base >= position.len {
                return Err(Fault::damaged("a lineage begins after its last message"));
            }
            let mut segment = Segment {
                lineage,
                from: line.base,
                to: position.len,
            };
            // A history that is remembered spares reading its part, and the lineages before it.
            if let Some(known) = remembered(lineage) {
                begun = known.truncate_to(position.len);
                segment.from = begun.len();
                segments.push(segment);
                position.len = 0;
                break;
            }
            segments.push(segment);
            let Some(parent) = line.parent else {
                position.len = 0;
                break;
            };
            position = Position::new(parent, line.base);
        }
        if position.len > 0 {
            return Err(Fault::damaged("a lineage is missing"));
        }
        segments.reverse();
        segments.retain(|segment| segment.from < segment.to);
        self.extend(begun, &segments, tail).await
    }

    /// Appends the messages of segments to a history, of which the last has the checksum `tail`.
    async fn extend(
        &self,
        mut history: StoredHistory,
        segments: &[Segment],
        tail: Tail,
    ) -> Outcome<StoredHistory> {
        let is_whole = |history: &StoredHistory| match history.tail(history.len()) {
            Some(last) if last == tail => Ok(()),
            _ => Err(Fault::damaged(
                "its messages are others than those that were saved, by their checksum",
            )),
        };
        let Some(first) = segments.first() else {
            is_whole(&history)?;
            return Ok(history);
        };
        let tenant = first.lineage.session.tenant;
        let sessions = ids(segments.iter().map(|segment| segment.lineage.session));
        let numbers: Vec<i64> = segments.iter().map(|segment| segment.lineage.number).collect();
        let from: Vec<i32> = segments
            .iter()
            .map(|segment| number_column(segment.from))
            .collect::<Outcome<_>>()?;
        let to: Vec<i32> = segments
            .iter()
            .map(|segment| number_column(segment.to))
            .collect::<Outcome<_>>()?;
        let part = |columns: &str, join: &str, order: &str| {
            let sql = format!(
                "SELECT {columns} FROM unnest($2, $3, $4, $5) AS part (session, lineage, low, high) \
                 {join} ORDER BY {order}"
            );
            Statement::new(sql).with((
                tenant,
                sessions.clone(),
                numbers.clone(),
                from.clone(),
                to.clone(),
            ))
        };
        let messages = "JOIN @message m ON m.tenant = $1 AND m.session = part.session AND m.lineage = part.lineage \
                        AND m.number >= part.low AND m.number < part.high";
        let rows = self
            .rows(&part(
                "m.number, m.cuts, m.body, m.checksum",
                messages,
                "m.number",
            ))
            .await?;
        let mut cut = false;
        for row in &rows {
            cut |= column::<i32>(row, 1)? != 0;
        }
        let pieces = if cut {
            let links = "JOIN @message_blob b ON b.tenant = $1 AND b.session = part.session \
                         AND b.lineage = part.lineage AND b.number >= part.low AND b.number < part.high \
                         LEFT JOIN @blob t ON t.tenant = $1 AND t.session = b.session AND t.hash = b.hash";
            let sql = part("b.number::bigint, b.place, t.body", links, "b.number, b.place");
            self.pieces(&sql).await?
        } else {
            Pieces::default()
        };
        let mut rows = rows.into_iter();
        for segment in segments {
            let mut bytes = 0;
            for index in segment.from..segment.to {
                let row = rows
                    .next()
                    .ok_or_else(|| Fault::damaged("a message is missing"))?;
                let number: i32 = column(&row, 0)?;
                if length(number) != index {
                    return Err(Fault::damaged("a message is missing"));
                }
                let text = pieces.whole(number.into(), column(&row, 1)?, column(&row, 2)?)?;
                bytes += text.len();
                let checksum: Tail = column(&row, 3)?;
                if !follows(checksum, history.tail(index), number, &text) {
                    return Err(Fault::damaged(format!(
                        "message {number} is not what its checksum says, or does not follow the one before it"
                    )));
                }
                history.push(parse::<Message>(&text)?, checksum);
            }
            self.store.cache.learn_history(segment.lineage, &history, bytes);
        }
        is_whole(&history)?;
        Ok(history)
    }

    /// Reads a lineage and those that it forked from, nearest first.
    pub(crate) async fn lines(&self, lineage: LineageKey) -> Outcome<Vec<(LineageKey, Line)>> {
        // Bases shrink along the way, so that even a damaged database ends it.
        let statement = Statement::new(
            "WITH RECURSIVE line AS ( \
               SELECT l.session, l.number, l.parent_session, l.parent, l.base, l.cut, l.checksum, 0 AS depth FROM @lineage l \
                 WHERE l.tenant = $1 AND l.session = $2 AND l.number = $3 \
               UNION ALL \
               SELECT p.session, p.number, p.parent_session, p.parent, p.base, p.cut, p.checksum, line.depth + 1 FROM line \
                 JOIN @lineage p ON p.tenant = $1 AND p.session = line.parent_session AND p.number = line.parent \
                 AND p.base < line.base \
             ) SELECT session, number, parent_session, parent, base, cut, NULL::integer, checksum FROM line ORDER BY depth",
        ).with((lineage.session, lineage.number));
        let rows = self.rows(&statement).await?;
        let mut lines = Vec::with_capacity(rows.len());
        for row in &rows {
            let key = LineageKey {
                session: SessionKey::new(lineage.session.tenant, column(row, 0)?),
                number: column(row, 1)?,
            };
            lines.extend(line(row, 2, key)?.map(|line| (key, line)));
        }
        Ok(lines)
    }
}

impl Plan<'_> {
    /// Plans to store the new messages of a history and returns its position and the checksum of its last
    /// message; `None` for an empty history.
    ///
    /// `known` is the result of [`Plan::known_start`]. Without it, the history is compared with the histories
    /// at the `related` positions, which probably begin alike.
    pub(crate) async fn put_history(
        &mut self,
        history: &History,
        known: Option<Start>,
        related: &[(Position, Tail)],
    ) -> Outcome<Option<(Position, Tail)>> {
        if history.is_empty() {
            return Ok(None);
        }
        check_history(history)?;
        let start = match known {
            Some(known) => Some(known),
            None => self.common_start(history, related).await?,
        };
        let stored = start.map_or(0, |start| start.at.len);
        let lineage = match start {
            Some(start) if stored == history.len() => {
                self.refer(start.at);
                start.at.lineage
            }
            Some(start) if start.open => start.at.lineage,
            start => self.new_lineage(start.map(|start| start.at)),
        };
        let mut bytes = 0;
        let mut last = start.map(|start| start.tail);
        let mut tails = Vec::new();
        for (index, message) in (stored..).zip(history.since(stored)) {
            let (len, tail) = self.put_message(lineage.number, index, message, last)?;
            bytes += len;
            last = Some(tail);
            tails.push(tail);
        }
        let start_at = start.map(|start| (start.at, start.tail));
        self.change.start = start_at;
        if stored < history.len() {
            let line = self.known.lines.get(&lineage.number).copied();
            let line = line.unwrap_or(Line {
                parent: start.map(|start| start.at.lineage),
                base: stored,
                end: stored,
                cut: None,
            });
            let grown = Line {
                end: history.len(),
                ..line
            };
            self.known.learn_line(lineage.number, grown);
        }
        let grown = Grown {
            history: history.clone(),
            start: start_at,
            tails,
            bytes,
        };
        self.remember.push(Remember::History { lineage, grown });
        let at = Position::new(lineage, history.len());
        Ok(last.map(|last| (at, last)))
    }

    /// Returns the longest prefix of a history that the cache lists as stored.
    pub(crate) async fn known_start(&mut self, history: &History) -> Outcome<Option<Start>> {
        let mut next = Some(history);
        while let Some(history) = next {
            let id = history.lineage().id();
            if let Some((at, tail)) = self
                .store
                .cache
                .place(id)
                .and_then(|place| self.placed(place, history))
            {
                if let Some(start) = self.resolve(at, tail).await? {
                    self.found_by = Some(id);
                    return Ok(Some(start));
                }
                self.store.cache.forget_place(id);
            }
            next = history.lineage().parent();
        }
        Ok(None)
    }

    /// Returns where the beginning of a history is stored that this process has, and the checksum of its last
    /// message, if that is in memory.
    fn placed(&self, place: Place, history: &History) -> Option<(Position, Tail)> {
        let at = Position::new(place.lineage, history.len().min(place.saved));
        if at.len == place.saved {
            return Some((at, place.tail));
        }
        let known = self.store.cache.history(place.lineage)?;
        let is_same = known.tail(place.saved) == Some(place.tail);
        known.tail(at.len).filter(|_| is_same).map(|tail| (at, tail))
    }

    /// Returns the longest beginning that a history has in common with a related one, by comparing messages.
    async fn common_start(
        &mut self,
        history: &History,
        related: &[(Position, Tail)],
    ) -> Outcome<Option<Start>> {
        let mut best: Option<(Position, Tail)> = None;
        for (at, tail) in related {
            let other = self.reading.history(*at, *tail).await?;
            let len = history.common_prefix(&other.history);
            if len > best.map_or(0, |(best, _)| best.len)
                && let Some(tail) = other.tail(len)
            {
                let lineage = at.lineage;
                best = Some((Position::new(lineage, len), tail));
            }
        }
        match best {
            Some((at, tail)) => self.resolve(at, tail).await,
            None => Ok(None),
        }
    }

    /// Returns the position in the lineage that holds its last message; `None` if the position no longer
    /// exists.
    async fn resolve(&mut self, mut at: Position, tail: Tail) -> Outcome<Option<Start>> {
        if at.lineage.session.tenant != self.session.tenant || at.len == 0 {
            return Ok(None);
        }
        // The lineages of the own session are those of the compared version.
        while at.lineage.session == self.session {
            let Some(line) = self.line(at.lineage).await? else {
                return Ok(None);
            };
            if at.len > line.base {
                return Ok((at.len <= line.end).then_some(Start {
                    at,
                    tail,
                    open: line.cut.is_none() && line.end == at.len,
                }));
            }
            match line.parent {
                Some(parent) => at.lineage = parent,
                None => return Ok(None),
            }
        }
        // Lineages of other sessions are checked and locked by the commit itself.
        for (lineage, line) in self.reading.lines(at.lineage).await? {
            if at.len > line.base {
                at.lineage = lineage;
                let is_there = line.cut.is_none_or(|cut| at.len <= cut);
                let open = false;
                return Ok(is_there.then_some(Start { at, tail, open }));
            }
        }
        Ok(None)
    }

    /// Returns a lineage of the own session at the version that is compared.
    async fn line(&mut self, key: LineageKey) -> Outcome<Option<Line>> {
        if self.is_new {
            return Ok(None);
        }
        if let Some(line) = self.known.lines.get(&key.number) {
            return Ok(Some(*line));
        }
        let statement = Statement::new(
            "SELECT n.version, l.parent_session, l.parent, l.base, l.cut, \
             (SELECT max(m.number) FROM @message m WHERE m.tenant = $1 AND m.session = $2 AND m.lineage = $3), l.checksum \
             FROM @session n LEFT JOIN @lineage l ON l.tenant = $1 AND l.session = $2 AND l.number = $3 \
             WHERE n.tenant = $1 AND n.key = $2",
        ).with((key.session, key.number));
        let rows = self.reading.rows(&statement).await?;
        let row = rows.first().ok_or(Fault::Moved)?;
        if column::<i64>(row, 0)? != self.known.version {
            return Err(Fault::Moved);
        }
        let line = line(row, 1, key)?;
        if let Some(line) = line {
            self.known.learn_line(key.number, line);
        }
        Ok(line)
    }

    /// Plans a lineage, whose number is the version that writes it.
    fn new_lineage(&mut self, parent: Option<Position>) -> LineageKey {
        if let Some(parent) = parent {
            self.refer(parent);
        }
        let lineage = self.session.lineage(self.next_version);
        self.change.lineage = Some((lineage.number, parent));
        lineage
    }

    /// Has the commit lock a lineage of another session that it refers to.
    fn refer(&mut self, at: Position) {
        if at.lineage.session != self.session {
            self.change.foreign = Some(at);
        }
    }

    /// Plans to store a message after the one with the checksum `before`. Returns the length of its text and
    /// its checksum.
    fn put_message(
        &mut self,
        lineage: i64,
        index: usize,
        message: &Message,
        before: Option<Tail>,
    ) -> Outcome<(usize, Tail)> {
        let text = write(message)?;
        let number = number_column(index)?;
        let cut = self.store.encoding.cut(&text);
        self.change.messages.lineage = lineage;
        self.change.messages.numbers.push(number);
        let tail = tail(before, number, &text, self.random);
        self.change.messages.tails.push(tail);
        self.change.messages.cuts.push(number_column(cut.pieces.len())?);
        self.change
            .messages
            .bodies
            .push(pack(self.store.encoding, &cut.text)?);
        for (offset, piece) in &cut.pieces {
            let hash = self.put_blob(piece)?;
            self.change.messages.pieces.push(Cut {
                number: number.into(),
                place: number_column(*offset)?,
                hash,
            });
        }
        Ok((text.len(), tail))
    }
}
