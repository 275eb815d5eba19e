//! Which turns become snapshots.

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentInit, AgentSession, SnapshotEvent, SnapshotId, SnapshotPolicy, custom_agent,
};
use everturn_ai::Message;
use everturn_core::{Registry, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Repeats the message.
fn parrot(policy: SnapshotPolicy) -> Agent {
    custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let heard = turn.message().map(|message| message.text().into_owned());
                turn.add_message(Message::model(heard.unwrap_or_default()));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .snapshots(policy)
    .define()
    .unwrap()
}

/// Sends so many inputs in one invocation and gives the snapshots that the ends of their turns name.
async fn snapshots(agent: &Agent, turns: usize) -> Vec<Option<SnapshotId>> {
    let mut connection = agent.connect(AgentInit {
        session_id: Some("s".into()),
        ..AgentInit::default()
    });
    let mut snapshots = Vec::new();
    for turn in 0..turns {
        connection.send(format!("turn {turn}")).await.unwrap();
        while let Some(chunk) = connection.next().await {
            if let Some(end) = chunk.turn_end {
                snapshots.push(end.snapshot_id);
                break;
            }
        }
    }
    connection.output().await.unwrap();
    snapshots
}

#[tokio::test]
async fn the_policy_never_writes_no_snapshot_and_the_invocation_continues() {
    let agent = parrot(SnapshotPolicy::never());

    let snapshots = snapshots(&agent, 3).await;

    assert_eq!(snapshots, [None, None, None]);
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap_err().status(),
        Status::NotFound
    );
}

#[tokio::test]
async fn a_snapshot_holds_the_turns_before_it_that_have_none() {
    let agent = parrot(SnapshotPolicy::when(|moment| {
        moment.event == SnapshotEvent::TurnEnd && moment.turn_index % 2 == 1
    }));

    let snapshots = snapshots(&agent, 4).await;

    let taken: Vec<bool> = snapshots.iter().map(Option::is_some).collect();
    assert_eq!(taken, [false, true, false, true]);
    let last = agent.latest_snapshot("s").await.unwrap();
    assert_eq!(last.state.unwrap().messages.len(), 8);
    assert_eq!(last.turn_index, Some(3));
    assert_eq!(last.index, Some(1));
    assert_eq!(last.parent_id, snapshots[1]);
}

#[tokio::test]
async fn a_policy_sees_the_snapshot_before() {
    let agent = parrot(SnapshotPolicy::when(|moment| match moment.previous {
        None => true,
        Some(previous) => moment.state.messages.len() >= previous.messages.len() + 4,
    }));

    let taken: Vec<bool> = snapshots(&agent, 5).await.iter().map(Option::is_some).collect();

    assert_eq!(taken, [true, false, true, false, true]);
}

#[tokio::test]
async fn a_policy_that_panics_fails_the_turn_and_not_the_process() {
    let agent = parrot(SnapshotPolicy::when(|_| panic!("cannot decide")));

    let error = agent.run_text("hello").await.unwrap_err();

    assert_eq!(error.status(), Status::Internal);
    assert!(error.message().contains("cannot decide"), "{error}");
}

#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
struct Count {
    turns: u32,
}

#[tokio::test]
async fn a_policy_may_be_written_over_the_custom_state() {
    let agent = custom_agent(
        &Registry::new(),
        "counter",
        |session: AgentSession<Count>| async move {
            session
                .run(|turn| async move {
                    turn.update_custom(|count| count.turns += 1);
                    Ok(())
                })
                .await?;
            Ok(session.result())
        },
    )
    .store(MemoryStore::new())
    .snapshots(SnapshotPolicy::never())
    .snapshots_when(|moment, count, before| {
        let two_more = before.map_or(count.turns == 2, |before| count.turns == before.turns + 2);
        moment.event == SnapshotEvent::TurnEnd && two_more
    })
    .define()
    .unwrap();

    let mut chat = agent.connect(AgentInit::session("s"));
    let mut taken = Vec::new();
    for _ in 0..5 {
        chat.send("count").await.unwrap();
        while let Some(chunk) = chat.next().await {
            if let Some(end) = chunk.turn_end {
                taken.push(end.snapshot_id.is_some());
                break;
            }
        }
    }
    chat.output().await.unwrap();

    assert_eq!(taken, [false, true, false, true, false]);
}
