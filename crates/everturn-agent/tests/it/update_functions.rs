//! A function given to an `update` method may use the session that it changes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use everturn_agent::Turn;
use everturn_ai::Message;

use crate::support::{Counter, handling, texts};

#[tokio::test]
async fn a_change_of_the_custom_state_may_read_the_session_and_add_messages() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        turn.update_custom(|custom| {
            assert_eq!(turn.messages().len(), 1);
            turn.add_message(Message::model("counted"));
            custom.counter = turn.custom().counter + 3;
        });
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    let state = reply.state().unwrap();
    assert_eq!(texts(&state.messages), ["go", "counted"]);
    assert_eq!(state.custom.as_ref().unwrap()["counter"], 3);
}

#[tokio::test]
async fn a_change_of_the_messages_may_read_the_session_and_change_the_custom_state() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        turn.update_messages(|messages| {
            turn.update_custom(|custom| custom.counter = 7);
            messages.push(Message::model(format!(
                "{} of {}",
                turn.custom().counter,
                turn.messages().len()
            )));
        });
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    assert_eq!(texts(&reply.state().unwrap().messages), ["go", "7 of 1"]);
}

#[tokio::test]
async fn a_change_inside_a_change_of_the_same_part_panics_instead_of_waiting_for_itself() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        let nested = || turn.update_custom(|_| turn.update_custom(|custom| custom.counter = 1));
        let panic = catch_unwind(AssertUnwindSafe(nested)).unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("the custom state cannot be changed"), "{said}");

        turn.update_custom(|custom| custom.counter += 2);
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    assert_eq!(reply.state().unwrap().custom.as_ref().unwrap()["counter"], 2);
}
