//! The reflection API over a WebSocket, with a scripted server in place of the tools.

use everturn_dev::{DevTools, Environment};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use crate::support::program;

struct Tools {
    socket: WebSocketStream<TcpStream>,
}

impl Tools {
    async fn accept(listener: &TcpListener) -> Self {
        let (stream, _) = listener.accept().await.unwrap();
        let mut tools = Self {
            socket: accept_async(stream).await.unwrap(),
        };
        let register = tools.next().await;
        assert_eq!(register["method"], "register");
        assert_eq!(register["params"]["pid"], std::process::id());
        assert!(register["id"].is_string());
        tools
            .send(json!({ "jsonrpc": "2.0", "id": register["id"], "result": {} }))
            .await;
        tools
    }

    async fn send(&mut self, message: Value) {
        self.socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }

    async fn call(&mut self, id: &str, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.next().await.unwrap().unwrap() {
                return serde_json::from_str(text.as_str()).unwrap();
            }
        }
    }
}

async fn connected() -> (Tools, DevTools, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let environment = Environment {
        development: true,
        socket_server: Some(format!(
            "ws://localhost:{}",
            listener.local_addr().unwrap().port()
        )),
        ..Environment::default()
    };
    let folder = std::env::temp_dir();
    let tools = DevTools::start_in(&program(), environment, folder).await.unwrap();
    (Tools::accept(&listener).await, tools, listener)
}

#[tokio::test]
async fn a_run_names_its_trace_then_streams_then_answers_under_the_same_id() {
    let (mut tools, _program, _listener) = connected().await;

    tools
        .call(
            "9",
            "runAction",
            json!({ "key": "/flow/count", "input": 2, "stream": true }),
        )
        .await;

    let state = tools.next().await;
    assert_eq!(state["method"], "runActionState");
    assert_eq!(state["params"]["requestId"], "9");
    for n in 0..2 {
        let chunk = tools.next().await;
        assert_eq!(
            (&chunk["method"], &chunk["params"]["chunk"]),
            (&json!("streamChunk"), &json!(n))
        );
    }
    let answer = tools.next().await;
    assert_eq!(answer["id"], "9");
    assert_eq!(answer["result"]["result"], "counted");
    assert_eq!(
        answer["result"]["telemetry"]["traceId"],
        state["params"]["state"]["traceId"]
    );
}

#[tokio::test]
async fn a_message_of_twenty_megabytes_in_one_frame_is_read() {
    let (mut tools, _program, _listener) = connected().await;
    let params = json!({ "key": "/flow/none", "input": "x".repeat(20 * 1024 * 1024) });

    tools.call("10", "runAction", params).await;

    let answer = tools.next().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!("10"), &json!(-32602))
    );
}

#[tokio::test]
async fn inputs_that_follow_at_once_are_not_lost() {
    let (mut tools, _program, _listener) = connected().await;

    let params = json!({ "key": "/flow/parrot", "init": "> ", "stream": true, "streamInput": true });
    tools.call("30", "runAction", params).await;
    for line in ["one", "two"] {
        let params = json!({ "requestId": "30", "chunk": line });
        tools
            .send(json!({ "jsonrpc": "2.0", "method": "sendInputStreamChunk", "params": params }))
            .await;
    }
    let params = json!({ "requestId": "30" });
    tools
        .send(json!({ "jsonrpc": "2.0", "method": "endInputStream", "params": params }))
        .await;

    assert_eq!(tools.next().await["method"], "runActionState");
    for line in ["> one", "> two"] {
        assert_eq!(tools.next().await["params"]["chunk"], line);
    }
    assert_eq!(tools.next().await["result"]["result"], 2);
}

#[tokio::test]
async fn errors_carry_data_that_the_tools_print() {
    let (mut tools, _program, _listener) = connected().await;

    tools.call("1", "runAction", json!({ "key": "/flow/none" })).await;
    let unknown = tools.next().await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert_eq!(unknown["error"]["data"]["code"], 5);

    tools.call("2", "noSuchMethod", json!({})).await;
    assert_eq!(tools.next().await["error"]["code"], -32601);

    tools.call("3", "runAction", json!({ "key": "/flow/fail" })).await;
    assert_eq!(tools.next().await["method"], "runActionState");
    let failed = tools.next().await;
    assert_eq!(failed["error"]["code"], -32000);
    assert_eq!(failed["error"]["data"]["message"], "boom");
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_opened_again() {
    let (tools, _program, listener) = connected().await;
    drop(tools);

    let mut again = Tools::accept(&listener).await;

    again.call("1", "listActions", Value::Null).await;
    let listed = again.next().await;
    assert!(listed["result"]["actions"]["/flow/hello"].is_object(), "{listed}");
}

#[tokio::test]
async fn a_run_is_cancelled_by_its_trace() {
    let (mut tools, _program, _listener) = connected().await;
    tools.call("1", "runAction", json!({ "key": "/flow/wait" })).await;
    let trace = tools.next().await["params"]["state"]["traceId"].clone();

    tools.call("2", "cancelAction", json!({ "traceId": trace })).await;

    let mut answers = [tools.next().await, tools.next().await];
    answers.sort_by_key(|answer| answer["id"].as_str().unwrap().to_owned());
    assert_eq!(answers[0]["error"]["data"]["code"], 1);
    assert_eq!(answers[1]["result"]["message"], "Action cancelled");
}
