//! Progress of long work, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

const TICK: Duration = Duration::from_millis(100);

/// Returns a bar for work whose amount is known.
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

/// Returns a sign of life for work whose amount is unknown.
pub(crate) fn spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(
        output,
        ProgressBar::new_spinner(),
        what,
        "{spinner} {msg} {elapsed}",
    )
}

/// Returns a sign of life with the bytes so far.
pub(crate) fn bytes_spinner(output: Output, what: &'static str) -> ProgressBar {
    styled(
        output,
        ProgressBar::new_spinner(),
        what,
        "{spinner} {msg} {bytes} {elapsed}",
    )
}

/// Bars are drawn on standard error, and by `indicatif` only if that is a terminal.
fn styled(output: Output, bar: ProgressBar, what: &'static str, template: &str) -> ProgressBar {
    if output.is_json() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("a constant template");
    let bar = bar.with_style(style).with_message(what);
    bar.enable_steady_tick(TICK);
    bar
}
