//! Writing records, one after the other, as the only writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use everturn_ai::EffectId;
use everturn_core::{Context, Error, Result, SpanKind, in_span};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Mutex as AsyncMutex;
use uuid::Uuid;

use super::entry::{Batch, Entry};
use super::identity::TurnKey;
use crate::storage::stored_session::StoredSession;
use crate::store::{
    Journal, JournalGuard, JournalKey, JournalQuery, JournalRecord, Page, Precondition, RECORD_TAKEN,
    TIP_MOVED, TURN_TAKEN_OVER, UnfinishedTurn,
};

/// Entries of a journal, each with the name of its turn if that is another one.
pub(super) type Entries = Vec<(Option<JournalKey>, Entry)>;

/// How often another attempt may write while this one takes the turn up.
const PATIENCE: usize = 16;

/// The location of a turn's journal.
pub(crate) struct JournalLocation {
    pub(crate) session: StoredSession,
    /// The journal's key. Turns that continue from the same state share a journal, so that one finds what
    /// another left.
    pub(crate) key: TurnKey,
    /// The turn's own name, which every attempt at it has and no other turn.
    pub(crate) turn: TurnKey,
    /// The number of its records whose effects are part of the snapshot that the turn continues from.
    pub(crate) past: u64,
    /// The condition under which this attempt may write, as the turn begins.
    pub(crate) guard: JournalGuard,
}

impl JournalLocation {
    pub(super) fn journal(&self) -> Result<&dyn Journal> {
        self.session
            .tenant()
            .store()
            .journal()
            .ok_or_else(|| Error::internal("the session store has stopped keeping journals"))
    }

    async fn read(&self) -> Result<Vec<JournalRecord>> {
        let scope = self.session.tenant().scope();
        self.journal()?.read(scope, &self.key).await
    }

    /// Reads the journal, and those of the session's other unfinished turns.
    async fn read_all(&self) -> Result<(Vec<JournalRecord>, Vec<UnfinishedTurn>)> {
        let (journal, scope) = (self.journal()?, self.session.tenant().scope());
        // Asked first, because the key of the turn is the digest of its input.
        if journal.is_known_empty(scope, self.session.id()) {
            return Ok((Vec::new(), Vec::new()));
        }
        let query = JournalQuery::of_session(scope.clone(), self.session.id().clone());
        let Page { mut items, next } = journal.unfinished(&query).await?;
        if items.is_empty() {
            return Ok((Vec::new(), items));
        }
        let own = items.iter().position(|turn| turn.key == **self.key);
        let records = match own.map(|own| items.remove(own)) {
            Some(own) => own.records,
            None if next.is_some() => self.read().await?,
            None => Vec::new(),
        };
        Ok((records, items))
    }

    pub(super) async fn clear(&self) -> Result<()> {
        let scope = self.session.tenant().scope();
        self.journal()?.clear(scope, &self.key).await
    }
}

/// Appends to one journal.
///
/// Records are written strictly one after the other, so a worker that has lost the turn cannot write past the
/// record it lost. Entries that come while a record is being written share the next one: calls that run at
/// once cost one write.
pub(super) struct Writer {
    location: JournalLocation,
    /// The condition under which this attempt may write now.
    guard: Mutex<Option<JournalGuard>>,
    /// Identifies this attempt's records.
    by: String,
    waiting: Mutex<Waiting>,
    sequence: AsyncMutex<Sequence>,
    /// The number of records in the journal, once this attempt has written one.
    records: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<Arc<Entry>>,
    /// The number of entries that were written.
    written: usize,
}

#[derive(Default)]
struct Sequence {
    next: u64,
    is_lost: bool,
}

impl Writer {
    pub(super) fn new(location: JournalLocation) -> Self {
        Self {
            guard: Mutex::new(Some(location.guard.clone())),
            location,
            by: Uuid::new_v4().simple().to_string(),
            waiting: Mutex::default(),
            sequence: AsyncMutex::default(),
            records: AtomicU64::new(0),
        }
    }

    /// Returns the identity of this attempt.
    pub(super) fn attempt(&self) -> &str {
        &self.by
    }

