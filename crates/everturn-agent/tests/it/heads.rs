//! Turns that the policy takes no snapshot of: the session's head.

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{Detail, MemoryStore, Scope, SessionQuery, SessionStore, SnapshotQuery};
use everturn_agent::{
    Agent, AgentBuilder, AgentInit, AgentReply, AgentSession, Concurrency, GetSnapshotRequest, Snapshot,
    SnapshotEvent, SnapshotIds, SnapshotPolicy, Timeline, custom_agent,
};
use everturn_ai::Message;
use everturn_core::{Context, Emitter, Registry, Status};
use serde_json::Value;

use crate::support::snapshots;

/// Answers with the number of messages that it has seen.
fn counter(store: &MemoryStore, policy: SnapshotPolicy) -> AgentBuilder<Value> {
    custom_agent(&Registry::new(), "counter", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                // Lets a turn that came at the same time begin.
                tokio::task::yield_now().await;
                turn.add_message(Message::model(turn.messages().len().to_string()));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(store.clone())
    .snapshots(policy)
}

fn every_other_turn() -> SnapshotPolicy {
    SnapshotPolicy::when(|moment| moment.event == SnapshotEvent::TurnEnd && moment.turn_index % 2 == 1)
}

fn policies() -> Vec<SnapshotPolicy> {
    use SnapshotEvent::{InvocationEnd, RoundEnd, TurnEnd};
    vec![
        SnapshotPolicy::default(),
        SnapshotPolicy::never(),
        SnapshotPolicy::always(),
        SnapshotPolicy::on([InvocationEnd]),
        SnapshotPolicy::on([RoundEnd]),
        SnapshotPolicy::on_change([TurnEnd]),
        every_other_turn(),
        SnapshotPolicy::when(|moment| moment.index == 0),
        SnapshotPolicy::when(|moment| {
            moment
                .previous
                .is_some_and(|previous| moment.state.messages.len() >= previous.messages.len() + 4)
        }),
    ]
}

/// The answers to five turns of a session that sees all its messages.
const ANSWERS: [&str; 5] = ["1", "3", "5", "7", "9"];

#[tokio::test]
async fn a_session_sees_all_its_turns_whatever_the_policy_and_however_it_is_continued() {
    for ids in [SnapshotIds::Uuid, SnapshotIds::ContentAddressed] {
        for timeline in [Timeline::Branching, Timeline::Linear] {
            for policy in policies() {
                let what = format!("{policy:?}, {ids:?}, {timeline:?}");
                let store = MemoryStore::new();
                let agent = counter(&store, policy)
                    .snapshot_ids(ids)
                    .timeline(timeline)
                    .define()
                    .unwrap();

                let mut chat = agent.chat().open().await.unwrap();
                let mut by_chat = Vec::new();
                for _ in 0..5 {
                    by_chat.push(chat.run("a").await.unwrap().text().into_owned());
                }
                assert_eq!(by_chat, ANSWERS, "a chat, {what}");

                let mut by_session = Vec::new();
                for _ in 0..5 {
                    by_session.push(
                        agent
                            .chat()
                            .resume("s")
                            .run("a")
                            .await
                            .unwrap()
                            .text()
                            .into_owned(),
                    );
                }
                assert_eq!(by_session, ANSWERS, "by the session's id, {what}");

                let mut reply: Option<AgentReply> = None;
                let mut by_snapshot = Vec::new();
                for _ in 0..5 {
                    let chat = match &reply {
                        Some(reply) => agent.chat().snapshot(reply.snapshot_id().unwrap().clone()),
                        None => agent.chat(),
                    };
                    let next = chat.run("a").await.unwrap();
                    by_snapshot.push(next.text().into_owned());
                    reply = Some(next);
                }
                assert_eq!(by_snapshot, ANSWERS, "by the output's snapshot, {what}");

                let mut connection = agent.connect(AgentInit::session("c"));
                for _ in 0..4 {
                    connection.send("a").await.unwrap();
                }
                connection.output().await.unwrap();
                let task = agent
                    .chat()
                    .resume("c")
                    .open()
                    .await
                    .unwrap()
                    .detach("a")
                    .await
                    .unwrap();
                task.wait().await.unwrap();
                let reply = agent.chat().resume("c").run("a").await.unwrap();
                assert_eq!(reply.text(), "11", "one connection and a background run, {what}");

                let chat = agent.chat().resume("c").open().await.unwrap();
                assert_eq!(chat.messages().len(), 12, "reading, {what}");
            }
        }
    }
}

/// Runs turns on session `s` and gives the snapshots that their ends named.
async fn ends(agent: &Agent, turns: usize) -> Vec<bool> {
    let mut ends = Vec::new();
    for _ in 0..turns {
        let mut turn = agent.chat().resume("s").stream("a").await.unwrap();
        while let Some(chunk) = turn.next().await {
            if let Some(end) = chunk.unwrap().turn_end() {
                ends.push(end.snapshot_id.is_some());
            }
        }
        turn.output().await.unwrap();
    }
    ends
}

#[tokio::test]
async fn only_the_snapshots_of_the_policy_are_named_listed_and_read_as_the_latest() {
    let store = MemoryStore::new();
    let agent = counter(&store, every_other_turn()).define().unwrap();

    let ends = ends(&agent, 5).await;

    assert_eq!(ends, [false, true, false, true, false]);
    let archive = agent.archive().unwrap();
    let listed = archive
        .list(&SnapshotQuery::of("s".into()).oldest_first())
        .await
        .unwrap()
        .items;
    let numbers: Vec<_> = listed
        .iter()
        .map(|listed| (listed.index, listed.turn_index))
        .collect();
    assert_eq!(numbers, [(Some(0), Some(1)), (Some(1), Some(3))]);
    let (first, second) = (&listed[0], &listed[1]);
    assert_eq!(
        (&first.parent_id, &second.parent_id),
        (&None, &Some(first.snapshot_id.clone()))
    );
    assert_eq!(
        agent.latest_snapshot("s").await.unwrap().snapshot_id,
        second.snapshot_id
    );
    assert_eq!(archive.tree("s").await.unwrap().snapshots().len(), 2);
    let children = archive.children(first.snapshot_id.clone()).await.unwrap();
    assert_eq!(
        children,
        [Snapshot {
            state: None,
            ..second.clone()
        }]
    );
    let ancestors = archive.ancestors(second.snapshot_id.clone()).await.unwrap();
    assert_eq!(ancestors.len(), 1);
    assert_eq!(
        archive.latest("s").await.unwrap().state.unwrap().messages.len(),
        10
    );
}

#[tokio::test]
async fn a_session_without_snapshots_has_no_latest_one_and_goes_on() {
    let store = MemoryStore::new();
    let agent = counter(&store, SnapshotPolicy::never()).define().unwrap();

    assert_eq!(ends(&agent, 3).await, [false, false, false]);

    assert_eq!(
        agent.latest_snapshot("s").await.unwrap_err().status(),
        Status::NotFound
    );
    let sessions = agent
        .archive()
        .unwrap()
        .sessions(&SessionQuery::default())
        .await
        .unwrap();
    assert_eq!(sessions.items.len(), 1);
    assert_eq!(agent.chat().resume("s").run("a").await.unwrap().text(), "7");
}

#[tokio::test]
async fn branches_have_heads_of_their_own() {
    let store = MemoryStore::new();
    let agent = counter(&store, every_other_turn()).define().unwrap();
    let mut main = agent.chat().resume("s").open().await.unwrap();
    main.run("a").await.unwrap();
    let point = main.run("b").await.unwrap().snapshot_id().unwrap().clone();

    let mut branch = agent.chat().snapshot(point).open().await.unwrap();
    branch.run("on the branch").await.unwrap();
    main.run("c").await.unwrap();
    branch.run("on the branch").await.unwrap();
    let on_main = main.run("d").await.unwrap();

    assert_eq!(on_main.text(), "7");
    assert_eq!(main.messages().len(), 8);
    assert!(
        main.messages()
            .iter()
            .all(|message| message.text() != "on the branch")
    );
    let tree = agent.archive().unwrap().tree("s").await.unwrap();
    assert_eq!(tree.snapshots().len(), 3);
    assert_eq!(tree.roots().next().unwrap().children().count(), 2);
}

#[tokio::test]
async fn a_rewind_supersedes_the_head() {
    let store = MemoryStore::new();
    let agent = counter(&store, every_other_turn())
        .timeline(Timeline::Linear)
        .define()
        .unwrap();
    ends(&agent, 3).await;
    let point = agent.latest_snapshot("s").await.unwrap().snapshot_id;

    agent.chat().snapshot(point).run("again").await.unwrap();
    let reply = agent.chat().resume("s").run("a").await.unwrap();

    assert_eq!(reply.text(), "7");
}

#[tokio::test]
async fn of_two_turns_on_one_head_one_is_refused_or_waits_and_none_is_lost() {
    for (concurrency, messages) in [(Concurrency::Queue, 8), (Concurrency::Reject, 6)] {
        let store = MemoryStore::new();
        let agent = counter(&store, SnapshotPolicy::never())
            .concurrency(concurrency)
            .define()
            .unwrap();
        ends(&agent, 2).await;

        let turns = [
            agent.chat().resume("s").run("a"),
            agent.chat().resume("s").run("b"),
        ];
        let answered = futures::future::join_all(turns)
            .await
            .iter()
            .filter(|turn| turn.is_ok())
            .count();

        let head = store
            .latest(&Scope::default(), &"s".into(), Detail::Whole)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(head.state.unwrap().messages.len(), messages, "{concurrency:?}");
        assert_eq!(answered, messages / 2 - 2);
    }
}

#[tokio::test]
async fn an_exported_session_goes_on_from_its_head() {
    let store = MemoryStore::new();
    let agent = counter(&store, every_other_turn()).define().unwrap();
    ends(&agent, 3).await;
    let archive = agent.archive().unwrap();
    let mut file = Vec::new();
    archive.export("s", &mut file).await.unwrap();

    archive
        .import(file.as_slice(), Import::default().into_session("t"))
        .await
        .unwrap();
    archive
        .fork(agent.latest_snapshot("s").await.unwrap().snapshot_id, "u")
        .await
        .unwrap();

    assert_eq!(agent.chat().resume("t").run("a").await.unwrap().text(), "7");
    let listed = archive
        .list(&SnapshotQuery::of("t".into()).oldest_first())
        .await
        .unwrap()
        .items;
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[1].parent_id.as_ref(), Some(&listed[0].snapshot_id));
    assert_eq!(agent.chat().resume("u").run("a").await.unwrap().text(), "5");
    let restored = Archive::of(MemoryStore::new(), Scope::default());
    restored.import(file.as_slice(), Import::default()).await.unwrap();
    assert_eq!(
        restored.latest("s").await.unwrap().state.unwrap().messages.len(),
        6
    );
}

#[tokio::test]
async fn a_head_is_read_by_those_who_ask_for_it() {
    let store = MemoryStore::new();
    let agent = counter(&store, every_other_turn()).define().unwrap();
    ends(&agent, 3).await;
    let action = agent.snapshot_action().unwrap();

    let read = |request| action.call(request, Context::new(), Emitter::silent());
    let head = read(GetSnapshotRequest::head("s")).await.unwrap();
    let latest = read(GetSnapshotRequest::latest("s")).await.unwrap();

    assert_eq!(head.state.unwrap().messages.len(), 6);
    assert_eq!(latest.state.unwrap().messages.len(), 4);
    assert_eq!(head.parent_id, Some(latest.snapshot_id));
    let rows = snapshots(&store, &"s".into()).await;
    assert_eq!(rows.len(), 3, "one row for each turn, as with the default policy");
}
