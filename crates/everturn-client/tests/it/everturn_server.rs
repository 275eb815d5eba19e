//! The client against an Everturn server in one process.

use std::net::SocketAddr;

use everturn_agent::{AgentFinishReason, AgentReply, SnapshotStatus};
use everturn_client::{RemoteAgent, RemoteFlow, STREAM_BROKEN};
use everturn_core::stream_log::MemoryStreamLog;
use everturn_core::{Result, Status};
use everturn_server::Server;

use crate::support::kitchen::{Kitchen, serve, soon, streamed_turn};
use crate::support::{Proxy, impatient};

fn keeping_streams(server: Server) -> Server {
    server.stream_log(MemoryStreamLog::new())
}

fn chef(address: SocketAddr) -> RemoteAgent<Kitchen> {
    let url = format!("http://{address}/agents/chef");
    impatient().agent(&url).unwrap()
}

/// Runs a turn and returns its streamed text and its output.
async fn streamed(agent: &RemoteAgent<Kitchen>, text: &str) -> (String, Result<AgentReply<Kitchen>>) {
    let mut chat = agent.chat().open().await.unwrap();
    let mut turn = chat.send(text).await.unwrap();
    let mut text = String::new();
    while let Some(Ok(chunk)) = turn.next().await {
        text.push_str(&chunk.text());
    }
    (text, turn.output().await)
}

#[tokio::test]
async fn a_chat_is_the_same_as_in_the_process() {
    let server = serve(|server| server).await;
    let agent = chef(server.address);

    let first = agent.run_text("Something with leeks?").await.unwrap();
    let mut chat = agent.chat().resume(first.session_id()).open().await.unwrap();
    let (text, custom, second) = streamed_turn(&mut chat, "And without butter?").await;

    assert_eq!(text, "Leek and potato soup.");
    assert_eq!(custom, Some(Kitchen { turns: 2 }));
    assert_eq!(second.artifacts()[0].content_text(), "Soup");
    assert_eq!(chat.messages().len(), 4);
    let row = agent.latest_snapshot(second.session_id()).await.unwrap();
    assert_eq!(Some(&row.snapshot_id), second.snapshot_id());
    assert_eq!(row.parent_id.as_ref(), first.snapshot_id());
}

#[tokio::test]
async fn a_failed_turn_reports_its_cause_and_the_chat_continues() {
    let server = serve(|server| server).await;
    let mut chat = chef(server.address).chat().open().await.unwrap();
    let good = chat.run("soup").await.unwrap();

    let error = chat.run("burn").await.unwrap_err();
    let next = chat.run("soup").await.unwrap();

    assert_eq!(
        (error.status(), error.message()),
        (Status::FailedPrecondition, "the soup burnt")
    );
    assert_eq!(
        AgentReply::<Kitchen>::of(&error).unwrap().snapshot_id(),
        good.snapshot_id()
    );
    assert_eq!(next.finish_reason(), AgentFinishReason::Stop);
    assert_eq!(chat.custom().unwrap().turns, 2);
}

