//! Journals of turns that are not over.

use async_trait::async_trait;
use everturn_agent::SessionId;
use everturn_agent::store::{
    Detail, Journal, JournalGuard, JournalKey, JournalPage, JournalQuery, JournalRecord, Precondition, Scope,
    UnfinishedTurn, has_unknown_outcome, record_taken,
};
use everturn_core::Result;
use everturn_sql::{clamped_nanos, parse, to_nanos, to_time, write};
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};

use crate::SqliteStore;
use crate::body::Packed;
use crate::checksum::{Checksum, check};
use crate::fault::Outcome;
use crate::prepare::Preparing;
use crate::read::Reading;
use crate::row::check_id;
use crate::statement::Statements;
use crate::work::Prepared;
use crate::write::Writing;

pub(crate) const RECORDS: &str = "SELECT sequence, body, checksum FROM journal WHERE scope = ?1 AND session = ?2 AND turn = ?3 ORDER BY sequence";

const APPEND: &str = "INSERT INTO journal (scope, session, turn, sequence, added_at, body, checksum) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
    ON CONFLICT DO NOTHING";

pub(crate) const CLEAR: &str = "DELETE FROM journal WHERE scope = ?1 AND session = ?2 AND turn = ?3";

pub(crate) const CLEAR_SESSION: &str = "DELETE FROM journal WHERE scope = ?1 AND session = ?2";

const HAS_JOURNAL: &str = "SELECT EXISTS (SELECT 1 FROM journal WHERE scope = ?1 AND session = ?2)";

/// Selects the journals whose records are all old, except the kept ones.
pub(crate) const OLD: &str = "SELECT DISTINCT scope, session, turn FROM journal AS old INDEXED BY journal_by_age \
    WHERE added_at < ?1 AND turn NOT GLOB 'kept-*' AND NOT EXISTS (SELECT 1 FROM journal AS new WHERE new.scope = old.scope \
    AND new.session = old.session AND new.turn = old.turn AND new.added_at >= ?1)";

/// Selects a page of the journals that are not kept, with the time of their last records.
pub(crate) fn unfinished(query: &JournalQuery) -> (String, Vec<Value>) {
    let mut sql =
        "SELECT scope, session, turn, max(added_at) FROM journal WHERE turn NOT GLOB 'kept-*'".to_owned();
    let mut params = Vec::new();
    let mut add = |condition: &str, values: &[&dyn Fn() -> Value]| {
        sql.push_str(condition);
        params.extend(values.iter().map(|value| value()));
    };
    if let Some(scope) = &query.scope {
        add(" AND scope = ?", &[&|| scope.as_str().to_owned().into()]);
    }
    if let Some(session) = &query.session {
        add(" AND session = ?", &[&|| session.as_str().to_owned().into()]);
    }
    if let Some(since) = query.since {
        add(" AND added_at >= ?", &[&|| clamped_nanos(since).into()]);
    }
    if let Some((scope, key)) = &query.after {
        let (session, turn) = (key.session().as_str(), key.turn());
        add(
            " AND (scope, session, turn) > (?, ?, ?)",
            &[
                &|| scope.as_str().to_owned().into(),
                &|| session.to_owned().into(),
                &|| turn.to_owned().into(),
            ],
        );
    }
    add(" GROUP BY scope, session, turn", &[]);
    if let Some(before) = query.before {
        add(" HAVING max(added_at) < ?", &[&|| clamped_nanos(before).into()]);
    }
    // One more than the page, to know whether there is a next one.
    let limit = i64::try_from(query.page_size()).map_or(i64::MAX, |size| size + 1);
    add(" ORDER BY scope, session, turn LIMIT ?", &[&|| limit.into()]);
    (sql, params)
}

#[async_trait]
impl Journal for SqliteStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        let (scope, key, guard) = (scope.clone(), key.clone(), guard.cloned());
        let sequence = record.sequence;
        self.writer()
            .prepare_and_write(
                move |preparing| {
                    let body = preparing.record(&record)?;
                    let bytes = body.body.len();
                    Ok(Prepared::Write(body, bytes))
                },
                move |writing, body| writing.append(&scope, &key, sequence, &body, guard.as_ref()),
            )
            .await
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        if self.is_known_empty(scope, key.session()) {
            return Ok(Vec::new());
        }
        let (scope, key) = (scope.clone(), key.clone());
        SqliteStore::read(self, move |reading| reading.records(&scope, &key)).await
    }

    fn is_known_empty(&self, scope: &Scope, session: &SessionId) -> bool {
        self.latest_cache().has_no_journal(scope, session)
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        let (scope, key) = (scope.clone(), key.clone());
        self.writer()
            .write(move |writing| writing.clear(&scope, &key))
            .await
    }

    async fn unfinished(&self, query: &JournalQuery) -> Result<JournalPage> {
        let query = query.clone();
        SqliteStore::read(self, move |reading| reading.unfinished(&query)).await
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        self.writer().write(move |writing| writing.sweep(before)).await
    }
}

