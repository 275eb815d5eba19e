//! Connections to the database file, and the pool that reads share.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use everturn_core::Result;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::body::Decoder;
use crate::cache::{Cache, Memory};
use crate::fault::{Fault, Outcome, closed};
use crate::options::Durability;
use crate::read::Reading;
use crate::schema::Schema;
use crate::statement::Statements;

/// How many statements stay prepared per connection; more than there are.
const STATEMENTS: usize = 128;

/// How often SQLite retries a lock before it reports that it is busy; about a tenth of a second in all.
const BUSY_TRIES: i32 = 100;

thread_local! {
    /// Until when the current thread waits for a lock; `None` for the short default.
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the deadline of an operation that starts now and waits for a lock.
pub(crate) fn deadline_after(timeout: Duration) -> Instant {
    let now = Instant::now();
    // A timeout beyond the range of the clock is as good as a year.
    now.checked_add(timeout)
        .unwrap_or_else(|| now + Duration::from_hours(24 * 365))
}

/// Runs `work`, whose statements wait for locks until the deadline.
pub(crate) fn with_deadline<T>(deadline: Instant, work: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            DEADLINE.set(None);
        }
    }
    DEADLINE.set(Some(deadline));
    let _reset = Reset;
    work()
}

/// Opens the database for writing, creating or migrating it. Fails if it is another program's.
pub(crate) fn open_writer(
    path: &Path,
    patience: Duration,
    durability: Durability,
    schema: &Schema<'_>,
) -> Outcome<Connection> {
    let mut connection = open(path, patience)?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Normal => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // On systems with a stronger way to force data to the device, a full sync uses it.
    connection.pragma_update(None, "fullfsync", durability == Durability::Full)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Deleted rows are overwritten, not merely unlinked.
    connection.pragma_update(None, "secure_delete", true)?;
    retry(patience, || schema.migrate(&mut connection))?;
    Ok(connection)
}

