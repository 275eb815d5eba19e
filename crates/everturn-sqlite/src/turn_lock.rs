//! The locks of turns in progress, and the turns that wait for them.
//!
//! Both are rows, and every call is one transaction of the writer, so the calls of all processes are
//! serialised. The time is that of the machine, which the processes share.

use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::store::{
    LockGrant, LockPlace, LockRequest, Precondition, Recalled, ResumeAt, Scope, TurnLocks, lock_lost,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;
use everturn_sql::to_nanos;
use jiff::{SignedDuration, Timestamp};

use crate::SqliteStore;
use crate::fault::Outcome;
use crate::row::check_id;
use crate::statement::Statements;
use crate::write::Writing;

pub(crate) const HOLDER: &str =
    "SELECT turn, until FROM turn_lock WHERE scope = ?1 AND session = ?2 AND place = ?3";

pub(crate) const HOLD: &str =
    "INSERT OR REPLACE INTO turn_lock (scope, session, place, turn, until) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) const RENEW: &str =
    "UPDATE turn_lock SET until = ?4 WHERE scope = ?1 AND session = ?2 AND turn = ?3";

pub(crate) const RELEASE: &str = "DELETE FROM turn_lock WHERE scope = ?1 AND session = ?2 AND turn = ?3";

/// Moves a lock to a place at which another turn may have left a lapsed one.
pub(crate) const MOVE: &str =
    "UPDATE OR REPLACE turn_lock SET place = ?4 WHERE scope = ?1 AND session = ?2 AND place = ?3";

pub(crate) const QUEUED: &str = "SELECT turn FROM turn_queue WHERE scope = ?1 AND session = ?2 AND place = ?3 \
    AND (until > ?4 OR turn = ?5) ORDER BY number LIMIT 1";

/// Adds a turn to the queue. A queued turn keeps its number.
pub(crate) const QUEUE: &str = "INSERT INTO turn_queue (scope, session, turn, place, until) VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT (scope, session, turn) DO UPDATE SET place = excluded.place, until = excluded.until";

pub(crate) const LEAVE: &str = "DELETE FROM turn_queue WHERE scope = ?1 AND session = ?2 AND turn = ?3";

pub(crate) const MOVE_QUEUE: &str =
    "UPDATE turn_queue SET place = ?4 WHERE scope = ?1 AND session = ?2 AND place = ?3";

/// Forgets what dead processes left: few rows, which are scanned.
const FORGET: &str = "DELETE FROM turn_lock WHERE until < ?1";
const FORGET_QUEUED: &str = "DELETE FROM turn_queue WHERE until < ?1";

/// Drops the turns of a session that died while they waited.
pub(crate) const DEAD: &str =
    "DELETE FROM turn_queue WHERE scope = ?1 AND session = ?2 AND until <= ?3 AND turn <> ?4";

#[async_trait]
impl TurnLocks for SqliteStore {
    async fn take(&self, scope: &Scope, request: &LockRequest) -> Result<LockGrant> {
        let (scope, request) = (scope.clone(), request.clone());
        self.writer()
            .write(move |writing| writing.take_lock(&scope, &request))
            .await
    }

    async fn renew(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
        lease: Duration,
    ) -> Result<bool> {
        let (scope, session, turn) = (scope.clone(), session.clone(), turn.clone());
        let renew = move |writing: &mut Writing<'_>| {
            let own = (scope.as_str(), session.as_str(), turn.as_str(), after(lease)?);
            Ok(writing.reading.db.run(RENEW, own)? > 0)
        };
        self.writer().write(renew).await
    }

    async fn release(&self, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Result<()> {
        let (scope, session, turn) = (scope.clone(), session.clone(), turn.clone());
        let release = move |writing: &mut Writing<'_>| {
            for sql in [RELEASE, LEAVE] {
                let own = (scope.as_str(), session.as_str(), turn.as_str());
                writing.reading.db.run(sql, own)?;
            }
            Ok(())
        };
        self.writer().write(release).await
    }

    async fn freed(&self, _scope: &Scope, _session: &SessionId, at_most: Duration) {
        tokio::time::sleep(at_most).await;
    }

    fn is_default(&self) -> bool {
        false
    }

    async fn recall(&self, _scope: &Scope, _at: &ResumeAt) -> Option<Recalled> {
        None
    }
}

