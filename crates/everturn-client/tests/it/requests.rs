//! The requests of the client, and its parsing of plain responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everturn_client::{Client, HeaderMap, RemoteAgent, RemoteFlow};
use everturn_core::{Context, Error, Status};
use serde_json::{Value, json};

use crate::support::{Loopback, Reply, impatient, impatient_builder};

fn answer(result: &Value) -> Reply {
    Reply::stream(format!("data: {}\n\n", json!({ "result": result })))
}

fn row(id: &str, session: &str) -> Value {
    json!({"result": {
        "snapshotId": id, "sessionId": session, "createdAt": "2026-01-02T03:04:05Z", "status": "completed",
        "state": {"sessionId": session, "messages": [{"role": "user", "content": [{"text": "hello"}]}]},
    }})
}

#[tokio::test]
async fn a_conversation_kept_by_the_server_continues_from_its_snapshot() {
    let server = Loopback::start([
        answer(&json!({"sessionId": "s", "snapshotId": "r1", "finishReason": "stop"})),
        answer(&json!({"sessionId": "s", "snapshotId": "r2", "finishReason": "stop"})),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    chat.run("two").await.unwrap();

    let asked = server.received();
    let message = |text: &str| json!({"message": {"role": "user", "content": [{"text": text}]}});
    assert_eq!(asked[0].body, json!({"data": message("one"), "init": {}}));
    assert_eq!(
        asked[1].body,
        json!({"data": message("two"), "init": {"snapshotId": "r1"}})
    );
    assert_eq!(asked[0].header("accept"), Some("text/event-stream"));
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_conversation_kept_by_the_client_continues_from_its_state() {
    let state = json!({"sessionId": "s", "messages": [], "custom": {"counter": 1}, "later": true});
    let server = Loopback::start([
        answer(&json!({"sessionId": "s", "state": state, "finishReason": "stop"})),
        answer(&json!({"sessionId": "s", "state": state, "finishReason": "stop"})),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    chat.run("two").await.unwrap();

    assert_eq!(server.received()[1].body["init"], json!({ "state": state }));
    assert_eq!(chat.custom().unwrap(), json!({"counter": 1}));
}

#[tokio::test]
async fn a_chat_that_is_resumed_is_read_first_and_one_id_is_enough_for_any_server() {
    let server = Loopback::start([Reply::json(&row("r1", "s")), Reply::json(&row("r1", "s"))]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

    let mut chat = agent.chat().resume("s").open().await.unwrap();
    chat.read().await.unwrap();

    let asked = server.received();
    assert_eq!(chat.messages().len(), 1);
    assert_eq!(asked[0].path, "/agent/getSnapshot");
    assert_eq!(asked[0].body, json!({"data": {"sessionId": "s", "head": true}}));
    assert_eq!(asked[1].body, json!({"data": {"snapshotId": "r1"}}));
}

#[tokio::test]
async fn a_snapshot_of_another_session_is_refused() {
    let server = Loopback::start([Reply::json(&row("r1", "theirs"))]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

    let error = agent
        .chat()
        .resume("mine")
        .snapshot("r1")
        .open()
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}

#[tokio::test]
async fn an_unused_session_starts_and_a_missing_snapshot_does_not() {
    let missing = Reply::new(
        404,
        "application/json",
        r#"{"status":"NOT_FOUND","message":"no snapshot"}"#,
    );
    let server = Loopback::start([missing.clone(), Reply::json(&json!({})), missing]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

    let refused = agent.chat().resume("new").open().await;
    let undefined = agent.chat().resume("new").open().await;
    let snapshot = agent.chat().snapshot("gone").open().await;

    assert!(refused.is_ok() && undefined.is_ok());
    assert_eq!(snapshot.unwrap_err().status(), Status::NotFound);
}

#[tokio::test]
async fn an_abort_is_understood_for_every_status_of_the_server() {
    let reply = |status: &str| Reply::json(&json!({"result": {"snapshotId": "r", "status": status}}));
    let server = Loopback::start([
        reply("pending"),
        reply("aborting"),
        reply("aborted"),
        reply("completed"),
        reply("pausing"),
        Reply::json(&json!({"result": {"snapshotId": "r"}})),
        Reply::empty(404),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let mut aborts = Vec::new();
    for _ in 0..7 {
        let abort = agent.abort("r").await.unwrap();
        aborts.push(abort.map_or_else(String::new, |abort| {
            format!("{} {}", abort.previous, abort.status)
        }));
    }

    assert_eq!(
        aborts,
        [
            "pending aborting",
            "pending aborting",
            "pending aborted",
            "completed completed",
            "pausing pausing",
            "",
            "",
        ]
    );
    assert_eq!(server.received()[0].path, "/agent/abort");
    assert_eq!(server.received()[0].body, json!({"data": {"snapshotId": "r"}}));
}

#[tokio::test]
async fn reading_is_tried_again_and_a_turn_that_was_refused_is_not() {
    let server = Loopback::start([
        Reply::empty(503),
        Reply::new(200, "application/json", r#"{"resu"#).broken(),
        Reply::json(&row("r1", "s")),
        Reply::empty(503),
    ])
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();

    let row = agent.get_snapshot("r1").await.unwrap();
    let turn = agent.run_text("hi").await.unwrap_err();

    assert_eq!(row.snapshot_id.as_str(), "r1");
    assert_eq!(turn.status(), Status::Unavailable);
    assert_eq!(server.received().len(), 4);
}

#[tokio::test]
async fn companions_may_be_elsewhere() {
    let server = Loopback::start([Reply::json(&row("r1", "s")), Reply::empty(404)]).await;
    let elsewhere = server.url.replace("/agent", "");
    let agent: RemoteAgent = impatient().agent("http://127.0.0.1:9/nobody?x=1").unwrap();
    let agent = agent
        .with_snapshot_url(&format!("{elsewhere}/rows?tenant=a"))
        .unwrap()
        .with_abort_url(&format!("{elsewhere}/stop"))
        .unwrap();

    agent.latest_snapshot("s").await.unwrap();
    agent.abort("r").await.unwrap();

    let paths: Vec<String> = server
        .received()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(paths, ["/rows?tenant=a", "/stop"]);
}

#[tokio::test]
async fn the_header_provider_is_called_before_every_request_and_replaces_fixed_headers() {
    let server = Loopback::start([
        answer(&json!({"sessionId": "s", "snapshotId": "r1"})),
        Reply::json(&row("r1", "s")),
    ])
    .await;
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let client = impatient_builder()
        .header("x-api-key", "fixed")
        .header("x-kind", "fixed")
        .headers(move |context| {
            let n = counter.fetch_add(1, Ordering::Relaxed);
            async move {
                let mut headers = HeaderMap::new();
                headers.insert("x-api-key", format!("token-{n}").parse()?);
                if let Some(user) = context.auth().and_then(Value::as_str) {
                    headers.insert("x-user", user.parse()?);
                }
                Ok(headers)
            }
        })
        .build()
        .unwrap();
    let agent: RemoteAgent = client.agent(&server.url).unwrap();
    let context = Context::new().with_value("auth", "ann");

    let mut chat = agent.chat().context(context).open().await.unwrap();
    chat.run("hi").await.unwrap();
    chat.read().await.unwrap();

    let requests = server.received();
    for (n, request) in requests.iter().enumerate() {
        assert_eq!(request.header("x-api-key"), Some(format!("token-{n}").as_str()));
        assert_eq!(request.header("x-kind"), Some("fixed"));
        assert_eq!(request.header("x-user"), Some("ann"));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_request_is_not_sent_if_its_headers_cannot_be_obtained() {
    let server = Loopback::start([]).await;
    let client = impatient_builder()
        .headers(|_| async { Err(Error::unauthenticated("log in first").into()) })
        .build()
        .unwrap();
    let flow: RemoteFlow = client.flow(&server.url).unwrap();

    let error = flow.run(json!(1)).await.unwrap_err();

    assert_eq!(
        (error.status(), error.message()),
        (Status::Unauthenticated, "log in first")
    );
    assert!(server.received().is_empty());
}

#[test]
fn an_invalid_header_is_refused_and_credentials_are_not_printed() {
    let wrong = Client::builder().header("x y", "z").build().unwrap_err();
    let client = Client::builder()
        .header("authorization", "Bearer secret")
        .build()
        .unwrap();

    assert_eq!(wrong.status(), Status::InvalidArgument);
    assert!(!format!("{client:?}").contains("secret"));
}

#[tokio::test]
async fn a_flow_may_take_and_give_nothing() {
    let server = Loopback::start([Reply::json(&json!({})), Reply::stream("data: {}\n\n")]).await;
    let flow: RemoteFlow<(), (), Value> = impatient().flow(&server.url).unwrap();

    flow.run(()).await.unwrap();
    flow.stream(()).unwrap().output().await.unwrap();

    assert_eq!(server.received()[0].body, json!({ "data": null }));
}

#[tokio::test]
async fn a_deadline_ends_a_turn_that_takes_longer() {
    let server = Loopback::start([Reply::stream("data: {\"message\":{}}\n\n").silent()]).await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_millis(200);

    let error = agent
        .chat()
        .context(Context::new().with_deadline(deadline))
        .run("hi")
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::DeadlineExceeded);
}
