//! A tool that asks a person ends the turn, and the client gets the question.

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentFinishReason, SnapshotStatus, agent};
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_testkit::{Reply, contains_each};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::prompt_support::{answering, call, fresh, invoke, json, said};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Payment {
    to: String,
}

fn pay() -> Tool {
    Tool::interrupt_with::<Payment, String, _>(
        "pay",
        "Moves money.",
        |payment: Payment| json!({"ask": payment.to}),
    )
}

fn balance() -> Tool {
    Tool::new(
        "balance",
        "Says what is left.",
        |_: NoInput, _: ToolContext| async { Ok(7) },
    )
}

fn asking() -> Reply {
    Reply::tools([
        call("balance", "b", json!({})),
        call("pay", "p", json!({"to": "ann"})),
    ])
}

#[tokio::test]
async fn the_chunk_of_an_interrupt_holds_what_waits_and_nothing_else() {
    let (registry, _model) = answering([asking()]);
    let agent = agent(&registry, "banker")
        .tools([pay(), balance()])
        .define()
        .unwrap();

    let (chunks, output) = invoke(agent.connect(fresh()), "pay ann").await;

    let chunks: Vec<_> = chunks.iter().map(json).collect();
    let waiting =
        json!({"toolRequest": {"name": "pay", "ref": "p"}, "metadata": {"interrupt": {"ask": "ann"}}});
    let expected = [
        json!({"modelChunk": {"role": "tool", "content": [waiting]}}),
        json!({"turnEnd": {"finishReason": "interrupted"}}),
    ];
    assert_eq!(contains_each(&chunks, &expected), Ok(()));
    assert_eq!(chunks[0]["modelChunk"]["content"].as_array().unwrap().len(), 1);
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Interrupted));
}

#[tokio::test]
async fn the_reply_tells_what_is_asked_with_its_types() {
    let (registry, _model) = answering([asking()]);
    let agent = agent(&registry, "banker")
        .tools([pay(), balance()])
        .define()
        .unwrap();

    let reply = agent.run_text("pay ann").await.unwrap();

    let interrupts = reply.interrupts();
    assert_eq!(interrupts.len(), 1);
    assert_eq!(
        (interrupts[0].name(), interrupts[0].reference()),
        ("pay", Some("p"))
    );
    assert_eq!(
        interrupts[0].input::<Payment>().unwrap(),
        Payment { to: "ann".to_owned() }
    );
    assert_eq!(
        interrupts[0].data::<serde_json::Value>().unwrap(),
        json!({"ask": "ann"})
    );
    assert_eq!(reply.tool_requests().count(), 2);
}

#[tokio::test]
async fn an_interrupted_turn_is_a_completed_snapshot_that_ends_with_the_request() {
    let (registry, _model) = answering([asking()]);
    let agent = agent(&registry, "banker")
        .system("sys")
        .tools([pay(), balance()])
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let reply = agent.run_text("pay ann").await.unwrap();

    let snapshot = agent
        .get_snapshot(reply.snapshot_id().unwrap().clone())
        .await
        .unwrap();
    let messages = snapshot.state.unwrap().messages;
    assert_eq!(
        (snapshot.status, snapshot.finish_reason),
        (SnapshotStatus::Completed, Some(AgentFinishReason::Interrupted))
    );
    assert_eq!(said(&messages), ["user: pay ann", "model: ask(balance) ask(pay)"]);
    assert_eq!(messages.last(), reply.message());
    let metadata = json(messages.last().unwrap());
    assert_eq!(metadata["content"][0]["metadata"], json!({"pendingOutput": 7}));
    let asked = &metadata["content"][1]["metadata"];
    assert_eq!(asked["interrupt"], json!({"ask": "ann"}));
    let members: Vec<_> = asked.as_object().unwrap().keys().collect();
    assert_eq!(members, ["interrupt", "approval"]);
}