/// Returns the time at which a lease of this length lapses.
fn after(lease: Duration) -> Outcome<i64> {
    let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX);
    to_nanos(Timestamp::now().saturating_add(lease).unwrap_or(Timestamp::MAX)).or(Ok(i64::MAX))
}

impl Writing<'_> {
    fn take_lock(&mut self, scope: &Scope, request: &LockRequest) -> Outcome<LockGrant> {
        let LockRequest {
            session,
            turn,
            precondition,
            ..
        } = request;
        check_id("scope", scope.as_str())?;
        check_id("session id", session.as_str())?;
        check_id("turn", turn.as_str())?;
        let known = self.reading.session_key(scope.as_str(), session.as_str())?;
        let found = match known {
            Some(key) => self.reading.found(key, precondition, turn)?,
            None => None,
        };
        precondition.check(session, found.as_ref())?;
        let Some(place) = precondition.lock_place() else {
            return Ok(LockGrant::Held);
        };
        let db = self.reading.db;
        let (scope, session, turn, place) = (scope.as_str(), session.as_str(), turn.as_str(), place.key());
        let now = after(Duration::ZERO)?;
        let until = after(request.lease)?;
        db.run(DEAD, (scope, session, now, turn))?;
        let holder: Option<(String, i64)> = db.find(HOLDER, (scope, session, &place), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        let holder = holder.filter(|(holder, until)| holder != turn && *until > now);
        let first: Option<String> = db.find(QUEUED, (scope, session, &place, now, turn), |row| row.get(0))?;
        let other = holder.map(|(holder, _)| holder);
        match other.or(first.filter(|first| first != turn)) {
            None => {
                db.run(LEAVE, (scope, session, turn))?;
                db.run(HOLD, (scope, session, &place, turn, until))?;
                Ok(LockGrant::Held)
            }
            Some(other) => {
                if request.waits {
                    db.run(QUEUE, (scope, session, turn, &place, until))?;
                }
                Ok(LockGrant::Taken { by: other.into() })
            }
        }
    }

    /// Checks that a turn still holds the lock that a precondition requires, if it requires one.
    pub(crate) fn check_lock(
        &self,
        scope: &Scope,
        session: &SessionId,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let (Precondition::Held { turn, .. }, Some(place)) = (precondition, precondition.lock_place()) else {
            return Ok(());
        };
        let at = (scope.as_str(), session.as_str(), place.key());
        let holder: Option<String> = self.reading.db.find(HOLDER, at, |row| row.get(0))?;
        if holder.as_deref() == Some(turn.as_str()) {
            return Ok(());
        }
        Err(lock_lost(session, turn).into())
    }

    /// Forgets the locks that lapsed before a time, which their processes left behind.
    pub(crate) fn forget_locks(&self, before: i64) -> Outcome<()> {
        for sql in [FORGET, FORGET_QUEUED] {
            self.reading.db.run(sql, [before])?;
        }
        Ok(())
    }

    /// Moves the lock under which a row was written along with its branch, or releases it.
    pub(crate) fn move_lock(
        &self,
        scope: &Scope,
        row: &Snapshot,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let (Precondition::Held { turn, releases, .. }, Some(from), Some(session)) =
            (precondition, precondition.lock_place(), &row.session_id)
        else {
            return Ok(());
        };
        let db = self.reading.db;
        let (scope, session) = (scope.as_str(), session.as_str());
        if *releases {
            db.run(RELEASE, (scope, session, turn.as_str()))?;
        }
        let counts = !row.orphaned && precondition.counts(&row.snapshot_id, row.status);
        if counts && from != LockPlace::Session {
            let to = LockPlace::Branch(Some(row.snapshot_id.clone()));
            let places = (from.key(), to.key());
            for sql in [MOVE, MOVE_QUEUE] {
                db.run(sql, (scope, session, &places.0, &places.1))?;
            }
        }
        Ok(())
    }
}
