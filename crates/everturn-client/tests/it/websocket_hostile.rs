//! A WebSocket whose server misbehaves: no turn is lost silently, and none is sent twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_client::{Client, RemoteAgent, STREAM_BROKEN};
use everturn_core::{Error, Status};
use futures::SinkExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::support::websocket_server::{Peer, WebSocketServer, behave, chunk, say, wait_for};
use crate::support::{impatient, impatient_builder};

/// Runs a turn with a server whose first connection fails after the input and a chunk, and a second turn
/// after it. Returns the text and the error of the first turn.
async fn broken<F, Fut>(client: &Client, wrong: F) -> (String, Error)
where
    F: Fn(Peer) -> Fut + Send + Sync + Copy + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let inputs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&inputs);
    let server = WebSocketServer::start(move |connection, mut peer| {
        let seen = Arc::clone(&seen);
        async move {
            if connection > 0 {
                return behave(peer).await;
            }
            wait_for(&mut peer, "input").await;
            seen.fetch_add(1, Ordering::SeqCst);
            chunk(&mut peer, "le").await;
            wrong(peer).await;
        }
    })
    .await;
    let agent: RemoteAgent = client.agent(&server.url).unwrap();
    let socket = agent.websocket().await.unwrap();
    let mut chat = socket.chat().open().await.unwrap();

    let mut turn = chat.send("soup?").await.unwrap();
    let mut text = String::new();
    while let Some(Ok(chunk)) = turn.next().await {
        text.push_str(&chunk.text());
    }
    let error = turn.output().await.unwrap_err();
    assert_eq!(inputs.load(Ordering::SeqCst), 1, "a turn is sent once");
    assert!(!socket.is_open());

    let reply = chat.run("again?").await.unwrap();
    assert_eq!(reply.text(), "soup", "the next turn has another connection");
    (text, error)
}

fn assert_unseen(error: &Error) {
    assert_eq!(error.status(), Status::Unavailable, "{error}");
    assert!(error.is(STREAM_BROKEN), "{error}");
    assert!(error.message().contains("read the session"), "{error}");
}