    /// Returns the name of the journal.
    pub(super) fn key(&self) -> JournalKey {
        JournalKey::clone(&self.location.key)
    }

    pub(super) fn location(&self) -> &JournalLocation {
        &self.location
    }

    /// Creates the writer of the journal of another turn in the session.
    pub(super) fn elsewhere(&self, key: JournalKey) -> Self {
        Self::new(JournalLocation {
            session: self.location.session.clone(),
            key: TurnKey::new(LazyLock::new(Box::new(move || key))),
            turn: self.location.turn.clone(),
            past: 0,
            guard: self
                .guard
                .lock()
                .clone()
                .unwrap_or_else(|| self.location.guard.clone()),
        })
    }

    /// The invocation wrote a snapshot while the turn ran: from now on the turn continues from that one.
    pub(super) fn moved_on(&self, precondition: Precondition) {
        if let Some(guard) = &mut *self.guard.lock() {
            guard.precondition = precondition;
        }
    }

    /// Records in the journal of another turn that this attempt has taken these calls over, and that its turn
    /// is committed.
    pub(super) async fn settle(&self, effects: Vec<EffectId>) {
        // The guard is for a turn in progress. A worker that has claimed the journal since has its number.
        *self.guard.lock() = None;
        if let Err(error) = self.append(Entry::Adopted { effects }).await {
            tracing::warn!(%error, "calls that a turn took over could not be noted; the next turn takes them over again");
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Returns whether the journal has records.
    pub(super) fn has_written(&self) -> bool {
        self.records() > 0
    }

    /// Returns the number of records in the journal once this attempt has written one, else zero.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Acquire)
    }

    /// Returns whether another worker has the turn.
    pub(super) async fn is_lost(&self) -> bool {
        self.sequence.lock().await.is_lost
    }

    /// Reads the entries of earlier attempts and, if there are any, excludes those attempts from now on.
    /// Returns first the entries whose effects are part of the snapshot that the turn continues, then the
    /// later ones; and the journals of the session's other unfinished turns.
    pub(super) async fn take_up(&self) -> Result<([Entries; 2], Vec<UnfinishedTurn>)> {
        let mut sequence = self.sequence.lock().await;
        let (mut records, others) = self.location.read_all().await?;
        for _ in 0..PATIENCE {
            // A journal that was dropped is begun again after the records that the snapshot holds the effects
            // of.
            sequence.next = self.location.past;
            let Some(last) = records.last() else {
                return Ok(([Vec::new(), Vec::new()], others));
            };
            sequence.next = sequence.next.max(last.sequence + 1);
            match self
                .write(&mut sequence, &self.batch(vec![Arc::new(Entry::TakenUp)]))
                .await
            {
                Ok(()) => {
                    let after = records.partition_point(|record| record.sequence < self.location.past);
                    let (past, since) = records.split_at(after);
                    return Ok(([self.entries(past)?, self.entries(since)?], others));
                }
                // The other attempt is awake and has written meanwhile, so its records are read again.
                Err(error) if error.is(RECORD_TAKEN) => records = self.location.read().await?,
                Err(error) => return Err(error),
            }
        }
        Err(taken_over())
    }

    /// Excludes the worker that wrote these records, and returns their entries; `None` if it, or another
    /// worker, has written meanwhile.
    pub(super) async fn claim(&self, records: &[JournalRecord]) -> Result<Option<Entries>> {
        let entries = self.entries(records)?;
        let mut sequence = self.sequence.lock().await;
        sequence.next = records.last().map_or(0, |last| last.sequence + 1);
        match self
            .write(&mut sequence, &self.batch(vec![Arc::new(Entry::TakenUp)]))
            .await
        {
            Ok(()) => Ok(Some(entries)),
            Err(error) if error.is(RECORD_TAKEN) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds a record without entries at every interval, which shows that the turn is in progress, until the
    /// turn is lost.
    pub(super) async fn renew(&self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            let mut sequence = self.sequence.lock().await;
            if let Err(error) = self
                .write_as_only_one(&mut sequence, &self.batch(Vec::new()))
                .await
            {
                tracing::debug!(%error, "the journal of a turn in progress was not renewed");
                if sequence.is_lost {
                    return;
                }
            }
        }
    }

    fn batch(&self, entries: Vec<Arc<Entry>>) -> Batch<Arc<Entry>> {
        Batch {
            by: self.by.clone(),
            turn: self.turn(),
            entries,
        }
    }

    /// Writes an entry durably.
    ///
    /// # Errors
    /// `ABORTED` with [`TURN_TAKEN_OVER`] if another worker has the turn; the store's own errors.
    pub(super) async fn append(&self, entry: Entry) -> Result<()> {
        let number = {
            let mut waiting = self.waiting();
            waiting.entries.push_back(Arc::new(entry));
            waiting.written + waiting.entries.len()
        };
        let mut sequence = self.sequence.lock().await;
        if self.waiting().written >= number {
            return Ok(());
        }
        // Entries stay in the queue until they are written, because this future may be dropped at any await.
        let entries: Vec<Arc<Entry>> = self.waiting().entries.iter().cloned().collect();
        let count = entries.len();
        self.write_as_only_one(&mut sequence, &self.batch(entries))
            .await?;
        let mut waiting = self.waiting();
        waiting.entries.drain(..count);
        waiting.written += count;
        Ok(())
    }

    async fn write_as_only_one(&self, sequence: &mut Sequence, batch: &Batch<Arc<Entry>>) -> Result<()> {
        loop {
            if sequence.is_lost {
                return Err(taken_over());
            }
            match self.write(sequence, batch).await {
                Err(error) if error.is(RECORD_TAKEN) => self.find_who_wrote(sequence).await?,
                written => return written,
            }
        }
    }

    async fn write(&self, sequence: &mut Sequence, batch: &Batch<Arc<Entry>>) -> Result<()> {
        let record = JournalRecord {
            sequence: sequence.next,
            body: batch.body()?,
        };
        in_span(
            "journal",
            SpanKind::Util,
            Context::current(),
            async |_, recorder| {
                recorder.input(&record.body);
                self.append_record(record).await
            },
        )
        .await?;
        sequence.next += 1;
        self.records.store(sequence.next, Ordering::Release);
        Ok(())
    }

    async fn append_record(&self, record: JournalRecord) -> Result<()> {
        let JournalLocation { session, key, .. } = &self.location;
        let journal = self.location.journal()?;
        loop {
            let guard = self.guard.lock().clone();
            let appended = journal.append(session.tenant().scope(), key, record.clone(), guard.as_ref());
            match appended.await {
                // The invocation itself wrote a snapshot while the record was on its way, so the guard is
                // renewed.
                Err(error) if error.is(TIP_MOVED) && *self.guard.lock() != guard => {}
                appended => return appended,
            }
        }
    }

    fn turn(&self) -> String {
        self.location.turn.turn().to_owned()
    }

    fn entries(&self, records: &[JournalRecord]) -> Result<Entries> {
        let own = &self.location.turn;
        let mut entries = Vec::new();
        for record in records {
            let batch = Batch::read(record)?;
            let is_own = batch.turn.is_empty() || batch.turn == own.turn();
            let turn = (!is_own).then(|| JournalKey::new(own.session().clone(), batch.turn));
            entries.extend(batch.entries.into_iter().map(|entry| (turn.clone(), entry)));
        }
        Ok(entries)
    }

    /// Finds out whether a taken number was written by this attempt, in a write whose answer was lost, or by
    /// another.
    async fn find_who_wrote(&self, sequence: &mut Sequence) -> Result<()> {
        let records = self.location.read().await?;
        let taken = records.iter().find(|record| record.sequence == sequence.next);
        let is_own = match taken {
            Some(record) => Batch::read(record)?.by == self.by,
            None => false,
        };
        if is_own {
            sequence.next += 1;
        } else {
            sequence.is_lost = true;
        }
        Ok(())
    }
}

fn taken_over() -> Error {
    Error::aborted("another worker has taken this turn up; this one has stopped")
        .with_reason(TURN_TAKEN_OVER)
        .with_public()
}
