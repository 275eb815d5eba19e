//! Conversations of an earlier version of the desk continue.

use everturn::agent::store::MemoryStore;
use everturn::prelude::*;
use everturn::testkit::ScriptedModel;
use support_desk::desk::{self, Ticket};
use support_desk::orders::Orders;

/// The state of version 1, which had no priority.
#[payload]
#[derive(Debug, Default, Clone)]
struct FirstTicket {
    notes: Vec<String>,
}

async fn app() -> Everturn {
    let model = ScriptedModel::new().otherwise(|_| "Of course.");
    Everturn::builder()
        .model("house/large", model)
        .default_model("house/large")
        .with(Orders::demonstration("unused".into()))
        .build()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_field_that_was_added_to_the_state_is_filled_from_the_default() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let before = app().await;
    let earlier = before.agent("desk").custom::<FirstTicket>().store(store.clone());
    let earlier = earlier.define().unwrap();
    let notes = vec!["the kettle is broken".to_owned()];
    let given = FirstTicket { notes: notes.clone() };
    earlier
        .chat()
        .resume("kettle")
        .custom(given)
        .run("Hello.")
        .await
        .unwrap();

    let now = desk::define(&app().await, store).unwrap();
    let ann = Context::new().with_value("auth", json!({"customer": "ann"}));
    let mut chat = now.chat().resume("kettle").context(ann).open().await.unwrap();
    let reply = chat.run("Is it still open?").await.unwrap();

    assert_eq!(reply.text(), "Of course.");
    assert_eq!(chat.custom().unwrap(), Ticket { notes, priority: 3 });
}
