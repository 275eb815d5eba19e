//! The client against a Genkit server in JavaScript.
//!
//! Ignored by default, because it needs `node` and packages:
//!
//! ```text
//! npm install --prefix .tools/npm genkit@1.42.0 @genkit-ai/express@1.42.0 express@5.3.0
//! cargo test -p everturn-client --test javascript_server -- --ignored
//! ```

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use everturn_agent::{AgentFinishReason, AgentReply, SnapshotStatus};
use everturn_client::{RemoteAgent, RemoteFlow};
use everturn_core::{Reason, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{impatient, impatient_builder};

/// A server for all tests of this file. It exits when its input is closed.
fn server(path: &str) -> String {
    static SERVER: OnceLock<(Child, String)> = OnceLock::new();
    let (_, address) = SERVER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let packages = root.join("../../.tools/npm").canonicalize();
        let mut process = Command::new("node")
            .arg(root.join("tests/js/server.mjs"))
            .arg(packages.expect("the packages are installed"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        // Its further output is drained, so that the process never blocks on writing.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        (process, address)
    });
    format!("{address}{path}")
}

fn agent<S>(path: &str) -> RemoteAgent<S> {
    impatient().agent(&server(path)).unwrap()
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
struct Count {
    count: u32,
    last: String,
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_chat_streams_and_continues_from_turn_to_turn() {
    let agent: RemoteAgent = agent("/prompted");
    let mut chat = agent.chat().open().await.unwrap();

    let mut turn = chat.send("grüß dich").await.unwrap();
    let mut pieces = Vec::new();
    let mut ended = None;
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        pieces.push(chunk.text().into_owned());
        ended = ended.or(chunk.turn_end().cloned());
    }
    let first = turn.output().await.unwrap();
    let second = chat.run("again").await.unwrap();

    assert_eq!(pieces, ["you ", "said: ", "grüß ", "dich", ""]);
    assert_eq!(first.text(), "you said: grüß dich");
    assert_eq!(first.finish_reason(), AgentFinishReason::Stop);
    assert_eq!(ended.unwrap().snapshot_id.as_ref(), first.snapshot_id());
    assert_eq!(second.session_id(), first.session_id());
    assert_eq!(chat.messages().len(), 4);
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_conversation_is_resumed_by_its_session_and_branched_by_its_snapshot() {
    let agent: RemoteAgent = agent("/prompted");
    let first = agent.run_text("one").await.unwrap();
    let snapshot = first.snapshot_id().cloned().unwrap();

    let mut resumed = agent.chat().resume(first.session_id()).open().await.unwrap();
    assert_eq!(resumed.messages().len(), 2);
    let second = resumed.run("two").await.unwrap();
    let mut branch = agent.chat().snapshot(snapshot.clone()).open().await.unwrap();
    let other = branch.run("three").await.unwrap();
    resumed.read().await.unwrap();

    assert_eq!(resumed.messages().len(), 4);
    let rows = [second, other].map(|reply| reply.snapshot_id().cloned().unwrap());
    for id in rows {
        let row = agent.get_snapshot(id).await.unwrap();
        assert_eq!(row.parent_id.as_ref(), Some(&snapshot));
        assert_eq!(row.status, SnapshotStatus::Completed);
    }
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn state_that_the_client_keeps_comes_back_with_custom_state_and_artifacts() {
    let agent: RemoteAgent<Count> = agent("/counter");
    let custom = Count {
        count: 5,
        last: String::new(),
    };
    let mut chat = agent.chat().custom(custom).open().await.unwrap();

    chat.run("one").await.unwrap();
    let mut turn = chat.send("two").await.unwrap();
    let (mut seen, mut made) = (None, None);
    while let Some(chunk) = turn.next().await {
        let chunk = chunk.unwrap();
        seen = chunk.custom().unwrap();
        made = made.or(chunk.artifact().map(everturn_agent::Artifact::content_text));
    }
    let reply = turn.output().await.unwrap();

    let expected = Count {
        count: 7,
        last: "two".to_owned(),
    };
    assert_eq!(seen.as_ref(), Some(&expected));
    assert_eq!(made.as_deref(), Some("7"));
    assert_eq!(chat.custom().unwrap(), expected);
    assert_eq!(reply.custom().unwrap(), Some(expected));
    assert_eq!(chat.artifacts()[0].content_text(), "7");
    assert_eq!(chat.state().unwrap().messages.len(), 4);
    assert_eq!(chat.snapshot_id(), None);
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn state_that_the_server_keeps_is_in_its_snapshots() {
    let agent: RemoteAgent<Count> = agent("/keeper");
    let mut chat = agent.chat().resume("a session of our own").open().await.unwrap();

    chat.run("one").await.unwrap();
    chat.run("two").await.unwrap();
    let later = agent.chat().resume("a session of our own").open().await.unwrap();
    let row = agent.latest_snapshot("a session of our own").await.unwrap();

    assert_eq!(chat.custom().unwrap().count, 2);
    assert_eq!(later.custom().unwrap().last, "two");
    assert_eq!(later.artifacts()[0].content_text(), "2");
    assert_eq!(later.messages().len(), 4);
    assert_eq!(Some(&row.snapshot_id), chat.snapshot_id());
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn an_interrupt_is_answered() {
    let agent: RemoteAgent = agent("/prompted");
    let mut chat = agent.chat().open().await.unwrap();

    let asked = chat.run("use ask").await.unwrap();
    let interrupts = asked.interrupts();
    let answer = interrupts[0].respond("by a person").unwrap();
    let reply = chat.answer(answer).await.unwrap().output().await.unwrap();

    assert_eq!(asked.finish_reason(), AgentFinishReason::Interrupted);
    assert_eq!(interrupts[0].name(), "ask");
    assert_eq!(interrupts[0].input::<Value>().unwrap(), json!({"about": "leeks"}));
    assert_eq!(reply.text(), "you said: by a person");
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn an_interrupted_tool_is_restarted() {
    let agent: RemoteAgent = agent("/prompted");
    let mut chat = agent.chat().open().await.unwrap();

    let asked = chat.run("use act").await.unwrap();
    let interrupt = asked.interrupts().remove(0);
    let confirmation = interrupt.restart(json!({"confirmed": true})).unwrap();
    let reply = chat.answer(confirmation).await.unwrap().output().await.unwrap();

    assert_eq!(interrupt.data::<Value>().unwrap(), json!({"confirm": "leeks"}));
    assert_eq!(reply.text(), "you said: acted on leeks");
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn work_in_the_background_is_waited_for() {
    let agent: RemoteAgent = agent("/worker");
    let mut chat = agent.chat().open().await.unwrap();

    let task = chat.detach("quick").await.unwrap();
    let reply = task.wait().await.unwrap();
    let found_again = agent.task(task.snapshot_id().clone());

    assert_eq!(reply.text(), "worked");
    assert_eq!(found_again.status().await.unwrap(), SnapshotStatus::Completed);
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn work_in_the_background_is_aborted() {
    let agent: RemoteAgent = agent("/worker");
    let mut chat = agent.chat().open().await.unwrap();

    let task = chat.detach("forever").await.unwrap();
    let before = task.status().await.unwrap();
    let abort = task.abort().await.unwrap().unwrap();
    let error = task.wait().await.unwrap_err();
    let nobody = agent.abort("no such run").await.unwrap();

    assert_eq!(before, SnapshotStatus::Pending);
    // The server returns the status before the abort, and newer servers may still be stopping the run.
    assert_eq!(abort.status, SnapshotStatus::Aborting);
    assert_eq!(error.status(), Status::Aborted);
    assert_eq!(nobody, None);
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_turn_that_fails_leaves_the_chat_where_it_was() {
    let agent: RemoteAgent<Count> = agent("/keeper");
    let mut chat = agent.chat().open().await.unwrap();
    let good = chat.run("one").await.unwrap();

    let error = chat.run("break").await.unwrap_err();
    let next = chat.run("two").await.unwrap();

    assert_eq!(
        (error.status(), error.message()),
        (Status::Internal, "intentional failure")
    );
    let failed = AgentReply::<Count>::of(&error).unwrap();
    assert_eq!(failed.snapshot_id(), good.snapshot_id());
    assert_eq!(next.text(), "turn 2");
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_refusal_of_the_server_keeps_its_status() {
    let clients_own: RemoteAgent = agent("/counter");
    let kept: RemoteAgent = agent("/keeper");
    let state = everturn_agent::SessionState::default();

    let session = clients_own.chat().resume("s").run("hi").await.unwrap_err();
    let state = kept.chat().state(state).run("hi").await.unwrap_err();
    let gone = kept.chat().snapshot("gone").run("hi").await.unwrap_err();
    let unread = kept.get_snapshot("gone").await.unwrap_err();

    assert_eq!(session.status(), Status::FailedPrecondition);
    assert!(
        session.message().starts_with("Cannot use 'sessionId'"),
        "{session}"
    );
    assert_eq!(state.status(), Status::FailedPrecondition);
    assert_eq!(gone.status(), Status::NotFound);
    assert_eq!(unread.status(), Status::NotFound);
    assert!(unread.is(everturn_agent::SNAPSHOT_NOT_FOUND));
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn credentials_go_with_every_request() {
    let url = server("/guarded");
    let stranger: RemoteAgent<Count> = impatient().agent(&url).unwrap();
    let friend = impatient_builder()
        .header("authorization", "Bearer secret")
        .build()
        .unwrap();
    let friend: RemoteAgent<Count> = friend.agent(&url).unwrap();

    let refused = stranger.run_text("hi").await.unwrap_err();
    let reply = friend.run_text("hi").await.unwrap();
    let id = reply.snapshot_id().cloned().unwrap();
    let unread = stranger.get_snapshot(id.clone()).await.unwrap_err();

    assert_eq!(
        (refused.status(), refused.message()),
        (Status::PermissionDenied, "not you")
    );
    assert_eq!(unread.status(), Status::PermissionDenied);
    assert_eq!(
        friend.get_snapshot(id).await.unwrap().status,
        SnapshotStatus::Completed
    );
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_flow_runs_and_streams_and_fails() {
    let count: RemoteFlow<u32, String, u32> = impatient().flow(&server("/count")).unwrap();
    let refuse: RemoteFlow<&str, Value, u32> = impatient().flow(&server("/refuse")).unwrap();
    let wrong: RemoteFlow<&str> = impatient().flow(&server("/count")).unwrap();

    let mut stream = count.stream(3).unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk);
    }

    assert_eq!(chunks, [1, 2, 3]);
    assert_eq!(stream.stream_id().await, None);
    assert_eq!(stream.output().await.unwrap(), "counted to 3");
    assert_eq!(count.run(2).await.unwrap(), "counted to 2");
    let kindly = refuse.run("kindly").await.unwrap_err();
    let streamed = refuse.stream("kindly").unwrap().output().await.unwrap_err();
    for error in [kindly, streamed] {
        assert_eq!(
            (error.status(), error.message()),
            (Status::FailedPrecondition, "not today")
        );
        assert_eq!(error.details(), Some(&json!({"until": "monday"})));
    }
    assert_eq!(refuse.run("").await.unwrap_err().message(), "Internal Error");
    assert_eq!(
        wrong.run("x").await.unwrap_err().status(),
        Status::InvalidArgument
    );
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_stream_is_reattached_by_its_name() {
    let flow: RemoteFlow<u32, String, u32> = impatient().flow(&server("/durable/count")).unwrap();

    let mut first = flow.stream(5).unwrap();
    let id = first.stream_id().await.unwrap();
    assert_eq!(first.next().await, Some(1));
    drop(first);
    let mut again = flow.reattach(&id);
    let mut chunks = Vec::new();
    while let Some(chunk) = again.next().await {
        chunks.push(chunk);
    }

    assert_eq!(chunks, [1, 2, 3, 4, 5]);
    assert_eq!(again.output().await.unwrap(), "counted to 5");
    let unknown = flow.reattach("unknown").output().await.unwrap_err();
    assert_eq!(unknown.status(), Status::NotFound);
    assert_ne!(unknown.reason(), Some(Reason::ACTION_NOT_FOUND));
}

#[tokio::test]
#[ignore = "needs node and npm packages"]
async fn a_stream_survives_its_connection_and_nothing_runs_twice() {
    let flow: RemoteFlow<u32, String, u32> = impatient().flow(&server("/cut/count")).unwrap();
    let agent: RemoteAgent = agent("/cut/prompted");

    let mut stream = flow.stream(5).unwrap();
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk);
    }
    let output = stream.output().await.unwrap();
    let mut chat = agent.chat().open().await.unwrap();
    let mut turn = chat.send("one two three").await.unwrap();
    let mut text = String::new();
    while let Some(chunk) = turn.next().await {
        text.push_str(&chunk.unwrap().text());
    }
    let reply = turn.output().await.unwrap();

    assert_eq!(chunks, [1, 2, 3, 4, 5]);
    assert_eq!(output, "counted to 5");
    assert_eq!(text, "you said: one two three");
    assert_eq!(reply.text(), text);
    let runs: Value = everturn_client::reqwest::get(server("/runs"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(runs, json!({"count": 1, "prompted": 1}));
}
