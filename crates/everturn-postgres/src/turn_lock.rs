//! The locks of turns in progress, and the turns that wait for them.
//!
//! A lock is taken by one statement. It locks the session's row, compares the version at which the turn's
//! precondition was checked, and inserts the lock's row, which is unique for its place. The first turn of a
//! session creates the session in the same statement. Waiting turns are woken by notifications, and poll
//! otherwise.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everturn_agent::store::{
    Detail, LockGrant, LockPlace, LockRequest, Precondition, Recalled, ResumeAt, Scope, TurnLocks, lock_lost,
};
use everturn_agent::{SessionId, Snapshot, SnapshotId};
use everturn_core::Result;

use crate::PostgresStore;
use crate::connection::{NOW, Patience};
use crate::fault::{Fault, Outcome};
use crate::inner::Inner;
use crate::known::Known;
use crate::listen::tag;
use crate::position::{SessionKey, new_version};
use crate::read::Reading;
use crate::row::{Stored, check_id, optional_text};
use crate::statement::{Statement, column};

#[async_trait]
impl TurnLocks for PostgresStore {
    async fn take(&self, scope: &Scope, request: &LockRequest) -> Result<LockGrant> {
        self.call(self.inner().take_lock(scope, request)).await
    }

    async fn renew(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
        lease: Duration,
    ) -> Result<bool> {
        let mut statement = of_turn("", scope, session, turn);
        let lease = statement.bind(nanos(lease));
        statement.sql = format!(
            "UPDATE @turn_lock SET until = {NOW} + {lease} WHERE tenant = $1 AND session = $2 AND turn = $3 RETURNING 1"
        );
        let outcome = self.inner().db.read(&statement).await;
        self.result(outcome.map(|rows| !rows.is_empty()))
    }

    async fn release(&self, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Result<()> {
        self.call(self.inner().release_lock(scope, session, turn)).await
    }

    async fn freed(&self, scope: &Scope, session: &SessionId, at_most: Duration) {
        let key = lock_key(scope, session);
        let _ = tokio::time::timeout(at_most, self.inner().watchers.freed(&key)).await;
    }

    fn is_default(&self) -> bool {
        true
    }

    async fn recall(&self, scope: &Scope, at: &ResumeAt) -> Option<Recalled> {
        self.inner().db.within(self.inner().recall(scope, at)).await
    }
}

fn nanos(lease: Duration) -> i64 {
    i64::try_from(lease.as_nanos()).unwrap_or(i64::MAX >> 1)
}

fn of_turn(sql: &str, scope: &Scope, session: &SessionId, turn: &SnapshotId) -> Statement<'static> {
    let key = SessionKey::of(scope, session.as_str());
    Statement::new(sql).with((key, turn.as_str()))
}

/// Returns what stands for the locks of a session in notifications. No snapshot has such an id.
fn lock_key(scope: &Scope, session: &SessionId) -> everturn_sql::Key {
    (
        scope.clone(),
        SnapshotId::from(format!("\0turn locks of {session}")),
    )
}

/// The outcome of one attempt to take a lock.
enum Attempt {
    Answered(LockGrant),
    /// The session is not as it was thought to be.
    Moved,
}

impl Inner {
    async fn recall(&self, scope: &Scope, at: &ResumeAt) -> Option<Recalled> {
        let session = match at {
            ResumeAt::Tip(session) => SessionKey::of(scope, session.as_str()),
            ResumeAt::Snapshot(id) => self.cache.session_at(tag(&(scope.clone(), id.clone())))?,
        };
        let known = self.cache.session(session)?;
        let row = known.tip_row()?;
        let is_asked_for = match at {
            ResumeAt::Tip(name) => row.snapshot.session_id.as_ref() == Some(name),
            // A tag is a hash, and does not reveal the scope.
            ResumeAt::Snapshot(id) => {
                let name = row.snapshot.session_id.as_ref()?;
                row.snapshot.snapshot_id == *id && SessionKey::of(scope, name.as_str()) == session
            }
        };
        if !is_asked_for {
            return None;
        }
        // A part that cannot be read was deleted, or will be missed by the reading that follows.
        let snapshot = self.reading().snapshot(Stored::clone(row), Detail::Whole).await;
        Some(Recalled {
            snapshot: snapshot.ok()?,
            version: known.version,
        })
    }

