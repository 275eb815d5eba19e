//! Pages of listings, and bounds of stored values.

use everturn_agent::Snapshot;
use everturn_agent::store::{Cursor, Order, Page, PendingPage, PendingQuery, PendingRun, SessionSummary};
use everturn_ai::History;
use everturn_core::Error;
use jiff::Timestamp;

use crate::{Fault, Outcome};

/// The greatest number of messages in a history.
pub const MAX_MESSAGES: usize = 1 << 24;

/// Checks that a history can be stored.
///
/// # Errors
/// [`Fault::Refused`] with `RESOURCE_EXHAUSTED` for a history of more than [`MAX_MESSAGES`].
pub fn check_history(history: &History) -> Outcome<()> {
    if history.len() <= MAX_MESSAGES {
        return Ok(());
    }
    Err(Error::resource_exhausted(format!(
        "a history of {} messages cannot be stored: {MAX_MESSAGES} are allowed; summarise it or start a new session",
        history.len()
    ))
    .into())
}

/// Returns the direction of an order in SQL, and the operator for rows after a cursor.
pub fn sql_order(order: Order) -> (&'static str, &'static str) {
    match order {
        Order::Newest => ("DESC", "<"),
        Order::Oldest => ("ASC", ">"),
    }
}

/// Returns a time in nanoseconds, for comparison with stored times. A time outside of their range becomes the
/// first or the last of them.
pub fn clamped_nanos(time: Timestamp) -> i64 {
    let clamped = time.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(clamped).expect("clamped to fit")
}

/// Creates a page from the result of a query for one row more than the page size.
pub fn page<T>(mut items: Vec<T>, size: usize, row: impl Fn(&T) -> &Snapshot) -> Page<T> {
    let more = items.len() > size;
    items.truncate(size);
    let next = items.last().filter(|_| more).map(|last| Cursor::at(row(last)));
    Page { items, next }
}

/// Creates a page of pending runs from the result of a query for one row more than the page size.
pub fn pending_page(mut items: Vec<PendingRun>, query: &PendingQuery) -> PendingPage {
    let more = items.len() > query.page_size();
    items.truncate(query.page_size());
    let next = items.last().filter(|_| more).map(PendingRun::cursor);
    PendingPage { items, next }
}

/// Creates the summary of a session from its latest snapshot.
///
/// # Errors
/// [`Fault::Damaged`] for a snapshot without a session.
pub fn summary(latest: Snapshot) -> Outcome<SessionSummary> {
    let session_id = latest.session_id.clone();
    let session_id = session_id.ok_or_else(|| Fault::damaged("a row has no session"))?;
    Ok(SessionSummary { session_id, latest })
}
