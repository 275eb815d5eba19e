//! The native routes of the testbed: turns, flows, errors, histories, background runs, streams and
//! connections by WebSocket.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::assert_recorded;
use super::client::{Client, EXTENSIONS, calls, program, reply, says, says_at, streamed};
use crate::served::Testbed;

/// A server that lets every caller change sessions, and a client of it.
pub(crate) fn testbed() -> (Testbed, Client) {
    let server = Testbed::start_with(&["--store", "memory", "--archive"]);
    let client = Client::new(server.host());
    (server, client)
}

#[test]
fn turns() {
    let (server, mut client) = testbed();
    server.program(&program([reply("Soup.")]));
    client.title("a turn of an agent with a store, in one response");
    let first = client.post(
        "/promptAgentWithStore",
        says_at("hi", &json!({"sessionId": "dinner"})),
    );
    client.title("the next turn, with the fields that Everturn adds");
    server.program(&streamed(&["Leek ", "soup."]));
    client.stream_extended(
        "/promptAgentWithStore",
        says_at("and?", &json!({"snapshotId": first.snapshot()})),
    );
    client.title("a streamed turn without those fields");
    client.stream(
        "/promptAgentWithStore?stream=true",
        says_at("more?", &json!({"sessionId": "dinner"})),
    );

    client.title("a header that the server does not know");
    let unknown = [
        ("accept", "text/event-stream"),
        EXTENSIONS,
        ("x-everturn-turn-details", "1"),
    ];
    client.post_with(
        "/promptAgentWithStore",
        &unknown,
        says_at("which?", &json!({"sessionId": "dinner"})),
    );

    client.title("an agent without a store, whose client keeps the state");
    server.program(&program([reply("one")]));
    let first = client.post("/promptAgent", says("first")).result();
    server.program(&program([reply("two")]));
    client.post(
        "/promptAgent",
        says_at("second", &json!({"state": first["state"]})),
    );

    client.title("a tool of the agent");
    server.program(&program([calls("testTool", json!({}), "ref1"), reply("done")]));
    client.stream_extended("/promptAgentWithTools", says("use it"));

    client.title("an interrupt that is answered");
    server.program(&program([
        calls("interruptTool", json!({"query": "sure?"}), "i1"),
        reply("Good."),
    ]));
    let asked = client
        .stream_extended("/promptAgentWithInterrupt", says("do it"))
        .snapshot();
    let answer = json!({"toolResponse": {"name": "interruptTool", "ref": "i1", "output": {"answer": "yes"}}});
    let answer = json!({"data": {"resume": {"respond": [answer]}}, "init": {"snapshotId": asked}});
    client.stream_extended("/promptAgentWithInterrupt", answer);

    client.title("an interrupt whose tool is restarted");
    let input = json!({"action": "cook"});
    server.program(&program([
        calls("restartTool", input.clone(), "r1"),
        reply("Cooked."),
    ]));
    let asked = client
        .post("/promptAgentWithRestartTool", says("cook"))
        .snapshot();
    let request = json!({"toolRequest": {"name": "restartTool", "ref": "r1", "input": input}, "metadata": {"resumed": true}});
    let restart = json!({"data": {"resume": {"restart": [request]}}, "init": {"snapshotId": asked}});
    client.post("/promptAgentWithRestartTool", restart);

    client.title("a tool that the client brings");
    server.program(&program([calls("paint", json!({"colour": "red"}), "p1")]));
    let tool = json!({"name": "paint", "description": "Paints.", "inputSchema": {"type": "object"}});
    let mut body = says("paint");
    body["data"]["tools"] = json!([tool]);
    client.post("/promptAgentWithStore", body);

    client.title("custom state, artifacts, status, output and snapshots within turns");
    client.stream_extended("/customAgentWithMultiCustomState", says("work"));
    client.stream_extended("/customAgentWithArtifacts", says("draft"));
    client.stream_extended(
        "/extendedAgentWithStore",
        says_at("cook", &json!({"sessionId": "supper"})),
    );
    server.program(&program([calls("taste", json!({}), "t1"), reply("Salty.")]));
    client.stream_extended("/extendedPromptAgent", says("taste"));
    server.program(&program([calls("countTool", json!({}), "c1"), reply("One.")]));
    client.stream_extended("/promptAgentWithState", says("count"));
    client.title("instructions of a client");
    let mut body = says("which?");
    body["data"]["instructions"] = json!(["Be brief."]);
    client.stream_extended("/echoAgent", body);

    client.title("turns that fail");
    client.stream_extended("/customAgentFailing", says("fail"));
    server.program(r#"{"responses": []}"#);
    client.stream_extended(
        "/promptAgentWithStore",
        says_at("fail", &json!({"sessionId": "dinner"})),
    );
    client.post(
        "/promptAgentWithStore/getSnapshot",
        json!({"data": {"sessionId": "dinner"}}),
    );
    client.title("a failed turn that is tried again");
    server.program(&program([reply("Fine.")]));
    let again = json!({"data": {}, "init": {"sessionId": "dinner"}});
    client.stream_extended("/promptAgentWithStore", again);
    assert_recorded("turns.txt", &client.transcript);
}

#[test]
fn flows() {
    let (_server, mut client) = testbed();
    client.title("flows");
    client.post("/flows/echo", json!({"data": {"a": [1, 2.5, null]}}));
    client.post("/flows/streamy", json!({"data": 2}));
    client.stream("/flows/streamy", json!({"data": 2}));
    client.title("flows that fail");
    client.post("/flows/streamy", json!({"data": "two"}));
    client.stream("/flows/streamy", json!({"data": "two"}));
    client.post("/flows/failing", json!({"data": null}));
    client.stream("/flows/failing", json!({"data": null}));
    client.post("/flows/denied", json!({"data": null}));
    client.stream("/flows/denied", json!({"data": null}));

    client.title("a stream that is read again");
    let stream = client.stream("/flows/streamy", json!({"data": 3}));
    let id = stream.header("x-genkit-stream-id").to_owned();
    let again = [("accept", "text/event-stream"), ("x-genkit-stream-id", &id)];
    client.post_with("/flows/streamy", &again, json!({"data": 3}));
    let rest = [&again[..], &[("last-event-id", "2")]].concat();
    client.post_with("/flows/streamy", &rest, json!({"data": 3}));
    client.send("DELETE", "/flows/streamy", &[("x-genkit-stream-id", &id)], "");
    client.post_with("/flows/streamy", &again, json!({"data": 3}));
    assert_recorded("flows_and_streams.txt", &client.transcript);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of requests")]
fn errors() {
    let (server, mut client) = testbed();
    server.program(&program([reply("Soup.")]));
    let turn = "/promptAgentWithStore";
    client.title("paths and methods");
    client.get("/nothing");
    client.post("/promptAgentNotThere", says("hi"));
    client.post("/flows/none", json!({"data": 1}));
    client.get("/flows/echo");
    client.send("PUT", turn, &[], "{}");
    client.send(
        "OPTIONS",
        turn,
        &[
            ("origin", "https://page.example"),
            ("access-control-request-method", "POST"),
        ],
        "",
    );
    client.title("bodies and headers");
    client.send("POST", turn, &[("content-type", "text/plain")], "{}");
    client.send("POST", turn, &[], "{}");
    for body in [
        "",
        "{",
        "[]",
        "{\"data\": 1}",
        r#"{"data": {"unknown": 1}}"#,
        r#"{"other": 1}"#,
    ] {
        client.send("POST", turn, &[("content-type", "application/json")], body);
    }
    client.send(
        "POST",
        turn,
        &[("content-type", "application/json"), ("host", "evil.example")],
        "{}",
    );
    client.post_with(turn, &[("origin", "https://evil.example")], says("hi"));
    client.post_with(
        turn,
        &[("x-genkit-stream-id", "not-an-id"), ("last-event-id", "x")],
        says("hi"),
    );
    client.post_with(turn, &[("x-everturn-extensions", "maybe")], says("hi"));
    let parts = vec![json!({"text": "x"}); 100_000];
    client.post(
        turn,
        json!({"data": {"message": {"role": "user", "content": parts}}}),
    );
    let large = json!("x".repeat(5 * 1024 * 1024)).to_string();
    client.send(
        "POST",
        "/flows/echo",
        &[("content-type", "application/json")],
        &format!("{{\"data\":{large}}}"),
    );

    client.title("inputs and starts of turns");
    for (data, init) in [
        (
            json!({"message": {"role": "model", "content": [{"text": "hi"}]}}),
            json!({}),
        ),
        (json!({"message": {"role": "user", "content": []}}), json!({})),
        (json!({}), json!({"sessionId": "empty"})),
        (says("hi")["data"].clone(), json!({"snapshotId": "missing"})),
        (
            says("hi")["data"].clone(),
            json!({"snapshotId": "missing", "sessionId": "other"}),
        ),
        (says("hi")["data"].clone(), json!({"sessionId": ""})),
        (says("hi")["data"].clone(), json!({"state": {"messages": []}})),
        (says("hi")["data"].clone(), json!({"custom": {"a": 1}})),
        (
            says("hi")["data"].clone(),
            json!({"promptInput": {"tone": "rude"}}),
        ),
        (json!({"resume": {"respond": []}}), json!({})),
        (
            json!({"resume": {"respond": [{"toolResponse": {"name": "x", "ref": "1", "output": 1}}]}}),
            json!({}),
        ),
        (
            json!({"message": says("hi")["data"]["message"], "instructions": ["no"]}),
            json!({}),
        ),
        (
            json!({"message": says("hi")["data"]["message"], "outputSchema": {}}),
            json!({}),
        ),
        (
            json!({"message": {"role": "user", "content": [{"resource": {"uri": "file:///etc"}}]}}),
            json!({}),
        ),
    ] {
        client.post(turn, json!({"data": data, "init": init}));
    }
    client.post("/promptAgent", says_at("hi", &json!({"sessionId": "s"})));
    client.post(
        "/promptAgent",
        json!({"data": {"message": says("hi")["data"]["message"], "detach": true}}),
    );

    client.title("a turn beside another one");
    let mut body = says_at("wait", &json!({"sessionId": "busy"}));
    body["data"]["detach"] = true.into();
    let run = client.post("/customAgentBlocking", body).snapshot();
    client.post(
        "/customAgentBlocking",
        says_at("me too", &json!({"sessionId": "busy"})),
    );
    client.post(
        "/customAgentBlocking",
        says_at("me too", &json!({"snapshotId": run})),
    );
    client.title("reads");
    for lookup in [
        json!({}),
        json!({"snapshotId": "missing"}),
        json!({"sessionId": "missing"}),
        json!(1),
        Value::Null,
    ] {
        client.post("/promptAgentWithStore/getSnapshot", json!({"data": lookup}));
    }
    client.post(
        "/promptAgentWithStore/abort",
        json!({"data": {"snapshotId": "missing"}}),
    );
    client.post(
        "/promptAgentWithStore/watch",
        json!({"data": {"snapshotId": "missing"}}),
    );
    client.post(
        "/promptAgent/getSnapshot",
        json!({"data": {"snapshotId": "missing"}}),
    );
    assert_recorded("errors.txt", &client.transcript);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of requests")]
fn histories() {
    let (server, mut client) = testbed();
    server.program(&program([reply("Soup.")]));
    let agent = "/customAgentWithCustomStateStore";
    let turn = |client: &Client, init: Value| {
        let body = says_at("hi", &init).to_string();
        client
            .unrecorded("POST", agent, &[("content-type", "application/json")], &body)
            .snapshot()
    };
    let first = turn(&client, json!({"sessionId": "dinner"}));
    let left = turn(&client, json!({"sessionId": "dinner"}));
    let right = turn(&client, json!({"snapshotId": first}));
    let post = |client: &mut Client, route: &str, data: Value| {
        client.title(route);
        client.post(&format!("{agent}/{route}"), json!({"data": data}))
    };
    post(&mut client, "getSnapshot", json!({"snapshotId": left}));
    post(
        &mut client,
        "getSnapshot",
        json!({"sessionId": "dinner", "metadataOnly": true, "unknown": 1}),
    );
    client.post_with(
        &format!("{agent}/getSnapshot"),
        &[EXTENSIONS],
        json!({"data": {"sessionId": "dinner"}}),
    );
    post(&mut client, "getSession", json!({"sessionId": "dinner"}));
    post(&mut client, "listSessions", json!({}));
    post(&mut client, "listSessions", json!({"interrupted": true}));
    post(&mut client, "listSessions", json!({"pending": true}));
    let page = post(
        &mut client,
        "listSnapshots",
        json!({"sessionId": "dinner", "limit": 2}),
    )
    .result();
    post(
        &mut client,
        "listSnapshots",
        json!({"sessionId": "dinner", "after": page["next"], "order": "newest"}),
    );
    post(
        &mut client,
        "listSnapshots",
        json!({"sessionId": "dinner", "whole": true, "order": "oldest", "limit": 1}),
    );
    post(
        &mut client,
        "tree",
        json!({"sessionId": "dinner", "excerpts": true}),
    );
    post(&mut client, "diff", json!({"left": left, "right": right}));
    post(&mut client, "usage", json!({"sessionId": "dinner"}));
    post(
        &mut client,
        "label",
        json!({"snapshotId": first, "label": "start", "note": "both begin here"}),
    );
    post(
        &mut client,
        "label",
        json!({"snapshotId": first, "unlabel": "start"}),
    );
    post(
        &mut client,
        "fork",
        json!({"snapshotId": left, "sessionId": "lunch", "custom": {"counter": 7}}),
    );
    post(
        &mut client,
        "fork",
        json!({"snapshotId": left, "sessionId": "lunch"}),
    );
    post(
        &mut client,
        "fork",
        json!({"snapshotId": left, "sessionId": "tea", "custom": {"counter": "many"}}),
    );
    post(&mut client, "copy", json!({"sessionId": "dinner", "to": "copy"}));
    post(&mut client, "copy", json!({"sessionId": "dinner", "to": "copy"}));
    post(
        &mut client,
        "copy",
        json!({"sessionId": "missing", "to": "other"}),
    );
    post(&mut client, "export", json!({"sessionId": "lunch"}));
    client.title("export as lines");
    let export = [("accept", "application/x-ndjson")];
    let lines = client.post_with(
        &format!("{agent}/export"),
        &export,
        json!({"data": {"sessionId": "dinner"}}),
    );
    client.stream(
        &format!("{agent}/export"),
        json!({"data": {"sessionId": "lunch"}}),
    );
    client.title("import");
    let path = |init: &str| format!("{agent}/import?init=%7B{init}%7D");
    let ndjson = [("content-type", "application/x-ndjson")];
    client.send(
        "POST",
        &path("%22sessionId%22:%22again%22"),
        &ndjson,
        lines.body(),
    );
    client.send(
        "POST",
        &path("%22sessionId%22:%22again%22"),
        &ndjson,
        lines.body(),
    );
    client.send(
        "POST",
        &path("%22sessionId%22:%22again%22,%22replace%22:true"),
        &ndjson,
        lines.body(),
    );
    client.send(
        "POST",
        &path("%22sessionId%22:%22broken%22"),
        &ndjson,
        "{\"not\": \"a snapshot\"}\n",
    );
    post(&mut client, "delete", json!({"snapshotId": right}));
    post(
        &mut client,
        "delete",
        json!({"snapshotId": first, "branch": true}),
    );
    post(&mut client, "delete", json!({"sessionId": "lunch"}));
    post(&mut client, "delete", json!({"sessionId": "lunch"}));
    post(&mut client, "delete", json!({}));
    post(&mut client, "listTenants", json!({}));
    assert_recorded("histories.txt", &client.transcript);
}

#[test]
fn background_runs() {
    let (server, mut client) = testbed();
    server.program(&streamed(&["Leek ", "soup."]));
    let detached = |init: Value| {
        let mut body = says_at("plan", &init);
        body["data"]["detach"] = true.into();
        body
    };
    client.title("a run that completes");
    let run = client.stream_extended("/promptAgentWithStore", detached(json!({"sessionId": "dinner"})));
    let id = run.snapshot();
    client.wait("promptAgentWithStore", &id);
    client.post_with(
        "/promptAgentWithStore/getSnapshot",
        &[EXTENSIONS],
        json!({"data": {"snapshotId": id}}),
    );
    client.stream_extended("/promptAgentWithStore/watch", json!({"data": {"snapshotId": id}}));
    client.post("/promptAgentWithStore/watch", json!({"data": {"snapshotId": id}}));
    client.post("/promptAgentWithStore/abort", json!({"data": {"snapshotId": id}}));
    client.title("a run that is aborted");
    let id = client
        .post("/customAgentBlocking", detached(json!({"sessionId": "busy"})))
        .snapshot();
    client.post_with(
        "/customAgentBlocking/getSnapshot",
        &[EXTENSIONS],
        json!({"data": {"snapshotId": id}}),
    );
    client.post(
        "/customAgentBlocking/listSessions",
        json!({"data": {"pending": true}}),
    );
    client.post("/customAgentBlocking/abort", json!({"data": {"snapshotId": id}}));
    client.wait("customAgentBlocking", &id);
    client.post_with(
        "/customAgentBlocking/getSnapshot",
        &[EXTENSIONS],
        json!({"data": {"snapshotId": id}}),
    );
    client.post("/customAgentBlocking/abort", json!({"data": {"snapshotId": id}}));
    client.title("a run that fails");
    let id = client.post("/customAgentFailing", detached(json!({}))).snapshot();
    client.wait("customAgentFailing", &id);
    client.post_with(
        "/customAgentFailing/getSnapshot",
        &[EXTENSIONS],
        json!({"data": {"snapshotId": id}}),
    );
    assert_recorded("background_runs.txt", &client.transcript);
}

#[test]
fn websockets() {
    let (server, mut client) = testbed();
    server.program(&streamed(&["Leek ", "soup."]));
    client.title("the upgrade");
    client.get("/promptAgentWithStore");
    let key = [
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("upgrade", "websocket"),
    ];
    let version = [&key[..], &[("sec-websocket-version", "13")]].concat();
    client.send("GET", "/promptAgentWithStore", &version, "");
    client.title("a conversation");
    let input = says("hi")["data"].clone();
    let mut detached = input.clone();
    detached["detach"] = true.into();
    client.converse(
        "promptAgentWithStore",
        "everturn.v1",
        &[
            json!({"init": {"sessionId": "dinner"}}),
            json!({"input": input}),
            json!({"close": true}),
        ],
    );
    client.title("a conversation with the fields that Everturn adds");
    client.converse(
        "extendedAgentWithStore",
        "everturn.v1, everturn.extensions",
        &[
            json!({"init": {}}),
            json!({"input": input}),
            json!({"close": true}),
        ],
    );
    client.title("a run");
    client.converse(
        "promptAgentWithStore",
        "everturn.v1",
        &[
            json!({"init": {}}),
            json!({"input": detached}),
            json!({"close": true}),
        ],
    );
    client.title("frames that are refused");
    client.converse("promptAgentWithStore", "everturn.v1", &[json!({"word": 1})]);
    client.converse(
        "promptAgentWithStore",
        "everturn.v1",
        &[
            json!({"init": {"snapshotId": "missing"}}),
            json!({"input": input}),
        ],
    );
    client.converse(
        "promptAgentWithStore",
        "everturn.v1",
        &[json!({"init": {}}), json!({"input": {"unknown": 1}})],
    );
    client.converse(
        "customAgentBlocking",
        "everturn.v1",
        &[
            json!({"init": {}}),
            json!({"input": input}),
            json!({"cancel": true}),
        ],
    );
    client.converse(
        "promptAgentWithStore",
        "everturn.v1",
        &[json!({"abort": "missing"})],
    );
    assert_recorded("websockets.txt", &client.transcript);
}

#[test]
fn operations() {
    let (server, mut client) = testbed();
    server.program(&program([reply("Soup.")]));
    client.title("descriptions and health");
    client.get("/healthz");
    client.get("/readyz");
    let agents = client.unrecorded("GET", "/agents", &[], "").json();
    let is_named = |agent: &Value, name| agent["name"] == name;
    client.title("agents, of which these are two");
    for name in ["promptAgent", "extendedAgentWithStore"] {
        let agent = agents["agents"]
            .as_array()
            .unwrap()
            .iter()
            .find(|agent| is_named(agent, name));
        writeln!(client.transcript, "{:#}", agent.unwrap()).unwrap();
    }
    let openapi = client.unrecorded("GET", "/openapi.json", &[], "").json();
    client.title("paths of the OpenAPI document");
    for (path, methods) in openapi["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let statuses: Vec<&String> = operation["responses"].as_object().unwrap().keys().collect();
            writeln!(
                client.transcript,
                "{method} {path} {} {statuses:?}",
                operation["operationId"]
            )
            .unwrap();
        }
    }
    for agent in ["promptAgentWithStore", "customAgentFailing"] {
        client.unrecorded(
            "POST",
            &format!("/{agent}"),
            &[("content-type", "application/json")],
            &says("hi").to_string(),
        );
    }
    let metrics = client.unrecorded("GET", "/metrics", &[], "");
    client.title("metrics");
    client.transcript.push_str(&shapes(metrics.body()));
    assert_recorded("operations.txt", &client.transcript);
}

/// Returns the types of metrics and the labels of their series.
pub(crate) fn shapes(metrics: &str) -> String {
    let mut shapes = BTreeSet::new();
    for line in metrics.lines() {
        if line.starts_with("# TYPE ") {
            shapes.insert(line.to_owned());
        } else if !line.starts_with('#') {
            let (name, labels) = line.split_once('{').unwrap_or((line, ""));
            let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
            let labels: Vec<&str> = labels.map(|(label, _)| label).collect();
            let name = name.split(' ').next().unwrap();
            shapes.insert(format!("{name} {labels:?}"));
        }
    }
    shapes.into_iter().collect::<Vec<String>>().join("\n")
}
