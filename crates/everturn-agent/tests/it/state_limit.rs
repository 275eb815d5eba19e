//! A session's state has a limit, and a turn that would pass it is not kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn_agent::Turn;
use everturn_agent::store::MemoryStore;
use everturn_ai::{FinishReason, Message};
use everturn_core::Status;
use serde_json::Value;

use crate::support::{handling, snapshots};

#[tokio::test]
async fn a_turn_that_makes_the_state_too_large_fails_and_is_not_kept() {
    let (store, asked) = (Arc::new(MemoryStore::new()), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let agent = handling("chatty", move |turn: Turn<Value>| {
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            let answer = turn
                .message()
                .map_or_else(String::new, |message| message.text().repeat(10));
            turn.add_message(Message::model(answer));
            Ok(FinishReason::Stop)
        }
    })
    .store(Arc::clone(&store))
    .max_state_bytes(100_000)
    .define()
    .unwrap();
    let say = async |length: usize| agent.chat().resume("s").run("x".repeat(length)).await;

    say(1_000).await.unwrap();
    let answer_too_long = say(10_000).await.unwrap_err();
    let asked_so_far = asked.load(Ordering::SeqCst);
    let message_too_long = say(100_000).await.unwrap_err();
    say(1_000).await.unwrap();

    for error in [answer_too_long, message_too_long] {
        assert_eq!(error.status(), Status::ResourceExhausted, "{error}");
        assert!(error.message().contains("max_state_bytes"), "{error}");
    }
    assert_eq!(
        asked.load(Ordering::SeqCst),
        asked_so_far + 1,
        "nothing is done for a message that is too long"
    );
    assert_eq!(snapshots(store.as_ref(), &"s".into()).await.len(), 2);
}