impl Reading<'_> {
    fn unfinished(&mut self, query: &JournalQuery) -> Outcome<JournalPage> {
        let (sql, params) = unfinished(query);
        let mut statement = self.db.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        let mut turns = Vec::new();
        while let Some(row) = rows.next()? {
            turns.push(UnfinishedTurn {
                scope: Scope::new(row.get::<_, String>(0)?),
                key: JournalKey::new(row.get::<_, String>(1)?.into(), row.get::<_, String>(2)?),
                added_at: to_time(row.get(3)?)?,
                records: Vec::new(),
            });
        }
        let mut page = query.cut(turns);
        for turn in &mut page.items {
            turn.records = self.records(&turn.scope, &turn.key)?;
        }
        Ok(page)
    }

    fn records(&mut self, scope: &Scope, key: &JournalKey) -> Outcome<Vec<JournalRecord>> {
        let mut statement = self.db.prepare_cached(RECORDS)?;
        let mut rows = statement.query((scope.as_str(), key.session().as_str(), key.turn()))?;
        let mut records = Vec::new();
        while let Some(row) = rows.next()? {
            let sequence: i64 = row.get(0)?;
            let text = self.decoder.text(row.get_ref(1)?)?;
            let what = format!("journal record {sequence} of session '{}'", key.session());
            let (session, turn) = (key.session().as_str(), key.turn());
            check(&what, row.get(2)?, || {
                Checksum::of_record(scope.as_str(), session, turn, sequence, &Checksum::text(text))
            })?;
            records.push(JournalRecord {
                sequence: sequence.cast_unsigned(),
                body: parse(text)?,
            });
        }
        Ok(records)
    }
}

impl Preparing<'_> {
    fn record(&mut self, record: &JournalRecord) -> Outcome<PreparedRecord> {
        let text = write(&record.body)?;
        Ok(PreparedRecord {
            text: Checksum::text(&text),
            body: Packed::of(self.encoding, text)?,
        })
    }
}

/// The body of a record, as it is stored.
struct PreparedRecord {
    body: Packed,
    /// The checksum of its text.
    text: Checksum,
}

impl Writing<'_> {
    fn append(
        &mut self,
        scope: &Scope,
        key: &JournalKey,
        sequence: u64,
        record: &PreparedRecord,
        guard: Option<&JournalGuard>,
    ) -> Outcome<()> {
        check_id("scope", scope.as_str())?;
        check_id("session id", key.session().as_str())?;
        check_id("turn", key.turn())?;
        // In the transaction of the append, so nothing can come between the check and the write.
        if let Some(guard) = guard {
            self.check_guard(scope, key, guard)?;
        }
        let (scope_name, session, turn) = (scope.as_str(), key.session().as_str(), key.turn());
        let number = sequence.cast_signed();
        let (now, body) = (to_nanos(Timestamp::now())?, &record.body);
        let checksum = Checksum::of_record(scope_name, session, turn, number, &record.text);
        let row = (scope_name, session, turn, number, now, body, checksum);
        let added = self.reading.db.run(APPEND, row)?;
        // `APPEND` ignores a conflict, so a taken number shows as no row written.
        if added == 0 {
            return Err(record_taken(key, sequence).into());
        }
        self.latest_changes.note(scope, key.session(), None);
        Ok(())
    }

    fn check_guard(&mut self, scope: &Scope, key: &JournalKey, guard: &JournalGuard) -> Outcome<()> {
        let reserved = self
            .reading
            .get(scope.as_str(), guard.reserved.as_str(), Detail::Metadata)?;
        let session = match (&reserved, &guard.precondition) {
            (Some(_), _) | (_, Precondition::None) => None,
            _ => self.reading.session_key(scope.as_str(), key.session().as_str())?,
        };
        let found = match session {
            Some(session) => self
                .reading
                .found(session, &guard.precondition, &guard.reserved)?,
            None => None,
        };
        guard.check(key.session(), reserved.as_ref(), found.as_ref())?;
        match reserved {
            Some(_) => Ok(()),
            None => self.check_lock(scope, key.session(), &guard.precondition),
        }
    }

    pub(crate) fn has_journal(&self, scope: &Scope, session: &SessionId) -> Outcome<bool> {
        self.reading
            .db
            .one(HAS_JOURNAL, (scope.as_str(), session.as_str()), |row| row.get(0))
    }

    pub(crate) fn clear(&self, scope: &Scope, key: &JournalKey) -> Outcome<()> {
        let place = (scope.as_str(), key.session().as_str(), key.turn());
        self.reading.db.run(CLEAR, place)?;
        Ok(())
    }

    pub(crate) fn clear_session(&self, scope: &Scope, session: &SessionId) -> Outcome<()> {
        let place = (scope.as_str(), session.as_str());
        self.reading.db.run(CLEAR_SESSION, place)?;
        Ok(())
    }

    fn sweep(&mut self, before: Timestamp) -> Outcome<u64> {
        let before = clamped_nanos(before);
        let place = |row: &Row<'_>| {
            let session = row.get::<_, String>(1)?;
            let key = JournalKey::new(session.into(), row.get::<_, String>(2)?);
            Ok((Scope::new(row.get::<_, String>(0)?), key))
        };
        let mut swept = 0;
        for (scope, key) in self.reading.db.all(OLD, [before], place)? {
            // In one transaction with the deletion. A journal that cannot be read stays.
            let records = self.reading.records(&scope, &key);
            if records.is_ok_and(|records| !has_unknown_outcome(&records)) {
                self.clear(&scope, &key)?;
                swept += 1;
            }
        }
        self.forget_locks(before)?;
        Ok(swept)
    }
}