#[tokio::test]
async fn a_first_message_that_failed_and_was_kept_is_tried_again() {
    let server = serve(|server| server).await;
    let url = format!("http://{}/agents/forgetful", server.address);
    let agent: RemoteAgent<Kitchen> = impatient().agent(&url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let error = chat.run("leeks?").await.unwrap_err();
    let kept = chat.snapshot_id().cloned().unwrap();
    let reply = chat.retry().await.unwrap().output().await.unwrap();

    assert_eq!(error.status(), Status::Unavailable);
    let kept = agent.get_snapshot(kept).await.unwrap();
    assert_eq!(kept.status, SnapshotStatus::Failed);
    assert_eq!(kept.index, Some(0));
    assert_eq!(reply.text(), "Yes: leeks?");
    assert_eq!(chat.messages().len(), 2);
    let done = agent.latest_snapshot(chat.session_id().cloned().unwrap()).await;
    assert_eq!(done.unwrap().parent_id, Some(kept.snapshot_id));
}

#[tokio::test]
async fn work_in_the_background_is_waited_for_and_aborted() {
    let server = serve(|server| server).await;
    let agent = chef(server.address);
    let mut chat = agent.chat().open().await.unwrap();

    let done = chat.detach("soup").await.unwrap().wait().await.unwrap();
    let task = chat.detach("wait").await.unwrap();
    soon(&server.begun).await;
    let pending = task.status().await.unwrap();
    let abort = task.abort().await.unwrap().unwrap();
    soon(&server.stopped).await;
    let found_again = agent.task(task.snapshot_id().clone());

    assert_eq!(done.text(), "Leek and potato soup.");
    assert_eq!(pending, SnapshotStatus::Pending);
    assert_eq!(
        (abort.previous, abort.status),
        (SnapshotStatus::Pending, SnapshotStatus::Aborted)
    );
    assert_eq!(found_again.wait().await.unwrap_err().status(), Status::Aborted);
    assert_eq!(agent.abort("nobody").await.unwrap(), None);
}

#[tokio::test]
async fn a_turn_survives_its_connections_and_runs_once() {
    let server = serve(keeping_streams).await;
    let proxy = Proxy::start(server.address, 2).await;

    let (text, reply) = streamed(&chef(proxy.address), "soup").await;

    let reply = reply.unwrap();
    assert_eq!(text, "Leek and potato soup.");
    assert_eq!(reply.text(), "Leek and potato soup.");
    let row = chef(server.address)
        .latest_snapshot(reply.session_id())
        .await
        .unwrap();
    assert_eq!(row.state.unwrap().custom.unwrap()["turns"], 1);
    assert_eq!(row.parent_id, None);
    let heads = proxy.heads();
    assert!(!heads[0].contains("x-genkit-stream-id"), "{heads:?}");
    assert!(heads[1].contains("last-event-id: 2"), "{heads:?}");
}

#[tokio::test]
async fn a_turn_without_a_kept_stream_ends_with_its_connection() {
    let server = serve(|server| server).await;
    let proxy = Proxy::start(server.address, 1).await;

    let (_, reply) = streamed(&chef(proxy.address), "wait").await;

    assert!(reply.unwrap_err().is(STREAM_BROKEN));
    soon(&server.stopped).await;
}

#[tokio::test]
async fn a_turn_that_is_dropped_stops_on_every_server() {
    for server in [serve(|server| server).await, serve(keeping_streams).await] {
        let agent = chef(server.address);
        let mut chat = agent.chat().open().await.unwrap();

        let mut turn = chat.send("wait").await.unwrap();
        turn.next().await.unwrap().unwrap();
        soon(&server.begun).await;
        drop(turn);

        soon(&server.stopped).await;
    }
}

#[tokio::test]
async fn a_stream_is_reattached_and_stopped_by_its_name() {
    let server = serve(keeping_streams).await;
    let url = format!("http://{}/flows/count", server.address);
    let flow: RemoteFlow<u32, String, u32> = impatient().flow(&url).unwrap();

    let mut first = flow.stream(4).unwrap();
    let id = first.stream_id().await.unwrap();
    drop(first);
    let mut again = flow.reattach(&id);
    let mut chunks = Vec::new();
    while let Some(chunk) = again.next().await {
        chunks.push(chunk);
    }

    assert_eq!(chunks, [1, 2, 3, 4]);
    assert_eq!(again.output().await.unwrap(), "counted to 4");
    flow.stop(&id).await.unwrap();
    assert_eq!(flow.stop("unknown").await.unwrap_err().status(), Status::NotFound);
    assert_eq!(
        flow.reattach("unknown").output().await.unwrap_err().status(),
        Status::NotFound
    );
    assert_eq!(flow.run(2).await.unwrap(), "counted to 2");
}

#[tokio::test]
async fn refusals_keep_status_and_message() {
    let server = serve(|server| server).await;
    let agent = chef(server.address);
    let wrong: RemoteFlow<&str> = impatient()
        .flow(&format!("http://{}/flows/count", server.address))
        .unwrap();
    let nowhere: RemoteAgent = impatient()
        .agent(&format!("http://{}/agents/nobody", server.address))
        .unwrap();

    let gone = agent.chat().snapshot("gone").run("hi").await.unwrap_err();
    let state = agent
        .chat()
        .custom(Kitchen { turns: 1 })
        .run("hi")
        .await
        .unwrap_err();

    assert_eq!(gone.status(), Status::NotFound);
    assert_eq!(state.status(), Status::FailedPrecondition);
    assert_eq!(
        agent.get_snapshot("gone").await.unwrap_err().status(),
        Status::NotFound
    );
    assert_eq!(
        wrong.run("x").await.unwrap_err().status(),
        Status::InvalidArgument
    );
    assert_eq!(
        nowhere.run_text("hi").await.unwrap_err().status(),
        Status::NotFound
    );
}
