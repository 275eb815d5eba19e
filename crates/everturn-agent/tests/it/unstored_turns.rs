//! Turns of an agent with a store that store nothing.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, SessionQuery};
use everturn_agent::{Agent, AgentInput, SessionState, Unstored, agent};
use everturn_ai::{History, Message};
use everturn_core::{Context, Status};
use everturn_testkit::ScriptedModel;

use crate::prompt_support::{answering, asked};

fn keeper() -> (Agent, ScriptedModel) {
    let (registry, model) = answering(["one", "two", "three"]);
    let agent = agent(&registry, "keeper")
        .store(MemoryStore::new())
        .define()
        .unwrap();
    (agent, model)
}

fn unstored() -> Context {
    Context::new().with_extension(Arc::new(Unstored))
}

async fn sessions(agent: &Agent) -> usize {
    agent
        .archive()
        .unwrap()
        .sessions(&SessionQuery::default())
        .await
        .unwrap()
        .items
        .len()
}

#[tokio::test]
async fn a_turn_runs_on_the_given_messages_and_leaves_nothing() {
    let (agent, model) = keeper();
    let told = SessionState {
        messages: History::from_iter([Message::user("I am Ann."), Message::model("Hello Ann.")]),
        ..SessionState::default()
    };

    let reply = agent
        .chat()
        .context(unstored())
        .state(told)
        .run("Who am I?")
        .await
        .unwrap();

    assert_eq!(reply.text(), "one");
    assert_eq!(reply.snapshot_id(), None);
    assert_eq!(
        asked(&model.requests()[0]),
        ["user: I am Ann.", "model: Hello Ann.", "user: Who am I?"]
    );
    assert_eq!(sessions(&agent).await, 0);
}

#[tokio::test]
async fn a_turn_continues_a_session_without_moving_its_tip() {
    let (agent, model) = keeper();
    let kept = agent.chat().resume("s").run("first").await.unwrap();

    let beside = agent
        .chat()
        .context(unstored())
        .resume("s")
        .run("aside")
        .await
        .unwrap();
    let next = agent.chat().resume("s").run("second").await.unwrap();

    assert_eq!(beside.text(), "two");
    assert_eq!(
        asked(&model.requests()[2]),
        ["user: first", "model: one", "user: second"]
    );
    assert_ne!(next.snapshot_id(), kept.snapshot_id());
}

#[tokio::test]
async fn unstored_work_cannot_be_detached() {
    let (agent, _) = keeper();

    let error = agent
        .chat()
        .context(unstored())
        .run(AgentInput::from("go").detached())
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition, "{error}");
    assert_eq!(sessions(&agent).await, 0);
}