    /// Takes the lock if the session has this version, and its precondition holds then.
    async fn take_as_of(
        &self,
        scope: &Scope,
        request: &LockRequest,
        session: SessionKey,
        place: &LockPlace,
        version: i64,
    ) -> Outcome<LockGrant> {
        let mut patience = Patience::new(self.db.patience);
        while let Some(known) = self
            .cache
            .session(session)
            .filter(|known| known.version == version)
        {
            let precondition = &request.precondition;
            let found = self
                .reading()
                .found(scope, session, Some(&known), precondition, &request.turn)
                .await?;
            precondition.check(&request.session, found.as_ref())?;
            match self.try_lock(scope, request, session, place, Some(&known)).await {
                Ok(Attempt::Answered(grant)) => return Ok(grant),
                // A turn whose answer was lost asks again by its name.
                Err(fault) if fault.is_lost() && patience.wait().await => {}
                Ok(Attempt::Moved) => break,
                Err(fault) if fault.is_conflict() => break,
                Err(fault) => return Err(fault),
            }
        }
        request.precondition.check(&request.session, None)?;
        Err(Fault::Moved)
    }

    /// Releases the lock of a turn, and its place in the queue.
    pub(crate) async fn release_lock(
        &self,
        scope: &Scope,
        session: &SessionId,
        turn: &SnapshotId,
    ) -> Outcome<()> {
        let statement = of_turn(
            "WITH lock AS (DELETE FROM @turn_lock WHERE tenant = $1 AND session = $2 AND turn = $3), \
             place AS (DELETE FROM @turn_queue WHERE tenant = $1 AND session = $2 AND turn = $3) \
             SELECT 1 FROM @turn_queue WHERE tenant = $1 AND session = $2 AND turn <> $3 LIMIT 1",
            scope,
            session,
            turn,
        );
        if !self.db.read(&statement).await?.is_empty() {
            self.announce_freed(scope, session);
        }
        Ok(())
    }

    /// Notifies waiting turns, in any process, that a lock of the session may be free.
    pub(crate) fn announce_freed(&self, scope: &Scope, session: &SessionId) {
        let key = lock_key(scope, session);
        self.watchers.announce(&key);
        self.watchers.wake_freed(&key);
    }

    async fn take_lock(&self, scope: &Scope, request: &LockRequest) -> Outcome<LockGrant> {
        check_id("scope", scope.as_str())?;
        check_id("session id", request.session.as_str())?;
        check_id("turn", request.turn.as_str())?;
        let Some(place) = request.precondition.lock_place() else {
            return Ok(LockGrant::Held);
        };
        let session = SessionKey::of(scope, request.session.as_str());
        if let Some(version) = request.as_of {
            return self.take_as_of(scope, request, session, &place, version).await;
        }
        let begins = matches!(
            request.precondition.on_snapshots(),
            Precondition::Tip(None) | Precondition::Unfollowed { snapshot: None, .. }
        );
        let mut patience = Patience::new(self.db.patience);
        let mut known = self.cache.session(session);
        // The cached session may be outdated. A session that is not cached counts as new if the turn starts
        // one.
        let mut is_verified = false;
        loop {
            if !is_verified && known.is_none() && !begins {
                known = self.look(scope, request, session).await?;
                is_verified = true;
            }
            let found = self
                .reading()
                .found(
                    scope,
                    session,
                    known.as_deref(),
                    &request.precondition,
                    &request.turn,
                )
                .await;
            let attempt = match found {
                Ok(found) => match request.precondition.check(&request.session, found.as_ref()) {
                    Ok(()) => {
                        self.try_lock(scope, request, session, &place, known.as_deref())
                            .await
                    }
                    Err(error) if is_verified => return Err(error.into()),
                    Err(_) => Ok(Attempt::Moved),
                },
                Err(fault) => Err(fault),
            };
            match attempt {
                Ok(Attempt::Answered(grant)) => return Ok(grant),
                Ok(Attempt::Moved) if !is_verified => {}
                Ok(Attempt::Moved) if patience.wait_turn().await => {}
                Ok(Attempt::Moved) => return Err(Fault::Moved),
                Err(fault) if fault.is_lost() && patience.wait().await => {}
                Err(fault) if fault.is_conflict() && patience.wait_turn().await => {}
                Err(fault) => return Err(fault),
            }
            known = self.look(scope, request, session).await?;
            is_verified = true;
        }
    }

