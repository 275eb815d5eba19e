//! Slots: streams of one age, whose chunks are dropped together.
//!
//! The key of a stream ends with the number of its slot, and the chunks of a slot are a partition of their
//! table. Deleting streams one by one leaves their chunks. When the last stream of a slot is deleted, the
//! partition is truncated: that costs the same for any number of chunks and leaves nothing to vacuum.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_postgres::error::SqlState;

use super::stream_options::length;
use crate::connection::Database;
use crate::fault::Outcome;
use crate::statement::{Statement, column};

/// The number of slots. The schema has as many partitions.
const SLOTS: i64 = 8;

/// The shortest time that a slot is for.
const SHORTEST: Duration = Duration::from_secs(10);

/// Returns the key of a stream that begins now, where streams are kept for this long.
pub(super) fn key_at(now: i64, keep_for: Duration) -> i64 {
    let slot = (now / length(keep_for.max(SHORTEST))).rem_euclid(SLOTS);
    fastrand::i64(0..i64::MAX / SLOTS) * SLOTS + slot
}

/// Returns the slot of the stream whose key this parameter is.
pub(super) fn slot_of(key: &str) -> String {
    format!("({key} & 7)::smallint")
}

/// When this process looks for slots to drop.
pub(super) struct SlotSweep {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

impl SlotSweep {
    pub(super) fn new(keep_for: Duration) -> Self {
        Self {
            every: keep_for.max(SHORTEST) / 2,
            last: Mutex::new(None),
        }
    }

    fn is_due(&self) -> bool {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= self.every);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// Drops the chunks of slots that have no stream any more, if it is time to.
    pub(super) async fn run(&self, db: &Database) -> Outcome<()> {
        if !self.is_due() {
            return Ok(());
        }
        drop_empty(db).await.map(drop)
    }
}

/// Drops the chunks of slots that have no stream any more, and returns the number of these slots.
pub(super) async fn drop_empty(db: &Database) -> Outcome<usize> {
    let empty = Statement::new(format!(
        "SELECT slots.slot FROM generate_series(0, {last}) AS slots (slot) \
         WHERE NOT EXISTS (SELECT 1 FROM @stream WHERE key & 7 = slots.slot) \
         AND EXISTS (SELECT 1 FROM @chunk c WHERE c.slot = slots.slot)",
        last = SLOTS - 1
    ));
    let rows = db.read(&empty).await?;
    for row in &rows {
        drop_slot(db, column(row, 0)?).await?;
    }
    Ok(rows.len())
}

async fn drop_slot(db: &Database, slot: i32) -> Outcome<()> {
    // Chunks come after their streams are committed. So with the partition locked, a stream that cannot be
    // seen has none.
    let truncate = db.qualified(&format!(
        "DO $everturn$ BEGIN \
           LOCK TABLE @chunk_{slot} IN ACCESS EXCLUSIVE MODE NOWAIT; \
           IF NOT EXISTS (SELECT 1 FROM @stream WHERE key & 7 = {slot}) THEN TRUNCATE @chunk_{slot}; END IF; \
         EXCEPTION WHEN lock_not_available THEN NULL; END $everturn$"
    ));
    let connection = db.connection().await?;
    let truncated = db.bounded(connection.batch_execute(&truncate)).await;
    match truncated {
        // A user that may delete rows and not truncate tables.
        Err(fault) if fault.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let delete = Statement::new(format!(
                "DELETE FROM @chunk c WHERE slot = {slot} AND NOT EXISTS (SELECT 1 FROM @stream WHERE key = c.stream)"
            ));
            db.read(&delete).await.map(drop)
        }
        truncated => truncated,
    }
}
