//! Progress of long operations, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(100);

/// Returns a bar for an operation of known size.
pub(crate) fn bar(output: Output, what: &'static str, amount: u64) -> ProgressBar {
    styled(
        output,
        ProgressBar::new(amount),
        what,
        "{msg} {wide_bar} {pos}/{len} {eta}",
    )
}

/// Returns a bar for a file of a known size.
pub(crate) fn bytes_bar(output: Output, what: &'static str, amount: u64) -> ProgressBar {
    styled(
        output,
        ProgressBar::new(amount),
        what,
        "{msg} {wide_bar} {bytes}/{total_bytes} {eta}",
    )
}

/// Returns a spinner for an operation of unknown size.
pub(crate) fn spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(
        output,
        ProgressBar::new_spinner(),
        what,
        "{spinner} {msg} {elapsed}",
    )
}

/// Returns a spinner with the bytes so far.
pub(crate) fn bytes_spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(
        output,
        ProgressBar::new_spinner(),
        what,
        "{spinner} {msg} {bytes} {elapsed}",
    )
}

/// `indicatif` draws bars on standard error, and only if that is a terminal.
fn styled(output: Output, bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    if output.is_json() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let bar = bar.with_style(style).with_message(what);
    bar.enable_steady_tick(TICK);
    bar
}
