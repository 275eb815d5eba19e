//! Journals of turns that are not over.
//!
//! A record is written by one statement that holds the session's row still and compares the version at which
//! its guard was checked. A journal may begin before its session has a snapshot; it then begins the session,
//! without a tip.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_agent::store::{
    Checksum, Detail, Journal, JournalGuard, JournalKey, JournalRecord, Scope, record_taken,
};
use everturn_core::{Error, Result};
use everturn_sql::{StoreFault, clamped_nanos, parse, write};
use jiff::Timestamp;
use uuid::Uuid;

use crate::PostgresStore;
use crate::body::{pack, unpack};
use crate::connection::{NOW, Patience};
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::known::Known;
use crate::position::{SessionKey, new_version};
use crate::read::Reading;
use crate::row::check_id;
use crate::session_lock::{RACES, SessionLock};
use crate::statement::{Statement, column};
use crate::turn_lock::HeldLock;

#[async_trait]
impl Journal for PostgresStore {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Result<()> {
        self.call(self.inner().append(scope, key, &record, guard)).await
    }

    async fn read(&self, scope: &Scope, key: &JournalKey) -> Result<Vec<JournalRecord>> {
        self.call(self.inner().records(scope, key)).await
    }

    async fn clear(&self, scope: &Scope, key: &JournalKey) -> Result<()> {
        let outcome = self.inner().db.read(&clear(scope, key)).await;
        self.result(outcome.map(|_| ()))
    }

    async fn sweep(&self, before: Timestamp) -> Result<u64> {
        self.call(self.inner().sweep(before)).await
    }
}

/// Returns the checksum of a record's row.
fn record_checksum(session: Uuid, turn: &[u8], sequence: i64, text: &str) -> i64 {
    let identity = Checksum::default().bytes(session).bytes(turn).integer(sequence);
    identity.text(text).finish()
}

/// Returns the text of a stored record.
pub(crate) fn record(
    session: Uuid,
    turn: &[u8],
    sequence: i64,
    packed: &[u8],
    checksum: i64,
) -> Outcome<String> {
    let text = unpack(packed)?;
    if checksum != record_checksum(session, turn, sequence, &text) {
        return Err(Fault::damaged(format!(
            "journal record {sequence} is not what its checksum says"
        )));
    }
    Ok(text)
}

pub(crate) fn records(scope: &Scope, key: &JournalKey) -> Statement<'static> {
    of_turn(
        "SELECT sequence, body, token, checksum FROM @journal WHERE tenant = $1 AND session = $2 AND turn = $3 ORDER BY sequence",
        scope,
        key,
    )
}

fn clear(scope: &Scope, key: &JournalKey) -> Statement<'static> {
    of_turn(
        "DELETE FROM @journal WHERE tenant = $1 AND session = $2 AND turn = $3",
        scope,
        key,
    )
}

fn of_turn(sql: &str, scope: &Scope, key: &JournalKey) -> Statement<'static> {
    let session = SessionKey::of(scope, key.session().as_str());
    Statement::new(sql).with((session, key.turn()))
}

/// Drops the journals of which every record is old. Their number is the number of different turns among the
/// dropped records.
pub(crate) fn sweep(before: Timestamp) -> Statement<'static> {
    let sql = "WITH gone AS (DELETE FROM @journal j USING \
           (SELECT DISTINCT tenant, session, turn FROM @journal old WHERE added_at < $1 AND turn NOT LIKE 'kept-%' AND NOT EXISTS \
             (SELECT 1 FROM @journal new WHERE new.tenant = old.tenant AND new.session = old.session \
              AND new.turn = old.turn AND new.added_at >= $1)) AS turns \
           WHERE j.tenant = turns.tenant AND j.session = turns.session AND j.turn = turns.turn \
           RETURNING j.tenant, j.session, j.turn) \
         SELECT count(*) FROM (SELECT DISTINCT tenant, session, turn FROM gone) AS turns";
    Statement::new(sql).with(clamped_nanos(before))
}

