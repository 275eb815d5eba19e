//! Warnings that a process logs once per cause.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The number of causes that are remembered. Further ones are not logged.
const MAX_CAUSES: usize = 1_000;

static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns whether a cause is new to this process, and remembers it.
pub(crate) fn is_new(cause: String) -> bool {
    let mut warned = WARNED.lock();
    warned.len() < MAX_CAUSES && warned.insert(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_new_once() {
        assert!(is_new("a test".to_owned()));
        assert!(!is_new("a test".to_owned()));
        assert!(is_new("another test".to_owned()));
    }
}
