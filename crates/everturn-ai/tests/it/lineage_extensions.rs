//! A lineage's extensions are one per type and live as long as the lineage.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use everturn_ai::{History, Message};

#[derive(Default)]
struct Counter(AtomicUsize);

#[test]
fn all_histories_of_a_lineage_share_its_extensions_and_a_fork_has_its_own() {
    let mut history = History::from_iter([Message::user("a"), Message::model("b")]);
    let earlier = history.truncate_to(1);
    history.push(Message::user("c"));
    let mut fork = earlier.clone();
    fork.push(Message::model("other"));

    let counter = history.lineage().extension::<Counter>();
    counter.0.store(7, Ordering::SeqCst);

    assert!(Arc::ptr_eq(&counter, &earlier.lineage().extension()));
    assert_eq!(fork.lineage().extension::<Counter>().0.load(Ordering::SeqCst), 0);
    assert!(
        history
            .lineage()
            .extension::<Mutex<Vec<u8>>>()
            .lock()
            .is_ok_and(|all| all.is_empty())
    );
}

#[test]
fn an_extension_goes_with_its_lineage() {
    let history = History::from_iter([Message::user("a")]);
    let counter = Arc::downgrade(&history.lineage().extension::<Counter>());
    assert!(counter.upgrade().is_some());

    drop(history);

    assert!(counter.upgrade().is_none());
}
