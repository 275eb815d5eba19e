//! The conversations of a client of version 1.42: the requests that the `remoteAgent` of the npm package
//! `genkit` sends. It streams every turn, sends no header of Everturn, and polls background runs.

use serde_json::{Value, json};

use super::assert_recorded;
use super::client::{Client, calls, program, reply, says, says_at, streamed};
use super::native::testbed;

fn detached(text: &str) -> Value {
    let mut body = says(text);
    body["data"]["detach"] = true.into();
    body
}

fn poll(client: &mut Client, agent: &str, snapshot: &str) -> Value {
    let lookup = json!({"data": {"snapshotId": snapshot}});
    client.post(&format!("/{agent}/getSnapshot"), lookup).result()
}

#[test]
fn conversations_of_a_1_42_client() {
    let (server, mut client) = testbed();
    let agent = "/promptAgentWithStore";
    client.title("turns");
    server.program(&streamed(&["Leek ", "soup."]));
    let first = client.stream(agent, says("first")).snapshot();
    client.stream(agent, says_at("second", &json!({"snapshotId": first})));
    client.stream(agent, says_at("third", &json!({"sessionId": "dinner"})));

    client.title("an interrupt");
    server.program(&program([
        calls("interruptTool", json!({"query": "sure?"}), "i1"),
        reply("Good."),
    ]));
    let asked = client
        .stream("/promptAgentWithInterrupt", says("do it"))
        .snapshot();
    let answer = json!({"toolResponse": {"name": "interruptTool", "ref": "i1", "output": {"answer": "yes"}}});
    let body = json!({"data": {"resume": {"respond": [answer]}}, "init": {"snapshotId": asked}});
    client.stream("/promptAgentWithInterrupt", body);

    client.title("a detached turn that is polled");
    server.program(&program([reply("Planned.")]));
    let run = client.stream(agent, detached("plan")).snapshot();
    client.wait("promptAgentWithStore", &run);
    poll(&mut client, "promptAgentWithStore", &run);
    client.stream(agent, says_at("and then?", &json!({"snapshotId": run})));

    client.title("an abort");
    let run = client.stream("/customAgentBlocking", detached("wait")).snapshot();
    assert_eq!(
        poll(&mut client, "customAgentBlocking", &run)["status"],
        "pending"
    );
    client.post("/customAgentBlocking/abort", json!({"data": {"snapshotId": run}}));
    client.wait("customAgentBlocking", &run);
    poll(&mut client, "customAgentBlocking", &run);

    client.title("a failure and the next message");
    client.stream(agent, says_at("well", &json!({"sessionId": "failing"})));
    server.program(r#"{"responses": []}"#);
    let failed = client
        .stream(agent, says_at("fail", &json!({"sessionId": "failing"})))
        .result();
    assert_eq!(failed["finishReason"], "failed");
    server.program(&program([reply("Fine.")]));
    client.stream(
        agent,
        says_at("next", &json!({"snapshotId": failed["snapshotId"]})),
    );
    assert_recorded("client_1_42.txt", &client.transcript);
}
