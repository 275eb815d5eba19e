//! Whole conversations on one WebSocket, with an Everturn server.

use std::net::SocketAddr;

use everturn_agent::{AgentFinishReason, AgentInit, AgentReply, AgentStreamChunk, SnapshotStatus};
use everturn_client::{AgentSocket, RemoteAgent};
use everturn_core::{Context, Error, Status};
use everturn_server::{BearerTokens, Limits, Server, WebSockets};
use everturn_testkit::eventually;

use crate::support::kitchen::{Kitchen, serve, soon, streamed_turn};
use crate::support::{Loopback, Proxy, Reply, impatient, impatient_builder};

fn chef(address: SocketAddr) -> RemoteAgent<Kitchen> {
    let url = format!("http://{address}/agents/chef");
    impatient().agent(&url).unwrap()
}

async fn socket(address: SocketAddr) -> AgentSocket<Kitchen> {
    chef(address).websocket().await.unwrap()
}

fn text_of(chunk: &AgentStreamChunk) -> String {
    let chunk = chunk.model_chunk.as_ref();
    chunk.map(|chunk| chunk.text().into_owned()).unwrap_or_default()
}

/// The number of opened connections, and of requests to that path.
fn counted(proxy: &Proxy, path: &str) -> (usize, usize) {
    let heads = proxy.heads();
    let opened = heads.iter().filter(|head| head.contains("upgrade: websocket"));
    let asked = heads
        .iter()
        .filter(|head| head.starts_with(&format!("post {path}")));
    (opened.count(), asked.count())
}

#[tokio::test]
async fn a_chat_has_its_turns_on_one_connection() {
    let server = serve(|server| server).await;
    let proxy = Proxy::start(server.address, 0).await;
    let socket = socket(proxy.address).await;

    let first = socket.run("Something with leeks?").await.unwrap();
    let mut chat = socket.chat().resume(first.session_id()).open().await.unwrap();
    let (text, custom, second) = streamed_turn(&mut chat, "And without butter?").await;
    let failed = chat.run("burn").await.unwrap_err();
    let third = chat.run("And with cream?").await.unwrap();

    assert_eq!(text, "Leek and potato soup.");
    assert_eq!(custom, Some(Kitchen { turns: 2 }));
    assert_eq!(second.artifacts()[0].content_text(), "Soup");
    assert_eq!(failed.message(), "the soup burnt");
    assert!(AgentReply::<Kitchen>::of(&failed).is_some());
    assert_eq!(third.finish_reason(), AgentFinishReason::Stop);
    assert_eq!(chat.messages().len(), 6);
    assert_eq!(counted(&proxy, "/agents/chef http"), (1, 0));
}

#[tokio::test]
async fn a_conversation_stays_open_between_its_turns() {
    let server = serve(|server| server).await;
    let socket = socket(server.address).await;
    let mut conversation = socket.connect(AgentInit::session("dinner"));

    let mut ends = Vec::new();
    for text in ["one leek", "two leeks", "three leeks"] {
        conversation.send_text(text).await.unwrap();
        let (mut turn, mut text) = (conversation.receive(), String::new());
        while let Some(chunk) = turn.next().await {
            text.push_str(&text_of(&chunk));
            ends.extend(chunk.turn_end);
        }
        assert_eq!(text, "Leek and potato soup.");
    }
    assert_eq!(conversation.custom().unwrap(), Kitchen { turns: 3 });
    let output = conversation.output().await.unwrap();

    assert_eq!(ends.len(), 3);
    assert_eq!(output.snapshot_id, ends[2].snapshot_id);
    let row = socket.agent().latest_snapshot("dinner").await.unwrap();
    assert_eq!(row.state.unwrap().messages.len(), 6);
}

