//! The conversation is shared from turn to turn: a turn adds to it and copies nothing.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, agent};
use everturn_ai::messages::Segment;
use everturn_ai::prompt::MessagesSlot;
use everturn_ai::{Message, Messages, NoInput, Tool, ToolContext, generate_hook};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::json;

use crate::prompt_support::{call, registry};

const TURNS: usize = 20;

/// A model that looks before it answers.
fn looking() -> ScriptedModel {
    ScriptedModel::new().otherwise(|request| {
        let is_asked = request
            .messages
            .last()
            .is_some_and(|message| message.role() == everturn_ai::Role::User);
        if is_asked {
            Reply::from(call("look", "l", json!({})))
        } else {
            Reply::text("leeks")
        }
    })
}

fn look() -> Tool {
    Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
        Ok("leeks")
    })
}

/// Runs many turns and checks that every one goes on in the lineage of the first.
async fn assert_one_lineage(agent: Agent) {
    let mut lineages = Vec::new();
    let mut chat = agent.chat().resume("s").open().await.unwrap();
    for _ in 0..TURNS {
        chat.run("what is there?").await.unwrap();
        let snapshot = agent.latest_snapshot("s").await.unwrap();
        lineages.push(snapshot.state.unwrap().messages.lineage().id());
    }

    lineages.dedup();
    assert_eq!(lineages.len(), 1, "{lineages:?}");
}

#[tokio::test]
async fn turns_with_tools_and_a_prompt_on_both_sides_share_one_lineage() {
    let agent = agent(&registry(&looking()), "chef")
        .system("sys")
        .tool(look())
        .store(MemoryStore::new());

    assert_one_lineage(agent.define().unwrap()).await;
}

#[tokio::test]
async fn a_function_that_gives_the_conversation_back_keeps_it_shared() {
    let around = MessagesSlot::computed(|scope| async move {
        let mut messages = Messages::from(Message::system("sys"));
        messages.append(scope.conversation);
        Ok(messages)
    });
    let agent = agent(&registry(&looking()), "chef")
        .messages(around)
        .tool(look())
        .store(MemoryStore::new());

    assert_one_lineage(agent.define().unwrap()).await;
}

#[tokio::test]
async fn a_middleware_that_adds_to_the_request_leaves_the_conversation_shared() {
    let reminding = generate_hook(|mut round, next| async move {
        round.request.messages.splice(0..0, [Message::system("remember")]);
        Ok(next.run(round).await?)
    });
    let model = ScriptedModel::new().otherwise(|_| "leeks");
    let agent = agent(&registry(&model), "chef")
        .use_middleware(reminding)
        .store(MemoryStore::new());

    assert_one_lineage(agent.define().unwrap()).await;
}

#[tokio::test]
async fn a_request_borrows_the_conversation() {
    let model = looking();
    let agent = agent(&registry(&model), "chef")
        .system("sys")
        .user_prompt("quick")
        .tool(look())
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    for _ in 0..TURNS {
        chat.run("what is there?").await.unwrap();
    }

    let request = model.last_request().unwrap();
    let owned: usize = request
        .messages
        .segments()
        .map(|segment| {
            if let Segment::Run(run) = segment {
                run.len()
            } else {
                0
            }
        })
        .sum();
    assert!(request.messages.len() > 2 * TURNS);
    assert!(
        owned <= 4,
        "{owned} of {} messages were copied into the request",
        request.messages.len()
    );
}