#[tokio::test]
async fn a_message_that_is_not_a_frame_ends_the_turn() {
    async fn send(mut peer: Peer, message: Message) {
        let _ = peer.send(message).await;
        wait_for(&mut peer, "nothing more").await;
    }
    let client = impatient();

    for (text, error) in [
        broken(&client, |peer| send(peer, Message::text("{oops"))).await,
        broken(&client, |peer| send(peer, Message::text("[]"))).await,
        broken(&client, |peer| send(peer, Message::text(r#"{"aborted":[]}"#))).await,
        broken(&client, |peer| send(peer, Message::text("[".repeat(50_000)))).await,
        broken(&client, |peer| {
            send(peer, Message::binary(vec![0, 159, 146, 150]))
        })
        .await,
    ] {
        assert_eq!(text, "le", "{error}");
        assert_unseen(&error);
    }
}

#[tokio::test]
async fn bytes_that_are_no_websocket_end_the_turn() {
    async fn send(mut peer: Peer, bytes: &[u8]) {
        let _ = peer.get_mut().write_all(bytes).await;
        wait_for(&mut peer, "nothing more").await;
    }
    let client = impatient();

    for (text, error) in [
        // An unknown opcode, a text that is not UTF-8, an invalid length.
        broken(&client, |peer| send(peer, &[0x8f, 0x00])).await,
        broken(&client, |peer| send(peer, &[0x81, 0x02, 0xc3, 0x28])).await,
        broken(&client, |peer| {
            send(
                peer,
                &[0x81, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            )
        })
        .await,
    ] {
        assert_eq!(text, "le", "{error}");
        assert_unseen(&error);
    }
}

#[tokio::test]
async fn a_close_in_the_middle_of_a_turn_is_reported_with_its_reason() {
    let (text, error) = broken(&impatient(), |mut peer| async move {
        let close = CloseFrame {
            code: CloseCode::Away,
            reason: "the server ends".into(),
        };
        let _ = peer.close(Some(close)).await;
        wait_for(&mut peer, "nothing more").await;
    })
    .await;

    assert_eq!(text, "le");
    assert_unseen(&error);
    assert!(error.message().contains("1001 the server ends"), "{error}");
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_a_frame_ends_the_turn() {
    let (text, error) = broken(&impatient(), |mut peer| async move {
        let _ = peer.get_mut().write_all(&[0x81, 0x7e, 0x10, 0x00, b'{']).await;
    })
    .await;

    assert_eq!(text, "le");
    assert_unseen(&error);
}

#[tokio::test]
async fn a_frame_that_is_too_large_is_not_taken_in() {
    let client = impatient_builder().max_bytes(10_000).build().unwrap();

    let (text, error) = broken(&client, |mut peer| async move {
        chunk(&mut peer, &"x".repeat(20_000)).await;
        wait_for(&mut peer, "nothing more").await;
    })
    .await;

    assert_eq!(text, "le");
    assert_unseen(&error);
    assert!(error.message().contains("10000"), "{error}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_lost() {
    let client = impatient_builder()
        .silence(Duration::from_secs(1))
        .build()
        .unwrap();

    let (text, error) = broken(&client, |peer| async move {
        // The server does not answer pings either.
        std::future::pending::<()>().await;
        drop(peer);
    })
    .await;

    assert_eq!(text, "le");
    assert_unseen(&error);
}

#[tokio::test]
async fn frames_of_a_conversation_that_was_dropped_are_not_the_next_ones() {
    let server = WebSocketServer::start(|_, mut peer| async move {
        wait_for(&mut peer, "input").await;
        chunk(&mut peer, "old").await;
        wait_for(&mut peer, "cancel").await;
        chunk(&mut peer, "late").await;
        say(
            &mut peer,
            json!({ "later": "something that this version does not know" }),
        )
        .await;
        say(
            &mut peer,
            json!({ "error": { "status": "CANCELLED", "message": "cancelled" } }),
        )
        .await;
        say(&mut peer, json!({ "message": {} })).await;
        behave(peer).await;
    })
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let socket = agent.websocket().await.unwrap();
    let mut chat = socket.chat().open().await.unwrap();
    let mut turn = chat.send("first").await.unwrap();
    turn.next().await.unwrap().unwrap();

    drop(turn);
    let mut turn = chat.send("second").await.unwrap();
    let mut text = String::new();
    while let Some(chunk) = turn.next().await {
        text.push_str(&chunk.unwrap().text());
    }

    assert_eq!(text, "soup");
    assert_eq!(turn.output().await.unwrap().text(), "soup");
}

#[tokio::test]
async fn a_reader_that_dawdles_is_waited_for_and_gets_everything() {
    const CHUNKS: usize = 100;
    let server = WebSocketServer::start(|_, mut peer| async move {
        wait_for(&mut peer, "close").await;
        for number in 0..CHUNKS {
            // Together larger than the client's queue.
            chunk(&mut peer, &format!("{number} {}", "x".repeat(100_000))).await;
        }
        say(&mut peer, json!({ "result": { "finishReason": "stop" } })).await;
        wait_for(&mut peer, "nothing more").await;
    })
    .await;
    let agent: RemoteAgent = impatient().agent(&server.url).unwrap();
    let socket = agent.websocket().await.unwrap();
    let mut chat = socket.chat().open().await.unwrap();

    let mut turn = chat.send("count").await.unwrap();
    let mut count = 0;
    while let Some(chunk) = turn.next().await {
        let text = chunk.unwrap().text().into_owned();
        assert!(text.starts_with(&format!("{count} ")), "{}", &text[..10]);
        count += 1;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    assert_eq!(count, CHUNKS);
}
