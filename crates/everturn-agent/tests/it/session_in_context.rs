//! The conversation, reached from code that was not handed it.

use everturn_agent::{AgentInit, Session, SessionHandle, Turn, TurnContext};
use everturn_ai::Message;
use everturn_core::{Action, ActionType, Context, run};
use serde_json::Value;

use crate::support::{Counter, handling, texts};

#[tokio::test]
async fn tools_and_steps_reach_the_session_by_its_type() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        let tool = Action::new(ActionType::TOOL, "count", |by: u32, _context| async move {
            let session = Session::<Counter>::current().expect("the session is there");
            session.update_custom(|custom| custom.counter += by);
            session.add_message(Message::model("counted"));
            Ok(session.custom().counter)
        });
        assert_eq!(tool.run(2).await?, 2);
        assert_eq!(run("step", || async { Ok(tool.run(3).await?) }).await?, 5);
        assert_eq!(turn.custom().counter, 5);
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    assert_eq!(
        texts(&reply.state().unwrap().messages),
        ["go", "counted", "counted"]
    );
}

#[tokio::test]
async fn a_session_is_not_found_under_another_state_type_but_in_the_untyped_view() {
    let agent = handling("counter", |turn: Turn<Counter>| async move {
        assert!(Session::<Value>::current().is_none());
        let handle = SessionHandle::current().expect("the untyped view is there");
        assert_eq!(handle.session_id(), turn.session_id());
        assert_eq!(handle.custom_json()["counter"], 0);
        assert_eq!(handle.messages().len(), 1);
        let elsewhere = turn.context().clone();
        let found = tokio::spawn(
            elsewhere
                .clone()
                .scope(async { Session::<Counter>::current().is_some() }),
        )
        .await?;
        assert!(found);
        assert!(Session::<Counter>::of(&elsewhere).is_some());
        Ok(())
    })
    .define()
    .unwrap();

    agent.run_text("go").await.unwrap();

    assert!(SessionHandle::current().is_none());
    assert!(Session::<Counter>::of(&Context::new()).is_none());
}

#[tokio::test]
async fn concurrent_invocations_find_their_own_session() {
    let agent = handling("mirror", |turn: Turn| async move {
        for _ in 0..10 {
            tokio::task::yield_now().await;
            let found = Session::<Value>::current().unwrap();
            assert_eq!(found.session_id(), turn.session_id());
            assert!(TurnContext::current().is_some());
        }
        Ok(())
    })
    .define()
    .unwrap();

    let runs = (0..20).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let mut connection = agent.connect(AgentInit::default());
            connection.send("go").await.unwrap();
            connection.output().await.unwrap()
        })
    });
    for run in runs.collect::<Vec<_>>() {
        assert_eq!(run.await.unwrap().error, None);
    }
}

#[tokio::test]
async fn messages_are_shared_replaced_and_updated_without_touching_what_others_hold() {
    let agent = handling("editor", |turn: Turn| async move {
        let before = turn.messages();
        turn.add_messages([Message::model("a"), Message::model("b")]);
        turn.update_messages(|history| *history = history.truncate_to(2));
        turn.set_messages(vec![Message::user("only this")]);
        assert_eq!(texts(&before), ["go"]);
        Ok(())
    })
    .define()
    .unwrap();

    let reply = agent.run_text("go").await.unwrap();

    assert_eq!(texts(&reply.state().unwrap().messages), ["only this"]);
}