    /// Reads the session as it is now.
    async fn look(
        &self,
        scope: &Scope,
        request: &LockRequest,
        session: SessionKey,
    ) -> Outcome<Option<Arc<Known>>> {
        let view = self
            .reading()
            .view(scope, request.turn.as_str(), Some(session))
            .await?;
        Ok(view.session.map(|found| found.known))
    }

    /// Takes the lock, or a place in the queue, if the session still has the version that is known.
    async fn try_lock(
        &self,
        scope: &Scope,
        request: &LockRequest,
        session: SessionKey,
        place: &LockPlace,
        known: Option<&Known>,
    ) -> Outcome<Attempt> {
        let mut statement = of_turn("", scope, &request.session, &request.turn);
        let place = statement.bind(place.key().into_bytes());
        let lease = statement.bind(nanos(request.lease));
        let waits = statement.bind(request.waits);
        let version = known.map_or_else(new_version, |known| known.version);
        let at = statement.bind(version);
        // An exclusive lock: requests for locks of a session, and changes of its version, are serialized.
        let still = if known.is_some() {
            format!(
                "SELECT 1 FROM @session WHERE tenant = $1 AND key = $2 AND version = {at} FOR NO KEY UPDATE"
            )
        } else {
            let owner = statement.bind(scope.as_str().as_bytes().to_vec());
            let name = statement.bind(request.session.as_str().as_bytes().to_vec());
            format!(
                "INSERT INTO @session (tenant, key, version, touched_at, scope, name, tokens) \
                 VALUES ($1, $2, {at}, {NOW}, {owner}, {name}, '{{}}') ON CONFLICT DO NOTHING RETURNING 1"
            )
        };
        let next_version = new_version();
        let bump = if known.is_some() {
            let next = statement.bind(next_version);
            format!(
                ", bumped AS (UPDATE @session SET version = {next} WHERE tenant = $1 AND key = $2 \
                 AND EXISTS (SELECT 1 FROM taken WHERE was_taken))"
            )
        } else {
            String::new()
        };
        statement.sql = format!(
            "WITH still AS ({still}), \
             ahead AS (SELECT turn FROM @turn_queue WHERE tenant = $1 AND session = $2 AND place = {place} \
               AND (until > {NOW} OR turn = $3) ORDER BY number LIMIT 1), \
             taken AS (INSERT INTO @turn_lock AS lock (tenant, session, turn, place, until) \
               SELECT $1, $2, $3, {place}, {NOW} + {lease} FROM still \
               WHERE NOT EXISTS (SELECT 1 FROM ahead WHERE turn <> $3) \
               ON CONFLICT (tenant, session, place) DO UPDATE SET turn = EXCLUDED.turn, until = EXCLUDED.until \
               WHERE lock.turn = EXCLUDED.turn OR lock.until <= {NOW} RETURNING xmax <> 0 AS was_taken), \
             served AS (DELETE FROM @turn_queue WHERE tenant = $1 AND session = $2 AND EXISTS (SELECT 1 FROM taken) \
               AND (turn = $3 OR until <= {NOW})), \
             queued AS (INSERT INTO @turn_queue (tenant, session, turn, place, until) \
               SELECT $1, $2, $3, {place}, {NOW} + {lease} FROM still WHERE {waits} AND NOT EXISTS (SELECT 1 FROM taken) \
               ON CONFLICT (tenant, session, turn) DO UPDATE SET place = EXCLUDED.place, until = EXCLUDED.until){bump} \
             SELECT (SELECT count(*) FROM still), (SELECT was_taken FROM taken), coalesce((SELECT turn FROM @turn_lock \
               WHERE tenant = $1 AND session = $2 AND place = {place}), (SELECT turn FROM ahead))"
        );
        let rows = self.db.run(&statement).await?;
        let row = rows.first().ok_or(Fault::Moved)?;
        if column::<i64>(row, 0)? == 0 {
            return Ok(Attempt::Moved);
        }
        match (column::<Option<bool>>(row, 1)?, known) {
            (Some(_), None) => {
                let begun = Known {
                    version,
                    ..Known::default()
                };
                self.cache.learn_session(session, Arc::new(begun));
            }
            (Some(true), Some(known)) => {
                let bumped = Known {
                    version: next_version,
                    guard: None,
                    ..known.clone()
                };
                self.cache.learn_session(session, Arc::new(bumped));
            }
            (Some(false), Some(_)) => {}
            (None, _) => {
                return Ok(match optional_text(row, 2)? {
                    Some(by) => Attempt::Answered(LockGrant::Taken { by: by.into() }),
                    // A turn that took it at this very moment is not seen by this statement, but by the next.
                    None => Attempt::Moved,
                });
            }
        }
        Ok(Attempt::Answered(LockGrant::Held))
    }
}

