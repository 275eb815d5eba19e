//! Runs in threads with a long record: they cost what their request holds.

use everturn_agent::store::MemoryStore;
use everturn_testkit::ScriptedModel;
use serde_json::{Value, json};

use crate::support::counting::CountingStore;
use crate::support::{Served, types, user};

/// Serves a thread of that many turns.
async fn thread_of(turns: usize) -> (Served, CountingStore) {
    let store = CountingStore::new(MemoryStore::new());
    let model = ScriptedModel::new().replies(vec!["ok"; turns + 1]);
    let server = Served::on(store.clone(), model, |server| server).await;
    for turn in 0..turns {
        let messages = json!([user(&format!("u{turn}"), "go on")]);
        server.run(&format!("r{turn}"), messages).await.end();
    }
    (server, store)
}

#[tokio::test]
async fn a_run_asks_no_more_of_the_store_in_a_long_thread() {
    type Shows = fn(Vec<Value>) -> Vec<Value>;
    let newest: Shows = |_| vec![user("new", "hi")];
    let everything: Shows = |held| held.into_iter().chain([user("new", "hi")]).collect();
    let edit_of_the_second: Shows = |held| held.into_iter().take(2).chain([user("new", "hi")]).collect();
    let second_again: Shows = |held| held.into_iter().take(3).collect();
    let last_again: Shows = |mut held| {
        held.pop();
        held
    };
    for (way, shows) in [
        ("newest", newest),
        ("everything", everything),
        ("edit", edit_of_the_second),
        ("second again", second_again),
        ("last again", last_again),
    ] {
        let mut asked = Vec::new();
        for turns in [3, 60] {
            let (server, store) = thread_of(turns).await;
            let messages = json!(shows(server.thread().await));
            store.forget();

            let run = server.run("new", messages).await;

            assert_eq!(run.text(), "ok", "{way}");
            assert!(!types(&run.events()).contains(&"MESSAGES_SNAPSHOT"), "{way}");
            asked.push(store.calls());
        }
        assert_eq!(asked[0], asked[1], "{way}");
    }
}