impl Inner {
    async fn append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: &JournalRecord,
        guard: Option<&JournalGuard>,
    ) -> Outcome<()> {
        check_id("scope", scope.as_str())?;
        check_id("session id", key.session().as_str())?;
        check_id("turn", key.turn())?;
        let session = SessionKey::of(scope, key.session().as_str());
        let text = write(&record.body)?;
        let packed = pack(self.encoding, &text)?;
        let checksum = record_checksum(
            session.id,
            key.turn().as_bytes(),
            record.sequence.cast_signed(),
            &text,
        );
        let token = fastrand::i64(..);
        let mut patience = Patience::new(self.db.patience);
        // Whether a statement's answer was lost, so that the record may be there already.
        let mut unsure = false;
        let mut known = self.cache.session(session);
        let mut lost_races = 0;
        let written = (&*packed, checksum, token);
        loop {
            let outcome = if lost_races < RACES {
                self.try_append(scope, key, record, guard, self.reading(), known.take(), written)
                    .await
            } else {
                // Boxed, because few appends lose as often.
                let attempt = Box::pin(async {
                    let mut lock = SessionLock::new(&self.db).await?;
                    let attempt = async {
                        let transaction = lock.take(session).await?;
                        let reading = self.reading_on(transaction.client());
                        self.try_append(scope, key, record, guard, reading, None, written)
                            .await
                    };
                    let outcome = attempt.await;
                    lock.end(outcome.as_ref().err());
                    outcome
                });
                attempt.await
            };
            let fault = match outcome {
                Ok(true) => return Ok(()),
                Ok(false) if unsure && self.is_mine(scope, key, record, token).await? => return Ok(()),
                Ok(false) => return Err(record_taken(key, record.sequence).into()),
                Err(fault) => fault,
            };
            unsure |= fault.is_lost();
            lost_races += u32::from(fault.is_conflict());
            let goes_on = if fault.is_lost() {
                patience.wait().await
            } else {
                fault.is_conflict() && patience.wait_turn().await
            };
            if !goes_on {
                return Err(fault);
            }
        }
    }

    /// Tries to write a record once; `false` if its number is taken.
    #[expect(clippy::too_many_arguments, reason = "a record and its conditions")]
    async fn try_append(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: &JournalRecord,
        guard: Option<&JournalGuard>,
        reading: Reading<'_>,
        known: Option<Arc<Known>>,
        (packed, checksum, token): (&[u8], i64, i64),
    ) -> Outcome<bool> {
        let version = match (guard, known) {
            (None, _) => None,
            (Some(guard), Some(known)) if known.guard.as_ref() == Some(guard) => Some(known.version),
            (Some(guard), _) => Some(reading.check(scope, key, guard).await?),
        };
        let mut statement =
            of_turn("", scope, key).with((record.sequence.cast_signed(), token, packed.to_vec(), checksum));
        let held = match version {
            // A commit changes this row, so it waits, and is waited for.
            Some(version) => {
                let version = statement.bind(version);
                let lock = guard.and_then(|guard| HeldLock::bind(&mut statement, None, &guard.precondition));
                let lock = lock.map_or_else(|| "true".to_owned(), |lock| lock.is_held());
                format!(
                    "held AS (SELECT 1 FROM @session WHERE tenant = $1 AND key = $2 AND version = {version} AND {lock} \
                     FOR SHARE)"
                )
            }
            None => "held AS (SELECT 1)".to_owned(),
        };
        statement.sql = format!(
            "WITH {held}, added AS (INSERT INTO @journal (tenant, session, turn, sequence, token, added_at, body, checksum) \
             SELECT $1, $2, $3, $4, $5, {NOW}, $6, $7 FROM held ON CONFLICT DO NOTHING RETURNING 1) \
             SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM added)"
        );
        let rows = reading.write(&statement).await?;
        let row = rows.first().ok_or(Fault::Moved)?;
        let (held, added): (i64, i64) = (column(row, 0)?, column(row, 1)?);
        if held == 0 {
            return Err(Fault::Moved);
        }
        Ok(added == 1)
    }

    /// Returns whether the record with a number is the one that this call wrote.
    async fn is_mine(
        &self,
        scope: &Scope,
        key: &JournalKey,
        record: &JournalRecord,
        token: i64,
    ) -> Outcome<bool> {
        for row in self.db.read(&records(scope, key)).await? {
            if column::<i64>(&row, 0)?.cast_unsigned() == record.sequence {
                return Ok(column::<i64>(&row, 2)? == token);
            }
        }
        Ok(false)
    }

    async fn records(&self, scope: &Scope, key: &JournalKey) -> Outcome<Vec<JournalRecord>> {
        let session = SessionKey::of(scope, key.session().as_str());
        let rows = self.db.read(&records(scope, key)).await?;
        rows.iter()
            .map(|row| {
                let sequence: i64 = column(row, 0)?;
                let text = record(
                    session.id,
                    key.turn().as_bytes(),
                    sequence,
                    column(row, 1)?,
                    column(row, 3)?,
                )?;
                Ok(JournalRecord {
                    sequence: sequence.cast_unsigned(),
                    body: parse(&text)?,
                })
            })
            .collect()
    }

    async fn sweep(&self, before: Timestamp) -> Outcome<u64> {
        let rows = self.db.read(&sweep(before)).await?;
        let swept: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        Ok(swept.cast_unsigned())
    }
}

impl Reading<'_> {
    /// Checks a guard and returns the version of the session at which it allows writing.
    async fn check(&self, scope: &Scope, key: &JournalKey, guard: &JournalGuard) -> Outcome<i64> {
        let session = SessionKey::of(scope, key.session().as_str());
        let mut view = self.view(scope, guard.reserved.as_str(), Some(session)).await?;
        if view.session.is_none() {
            self.begin_session(scope, key, session).await?;
            view = self.view(scope, guard.reserved.as_str(), Some(session)).await?;
        }
        let found = view.session.ok_or(Fault::Moved)?;
        let reserved = match view.stored {
            Some(stored) if stored.session != session => {
                return Err(Error::failed_precondition(format!(
                    "snapshot '{}' is reserved for a turn of session '{}' and belongs to another session",
                    guard.reserved,
                    key.session()
                ))
                .into());
            }
            Some(stored) => Some(self.snapshot(stored, Detail::Metadata).await?),
            None => None,
        };
        let met = if reserved.is_some() {
            None
        } else {
            let known = Some(&*found.known);
            self.found(scope, session, known, &guard.precondition, &guard.reserved)
                .await?
        };
        guard.check(key.session(), reserved.as_ref(), met.as_ref())?;
        if reserved.is_none() {
            self.check_lock(scope, key.session(), &guard.precondition).await?;
        }
        let version = found.known.version;
        let known = Known {
            guard: Some(guard.clone()),
            ..Known::clone(&found.known)
        };
        self.store.cache.learn_session(session, Arc::new(known));
        Ok(version)
    }

    /// Inserts a session that has no snapshot yet.
    pub(crate) async fn begin_session(
        &self,
        scope: &Scope,
        key: &JournalKey,
        session: SessionKey,
    ) -> Outcome<()> {
        let statement = Statement::new(format!(
            "INSERT INTO @session (tenant, key, version, touched_at, scope, name, tokens) \
             VALUES ($1, $2, $3, {NOW}, $4, $5, '{{}}') ON CONFLICT DO NOTHING"
        ))
        .with((session, new_version(), scope.as_str(), key.session().as_str()));
        self.rows(&statement).await.map(|_| ())
    }
}
