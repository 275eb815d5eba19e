//! Waiting in tests: for an event, or on a paused clock.

use std::time::Duration;

use tokio::time::Instant;

/// The longest time that [`eventually`] and [`in_time`] wait. A busy machine does not reach it.
const AT_MOST: Duration = Duration::from_mins(1);

/// The shortest pause between two polls of [`eventually`].
const INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds that depends on another task, thread or process.
///
/// Polls the condition every few milliseconds, and less often if the check takes long.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (work, done) = tokio::sync::watch::channel(false);
/// tokio::spawn(async move { work.send(true) });
///
/// everturn_testkit::eventually("the work is done", async || *done.borrow()).await;
/// # }
/// ```
///
/// # Panics
/// With `what` if the condition does not hold after a minute.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    // Uses real time, because a paused clock may advance by a minute at once.
    let begun = std::time::Instant::now();
    let mut polled = begun;
    while !holds().await {
        assert!(begun.elapsed() < AT_MOST, "not after {AT_MOST:?}: {what}");
        tokio::time::sleep(INTERVAL.max(polled.elapsed() * 4)).await;
        polled = std::time::Instant::now();
    }
}

/// Awaits a future that another task, thread or process completes.
///
/// # Panics
/// With `what` if the future is not complete after a minute.
pub async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(AT_MOST, future).await;
    output.unwrap_or_else(|_| panic!("not after {AT_MOST:?}: {what}"))
}

/// Lets time pass on a clock that is paused, as by `#[tokio::test(start_paused = true)]`.
///
/// # Panics
/// If the clock is not paused. A test that waits in real time is slow, and fails on a busy machine.
pub async fn elapse(duration: Duration) {
    let (paused, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed().is_zero() {}
    assert_eq!(Instant::now(), paused, "the clock is not paused");
    tokio::time::sleep(duration).await;
}

/// Lets real time pass where neither an event nor a paused clock can replace it, such as before a kill that may
/// fall anywhere into the work. Every call gives its reason.
pub async fn real_pause(duration: Duration, _reason: &str) {
    tokio::time::sleep(duration).await;
}

/// The same as [`real_pause`], and blocks the thread.
pub fn blocking_real_pause(duration: Duration, _reason: &str) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "the clock is not paused")]
    async fn real_time_does_not_elapse() {
        elapse(Duration::ZERO).await;
    }

    #[tokio::test(start_paused = true)]
    async fn time_on_a_paused_clock_elapses_at_once() {
        let begun = Instant::now();

        elapse(Duration::from_hours(1)).await;

        assert_eq!(begun.elapsed(), Duration::from_hours(1));
    }
}