impl Reading<'_> {
    /// Checks that a turn still holds the lock of a precondition, if it has one.
    pub(crate) async fn check_lock(
        &self,
        scope: &Scope,
        session: &SessionId,
        precondition: &Precondition,
    ) -> Outcome<()> {
        let (Precondition::Held { turn, .. }, Some(place)) = (precondition, precondition.lock_place()) else {
            return Ok(());
        };
        let mut statement = of_turn("", scope, session, turn);
        let place = statement.bind(place.key().into_bytes());
        statement.sql = format!(
            "SELECT 1 FROM @turn_lock WHERE tenant = $1 AND session = $2 AND turn = $3 AND place = {place}"
        );
        if self.rows(&statement).await?.is_empty() {
            return Err(lock_lost(session, turn).into());
        }
        Ok(())
    }
}

/// The lock under which a row is written, as the parameters of its statement name it.
pub(crate) struct HeldLock {
    turn: String,
    place: String,
    /// The place to which the lock and the queue move.
    next: Option<String>,
    releases: bool,
}

impl HeldLock {
    /// Binds the lock of a precondition, if it has one.
    pub(crate) fn bind(
        statement: &mut Statement<'_>,
        row: Option<&Snapshot>,
        precondition: &Precondition,
    ) -> Option<Self> {
        let (Precondition::Held { turn, releases, .. }, Some(place)) =
            (precondition, precondition.lock_place())
        else {
            return None;
        };
        let next = row.filter(|row| {
            let counts = !row.orphaned && precondition.counts(&row.snapshot_id, row.status);
            counts && place != LockPlace::Session
        });
        let next = next.map(|row| LockPlace::Branch(Some(row.snapshot_id.clone())).key());
        Some(Self {
            turn: statement.bind(turn.as_str().as_bytes().to_vec()),
            place: statement.bind(place.key().into_bytes()),
            next: next.map(|next| statement.bind(next.into_bytes())),
            releases: *releases,
        })
    }

    /// The condition that turns wait in the session `$2` of the tenant `$1`.
    pub(crate) const WAITING: &str = "EXISTS (SELECT 1 FROM @turn_queue WHERE tenant = $1 AND session = $2)";

    /// Returns the condition that the turn still holds the lock, in the session `$2` of the tenant `$1`.
    pub(crate) fn is_held(&self) -> String {
        let Self { turn, place, .. } = self;
        format!(
            "EXISTS (SELECT 1 FROM @turn_lock WHERE tenant = $1 AND session = $2 AND place = {place} AND turn = {turn})"
        )
    }

    /// Moves the lock and the queue along with a commit, or releases the lock.
    pub(crate) fn go_along(&self, parts: &mut Vec<String>) {
        let Self {
            turn, place, next, ..
        } = self;
        let own =
            format!("lock.tenant = $1 AND lock.session = $2 AND lock.place = {place} AND lock.turn = {turn}");
        if self.releases {
            parts.push(format!(
                "released AS (DELETE FROM @turn_lock lock USING cas WHERE {own})"
            ));
        } else if let Some(next) = next {
            parts.push(format!(
                "carried AS (UPDATE @turn_lock lock SET place = {next} FROM cas WHERE {own})"
            ));
        }
        if let Some(next) = next {
            parts.push(format!(
                "led AS (UPDATE @turn_queue waiting SET place = {next} FROM cas WHERE waiting.tenant = $1 \
                 AND waiting.session = $2 AND waiting.place = {place})"
            ));
        }
    }

    pub(crate) fn releases(&self) -> bool {
        self.releases
    }
}