#[tokio::test]
async fn inputs_that_are_sent_ahead_are_taken_one_after_the_other() {
    let server = serve(|server| server).await;
    let socket = socket(server.address).await;
    let mut conversation = socket.connect(AgentInit::default());

    let sender = conversation.sender();
    let sending = tokio::spawn(async move {
        for number in 0..40 {
            sender.send(format!("{number} leeks").into()).await.unwrap();
        }
        sender.close();
    });
    let mut ends = 0;
    while let Some(chunk) = conversation.next().await {
        ends += usize::from(chunk.turn_end.is_some());
    }
    sending.await.unwrap();

    assert_eq!(ends, 40);
    assert_eq!(
        conversation.output().await.unwrap().finish_reason,
        Some(AgentFinishReason::Stop)
    );
}

#[tokio::test]
async fn work_in_the_background_is_begun_and_aborted_on_the_connection() {
    let server = serve(|server| server).await;
    let proxy = Proxy::start(server.address, 0).await;
    let socket = socket(proxy.address).await;
    let mut chat = socket.chat().open().await.unwrap();

    let done = chat.detach("soup").await.unwrap().wait().await.unwrap();
    let task = chat.detach("wait").await.unwrap();
    soon(&server.begun).await;
    let abort = task.abort().await.unwrap().unwrap();
    soon(&server.stopped).await;

    assert_eq!(done.text(), "Leek and potato soup.");
    assert_eq!(abort.status, SnapshotStatus::Aborted);
    assert_eq!(task.wait().await.unwrap_err().status(), Status::Aborted);
    assert_eq!(socket.abort("nobody").await.unwrap(), None);
    assert_eq!(counted(&proxy, "/agents/chef/abort"), (1, 0));
}

#[tokio::test]
async fn a_run_is_aborted_while_a_conversation_is_open() {
    let server = serve(|server| server).await;
    let socket = socket(server.address).await;
    let task = socket.chat().open().await.unwrap().detach("wait").await.unwrap();
    soon(&server.begun).await;
    let mut conversation = socket.connect(AgentInit::default());
    conversation.send_text("soup").await.unwrap();
    conversation.next().await.unwrap();

    let abort = task.abort().await.unwrap().unwrap();

    assert_eq!(abort.status, SnapshotStatus::Aborted);
    soon(&server.stopped).await;
    assert_eq!(
        conversation.output().await.unwrap().finish_reason,
        Some(AgentFinishReason::Stop)
    );
}

#[tokio::test]
async fn a_turn_that_is_dropped_stops_and_the_next_has_the_connection() {
    let server = serve(|server| server).await;
    let proxy = Proxy::start(server.address, 0).await;
    let socket = socket(proxy.address).await;
    let mut chat = socket.chat().open().await.unwrap();

    let mut turn = chat.send("wait").await.unwrap();
    turn.next().await.unwrap().unwrap();
    soon(&server.begun).await;
    drop(turn);
    soon(&server.stopped).await;
    let reply = chat.run("soup").await.unwrap();

    assert_eq!(reply.text(), "Leek and potato soup.");
    assert_eq!(counted(&proxy, "/agents/chef http"), (1, 0));
}

#[tokio::test]
async fn a_cancelled_context_ends_the_turn() {
    let server = serve(|server| server).await;
    let socket = socket(server.address).await;
    let context = Context::current().child();
    let mut chat = socket.chat().context(context.clone()).open().await.unwrap();

    let turn = chat.send("wait").await.unwrap();
    soon(&server.begun).await;
    context.cancel();

    assert_eq!(turn.output().await.unwrap_err().status(), Status::Cancelled);
    soon(&server.stopped).await;
}