/// Opens the database for reading.
pub(crate) fn open_reader(path: &Path, patience: Duration) -> Outcome<Connection> {
    let connection = open(path, patience)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens a connection that only detects changes of the database. It never waits for a lock.
pub(crate) fn open_monitor(path: &Path) -> Outcome<Connection> {
    let connection = open_reader(path, Duration::ZERO)?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

/// Returns a number that changes whenever another connection, of any process, has committed.
pub(crate) fn data_version(connection: &Connection) -> Outcome<i64> {
    connection.one("PRAGMA data_version", [], |row| row.get(0))
}

/// Opens the database without migrating it.
pub(crate) fn open(path: &Path, patience: Duration) -> Outcome<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.busy_handler(Some(wait_for_lock))?;
    // Plans must not depend on bound values: otherwise every new value is planned again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // SQLite itself does not wait when two processes switch a new file to the write-ahead log at once.
    retry(patience, || {
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode.eq_ignore_ascii_case("wal") {
            Ok(())
        } else {
            Err(Fault::Refused(everturn_core::Error::failed_precondition(
                format!(
                    "'{}' is on a file system without shared memory, which a session database needs: move it to a local disk",
                    path.display()
                ),
            )))
        }
    })?;
    Ok(connection)
}

/// Waits briefly for a lock: writers hold it for about as long as one sync takes.
fn wait_for_lock(tries: i32) -> bool {
    let may_wait = match DEADLINE.get() {
        Some(deadline) => Instant::now() < deadline,
        None => tries < BUSY_TRIES,
    };
    if may_wait {
        std::thread::sleep(Duration::from_micros(if tries < 10 { 200 } else { 1_000 }));
    }
    may_wait
}

/// Retries an operation while another process holds a lock, for as long as `patience` lasts.
pub(crate) fn retry<T>(patience: Duration, attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    retry_until(deadline_after(patience), attempt)
}

/// Retries an operation while another process holds a lock, until the deadline.
pub(crate) fn retry_until<T>(deadline: Instant, mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    loop {
        match attempt() {
            Err(fault) if fault.is_busy() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

/// The greatest size of a database that is rebuilt whenever a part of it is erased, in bytes: it takes a
/// moment only.
const QUICKLY_REBUILT: u64 = 32 * 1024 * 1024;

/// How thoroughly deleted text is removed from a database's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thoroughness {
    /// The write-ahead log is emptied, if no other process is in the way.
    Log,
    /// The database is rebuilt too, unless it is large.
    Usual,
    /// The database is rebuilt in any case.
    Full,
}

/// Removes the text of deleted rows from the files of a database, after their deletion is committed.
///
/// Deleted rows are overwritten in place, which is not everything: when SQLite balances pages it leaves
/// copies of rows in their unused space. Only a rebuilt file has none of them for certain.
pub(crate) fn scrub(connection: &Connection, deadline: Instant, thoroughness: Thoroughness) -> Outcome<()> {
    let is_rebuilt = match thoroughness {
        Thoroughness::Log => {
            // The log is emptied later, by the next deletion or when the database is closed.
            let _ = empty_log(connection);
            return Ok(());
        }
        Thoroughness::Usual => size(connection)? <= QUICKLY_REBUILT,
        Thoroughness::Full => true,
    };
    let rebuilt = if is_rebuilt {
        rebuild(connection, deadline)
    } else {
        Ok(())
    };
    match rebuilt.and_then(|()| retry_until(deadline, || empty_log(connection))) {
        // The rows are deleted. A concurrent reader must not make the deletion fail.
        Err(fault) if fault.is_busy() && thoroughness == Thoroughness::Usual => {
            tracing::warn!(
                "text of a deleted session remains in the write-ahead log until the log is emptied"
            );
            Ok(())
        }
        scrubbed => scrubbed,
    }
}

fn size(connection: &Connection) -> Outcome<u64> {
    let sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}

/// Rewrites the database without unused space.
pub(crate) fn rebuild(connection: &Connection, deadline: Instant) -> Outcome<()> {
    // The copy may be larger than memory.
    connection.pragma_update(None, "temp_store", "DEFAULT")?;
    let rebuilt = retry_until(deadline, || Ok(connection.execute_batch("VACUUM")?));
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    rebuilt
}

/// Empties the write-ahead log. The first column of the result is whether another connection prevented it.
pub(crate) fn empty_log(connection: &Connection) -> Outcome<()> {
    let busy: bool = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy {
        let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
        return Err(rusqlite::Error::SqliteFailure(busy, None).into());
    }
    Ok(())
}

/// One connection for reading, with its decoder.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    decoder: Decoder,
}

impl Reader {
    pub(crate) fn open(path: &Path, patience: Duration) -> Outcome<Self> {
        Ok(Self {
            connection: open_reader(path, patience)?,
            decoder: Decoder::default(),
        })
    }

    /// Runs `work` on one consistent view of the store.
    pub(crate) fn read<T>(
        &mut self,
        memory: &Mutex<Memory>,
        work: impl FnOnce(&mut Reading<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let transaction = self.connection.transaction()?;
        let mut reading = Reading {
            db: &transaction,
            decoder: &mut self.decoder,
            cache: Cache::new(memory),
        };
        let found = work(&mut reading)?;
        reading.cache.publish();
        transaction.finish()?;
        Ok(found)
    }
}

/// A bounded pool of connections for reading, opened on demand.
pub(crate) struct Pool<C> {
    open: Box<dyn Fn() -> Outcome<C> + Send + Sync>,
    idle: Mutex<Vec<C>>,
    permits: Semaphore,
    size: u32,
}

impl<C> Pool<C> {
    /// Opens the pool with one connection, so that the first read does not wait.
    pub(crate) fn open(size: usize, open: impl Fn() -> Outcome<C> + Send + Sync + 'static) -> Outcome<Self> {
        Ok(Self {
            idle: Mutex::new(vec![open()?]),
            open: Box::new(open),
            permits: Semaphore::new(size),
            size: u32::try_from(size).unwrap_or(u32::MAX),
        })
    }

    /// Waits until one more read may start.
    pub(crate) async fn permit(&self) -> Result<SemaphorePermit<'_>> {
        self.permits.acquire().await.map_err(|_| closed())
    }

    /// Runs `work` on a connection; the caller holds a permit.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut C) -> Outcome<T>) -> Outcome<T> {
        let idle = self.idle().pop();
        let mut connection = idle.map_or_else(|| (self.open)(), Ok)?;
        let outcome = work(&mut connection);
        self.idle().push(connection);
        outcome
    }

    /// Waits for the reads in progress, closes all connections and refuses further reads.
    pub(crate) async fn close(&self) {
        // Without permits the pool is closed already.
        if let Ok(_all) = self.permits.acquire_many(self.size).await {
            self.permits.close();
            self.close_idle();
        }
    }

    /// Closes the connections that are not in use.
    pub(crate) fn close_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<C>> {
        self.idle.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::SESSIONS;

    #[test]
    fn each_level_of_durability_asks_sqlite_for_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");

        for (durability, synchronous, full) in [(Durability::Full, 2, 1), (Durability::Normal, 1, 0)] {
            let writer = open_writer(&path, Duration::from_secs(10), durability, &SESSIONS).unwrap();
            let level = |name: &str| writer.pragma_query_value(None, name, |row| row.get::<_, i64>(0));

            assert_eq!(level("synchronous").unwrap(), synchronous);
            assert_eq!(level("fullfsync").unwrap(), full);
        }
    }
}