#[tokio::test]
async fn callers_are_identified_when_the_connection_is_opened() {
    let server =
        serve(|server: Server| server.context(BearerTokens::new([("ann", "leek-leek-leek-leek")]))).await;
    let url = format!("http://{}/agents/chef", server.address);
    let with_token = impatient_builder()
        .headers(|_| async {
            Ok(
                [("authorization".parse()?, "Bearer leek-leek-leek-leek".parse()?)]
                    .into_iter()
                    .collect(),
            )
        })
        .build()
        .unwrap();

    let known: RemoteAgent<Kitchen> = with_token.agent(&url).unwrap();
    let reply = known.websocket().await.unwrap().run("soup").await.unwrap();
    let refused = chef(server.address).websocket().await.unwrap_err();

    assert_eq!(reply.text(), "Leek and potato soup.");
    assert_eq!(refused.status(), Status::Unauthenticated, "{refused}");
}

#[tokio::test]
async fn a_server_with_another_protocol_is_distinguished_from_an_absent_one() {
    let code = |error: Error| error.status();
    let other = Loopback::start([
        Reply::new(404, "text/plain", "Cannot GET /agent"),
        Reply::json(&serde_json::json!({ "result": 1 })),
        Reply::new(405, "text/plain", ""),
        Reply::new(
            403,
            "application/json",
            r#"{"status":"PERMISSION_DENIED","message":"not you"}"#,
        ),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&other.url).unwrap();

    let missing = agent.websocket().await.unwrap_err();
    assert!(
        missing.message().contains("everturn.v1") && missing.message().contains("404"),
        "{missing}"
    );
    assert!(missing.message().contains("use HTTP"), "{missing}");
    assert_eq!(code(missing), Status::Unimplemented);
    assert_eq!(code(agent.websocket().await.unwrap_err()), Status::Unimplemented);
    assert_eq!(code(agent.websocket().await.unwrap_err()), Status::Unimplemented);
    assert_eq!(
        code(agent.websocket().await.unwrap_err()),
        Status::PermissionDenied
    );

    let server = serve(|server| server).await;
    let address = server.address;
    drop(server);
    assert_eq!(
        code(chef(address).websocket().await.unwrap_err()),
        Status::Unavailable
    );
}

#[tokio::test]
async fn a_refused_conversation_leaves_the_connection_open() {
    let server = serve(|server| server).await;
    let proxy = Proxy::start(server.address, 0).await;
    let socket = socket(proxy.address).await;

    let gone = socket.chat().snapshot("gone").run("hi").await.unwrap_err();
    let reply = socket.run("soup").await.unwrap();

    assert_eq!(gone.status(), Status::NotFound);
    assert_eq!(reply.text(), "Leek and potato soup.");
    assert_eq!(counted(&proxy, "/agents/chef http"), (1, 0));
}

#[tokio::test]
async fn a_connection_that_was_closed_for_idleness_is_opened_again() {
    // The server checks for idle connections when it pings: long after the end of a turn, even on a busy
    // machine.
    let idle = WebSockets::default()
        .ping_every(std::time::Duration::from_secs(2))
        .idle_time(std::time::Duration::from_millis(100));
    let server = serve(|server: Server| server.websockets(idle)).await;
    let proxy = Proxy::start(server.address, 0).await;
    let socket = socket(proxy.address).await;
    let mut chat = socket.chat().open().await.unwrap();
    chat.run("soup").await.unwrap();

    eventually("the idle connection is closed", async || !socket.is_open()).await;
    let reply = chat.run("more soup").await.unwrap();

    assert_eq!(reply.text(), "Leek and potato soup.");
    assert_eq!(chat.custom().unwrap().turns, 2);
    assert_eq!(counted(&proxy, "/agents/chef http"), (2, 0));
}

#[tokio::test]
async fn an_input_too_large_for_the_server_is_an_error() {
    let limits = Limits::default().body_bytes(10_000);
    let server = serve(|server: Server| server.limits(limits)).await;
    let socket = socket(server.address).await;

    let refused = socket.run("x".repeat(20_000)).await.unwrap_err();
    let reply = socket.run("soup").await.unwrap();

    assert_eq!(refused.status(), Status::InvalidArgument, "{refused}");
    assert!(refused.message().contains("10000"), "{refused}");
    assert_eq!(reply.text(), "Leek and potato soup.");
}
