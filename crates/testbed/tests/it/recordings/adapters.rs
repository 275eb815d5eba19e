//! The protocol adapters of the testbed: AG-UI, `CopilotKit` and the HTTP API of `OpenAI`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::assert_recorded;
use super::client::{Client, calls, program, reply, streamed, text};
use super::native::testbed;

const STORED: &str = "promptAgentWithStore";
const OPEN: &str = "promptAgentOpenToClients";

fn user(id: &str, content: &str) -> Value {
    json!({"id": id, "role": "user", "content": content})
}

/// A run of a thread.
fn run(thread: &str, id: &str, messages: &[Value]) -> Value {
    json!({"threadId": thread, "runId": id, "protocolVersion": "1.0", "messages": messages})
}

#[test]
fn ag_ui() {
    let (server, mut client) = testbed();
    let stored = format!("/agui/{STORED}");
    client.title("capabilities");
    client.get(&stored);
    client.get(&format!("/agui/{OPEN}"));
    client.title("runs of a thread");
    server.program(&streamed(&["Leek ", "soup."]));
    client.post(&stored, run("t1", "r1", &[user("u1", "hi")]));
    client.post(&stored, run("t1", "r2", &[user("u1", "hi"), user("u2", "and?")]));
    client.title("the same run again, and an edited message");
    client.post(&stored, run("t1", "r2", &[user("u1", "hi"), user("u2", "and?")]));
    client.post(&stored, run("t1", "r3", &[user("u3", "hello")]));
    client.title("connecting");
    client.post(&format!("{stored}/connect"), run("t1", "c1", &[]));
    client.post(&format!("{stored}/connect"), run("missing", "c2", &[]));
    client.title("a client that keeps the conversation");
    client.post("/agui/promptAgent", run("t2", "r1", &[user("u1", "hi")]));
    client.title("tools of the agent");
    server.program(&program([calls("testTool", json!({}), "ref1"), reply("done")]));
    client.post(
        "/agui/promptAgentWithTools",
        run("t3", "r1", &[user("u1", "use it")]),
    );
    client.title("a tool of the front end");
    server.program(&program([
        calls("paint", json!({"colour": "red"}), "p1"),
        reply("Red."),
    ]));
    let mut body = run("t4", "r1", &[user("u1", "paint")]);
    body["tools"] = json!([{"name": "paint", "description": "Paints.", "parameters": {"type": "object"}}]);
    body["context"] = json!([{"description": "The page", "value": "menu"}]);
    body["state"] = json!({"mood": "curious"});
    body["forwardedProps"] = json!({"a": 1});
    client.post(&format!("/agui/{OPEN}"), body.clone());
    body["threadId"] = "t5".into();
    let painted = client.post(&stored, body.clone()).body().to_owned();
    let (_, id) = painted.split_once("\"toolCallId\":\"").unwrap();
    let id = id.split('"').next().unwrap();
    body["runId"] = "r2".into();
    let call = json!({"id": id, "type": "function", "function": {"name": "paint", "arguments": "{\"colour\":\"red\"}"}});
    body["messages"] = json!([
        user("u1", "paint"),
        {"id": "a1", "role": "assistant", "toolCalls": [call]},
        {"id": "m1", "role": "tool", "toolCallId": id, "content": "painted"},
    ]);
    client.post(&stored, body);
    client.title("an interrupt");
    server.program(&program([
        calls("interruptTool", json!({"query": "sure?"}), "i1"),
        reply("Good."),
    ]));
    let asking = "/agui/promptAgentWithInterrupt";
    let asked = client.post(asking, run("t6", "r1", &[user("u1", "go")])).json();
    let id = &asked["outcome"]["interrupts"][0]["id"];
    let mut body = run("t6", "r2", &[user("u1", "go")]);
    body["resume"] = json!([{"interruptId": id, "status": "resolved", "payload": 7}]);
    client.post(asking, body.clone());
    body["resume"][0]["payload"] = json!({"answer": "yes"});
    client.post(asking, body);
    client.title("state, artifacts and status");
    client.post(
        "/agui/extendedAgentWithStore",
        run("t7", "r1", &[user("u1", "cook")]),
    );
    client.post(
        "/agui/customAgentWithMultiCustomState",
        run("t8", "r1", &[user("u1", "work")]),
    );
    client.title("a turn that fails");
    client.post("/agui/customAgentFailing", run("t9", "r1", &[user("u1", "fail")]));
    client.title("requests that are refused");
    client.post("/agui/missing", run("t", "r", &[user("u1", "hi")]));
    client.send("DELETE", &stored, &[], "");
    client.send("POST", &stored, &[("content-type", "text/plain")], "{}");
    client.send("POST", &stored, &[("content-type", "application/json")], "{");
    client.post(&stored, json!({"threadId": "", "runId": "r", "messages": []}));
    client.post(
        &stored,
        run("t9", "r1", &[json!({"role": "user", "content": "hi"})]),
    );
    client.post(&stored, json!({"threadId": "t", "runId": "r", "messages": [], "resume": [{"interruptId": "a", "status": "maybe"}]}));
    assert_recorded("ag_ui.txt", &client.transcript);
}

#[test]
fn copilotkit() {
    let (server, mut client) = testbed();
    server.program(&program([reply("Soup.")]));
    let agent = format!("/copilotkit/agent/{STORED}");
    let mut info = client.unrecorded("GET", "/copilotkit/info", &[], "").json();
    info["agents"]
        .as_object_mut()
        .unwrap()
        .retain(|name, _| name == STORED);
    client.title("the description of this server, with one of its agents");
    writeln!(client.transcript, "{info:#}").unwrap();
    client.title("routes of an agent");
    client.post(&format!("{agent}/run"), run("t1", "r1", &[user("u1", "hi")]));
    client.post(&format!("{agent}/connect"), run("t1", "c1", &[]));
    client.post(&format!("{agent}/stop/t1"), json!({}));
    client.post(&format!("{agent}/fly"), json!({}));
    assert_recorded("copilotkit.txt", &client.transcript);
}

/// Sends a streaming and a whole request.
fn both(client: &mut Client, path: &str, body: &Value) {
    client.post(path, body.clone());
    let mut body = body.clone();
    body["stream"] = true.into();
    client.post(path, body);
}

#[test]
fn openai_responses() {
    let (server, mut client) = testbed();
    let path = "/v1/responses";
    client.title("models");
    client.get("/v1/models");
    client.get("/v1/models/promptAgent");
    client.get("/v1/models/missing");
    client.title("turns");
    server.program(&streamed(&["Leek ", "soup."]));
    let first = client.post(
        path,
        json!({"model": STORED, "input": "hi", "metadata": {"a": "b"}}),
    );
    let id = text(&first.json()["id"]);
    client.post(
        path,
        json!({"model": STORED, "input": "and?", "previous_response_id": id, "stream": true}),
    );
    both(
        &mut client,
        path,
        &json!({"model": "promptAgent", "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}),
    );
    both(
        &mut client,
        path,
        &json!({"model": "customAgentFailing", "input": "fail"}),
    );
    client.title("reading again");
    client.get(&format!("{path}/{id}"));
    client.get(&format!("{path}/{id}?stream=true&starting_after=2"));
    client.get(&format!("{path}/{id}/input_items"));
    client.title("tools");
    server.program(&program([calls("testTool", json!({}), "ref1"), reply("done")]));
    both(
        &mut client,
        path,
        &json!({"model": "promptAgentWithTools", "input": "use it"}),
    );
    server.program(&program([
        calls("paint", json!({"colour": "red"}), "p1"),
        reply("Red."),
    ]));
    let tool = json!({"type": "function", "name": "paint", "parameters": {"type": "object"}});
    let body = json!({"model": STORED, "input": "paint", "tools": [tool]});
    let response = client.post(path, body).json();
    let (asked, call) = (text(&response["id"]), &response["output"][0]["call_id"]);
    let output = json!({"type": "function_call_output", "call_id": call, "output": "painted"});
    client.post(
        path,
        json!({"model": STORED, "previous_response_id": asked, "input": [output]}),
    );
    client.post(
        path,
        json!({"model": OPEN, "input": "hi", "instructions": "Be brief."}),
    );
    let input = json!({"action": "cook"});
    server.program(&program([calls("restartTool", input, "r1"), reply("Cooked.")]));
    let body = json!({"model": "promptAgentWithRestartTool", "input": "cook"});
    let asked = client.post(path, body).json();
    let approval = json!({"type": "mcp_approval_response", "approval_request_id": asked["output"][0]["id"], "approve": true});
    client.post(path, json!({"model": "promptAgentWithRestartTool", "previous_response_id": asked["id"], "input": [approval]}));
    client.title("in the background");
    let queued = client.post(
        path,
        json!({"model": "customAgentBlocking", "input": "wait", "background": true}),
    );
    let queued = text(&queued.json()["id"]);
    client.post(&format!("{path}/{queued}/cancel"), json!({}));
    client.title("conversations");
    server.program(&program([reply("Soup.")]));
    let conversation = text(&client.post("/v1/conversations", json!({})).json()["id"]);
    client.post(
        path,
        json!({"model": STORED, "input": "hi", "conversation": conversation}),
    );
    client.get(&format!("/v1/conversations/{conversation}"));
    client.get(&format!("/v1/conversations/{conversation}/items"));
    client.send("DELETE", &format!("/v1/conversations/{conversation}"), &[], "");
    client.get(&format!("/v1/conversations/{conversation}"));
    client.send("DELETE", &format!("{path}/{id}"), &[], "");
    client.title("requests that are refused");
    client.get("/v1/nothing");
    client.get(&format!("{path}/resp_missing"));
    client.send("POST", path, &[("content-type", "text/plain")], "{}");
    client.send("POST", path, &[("content-type", "application/json")], "{");
    for body in [
        json!({"input": "hi"}),
        json!({"model": "missing", "input": "hi"}),
        json!({"model": STORED}),
        json!({"model": "promptAgent", "input": "hi", "tools": [tool]}),
        json!({"model": STORED, "input": "hi", "tools": [{"type": "web_search"}]}),
        json!({"model": STORED, "input": "hi", "text": {"format": {"type": "json_object"}}}),
        json!({"model": STORED, "input": "hi", "prompt": {"id": "p"}}),
        json!({"model": STORED, "input": [{"type": "unknown"}]}),
        json!({"model": STORED, "input": "hi", "previous_response_id": "resp_missing"}),
    ] {
        client.post(path, body);
    }
    assert_recorded("openai_responses.txt", &client.transcript);
}

#[test]
fn openai_chat_completions() {
    let (server, mut client) = testbed();
    let path = "/v1/chat/completions";
    let hi = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]);
    server.program(&streamed(&["Leek ", "soup."]));
    client.title("a conversation that is not stored");
    both(
        &mut client,
        path,
        &json!({"model": STORED, "messages": hi, "stream_options": {"include_usage": true}}),
    );
    client.title("a conversation with a name");
    client.post_with(
        path,
        &[("x-conversation-id", "dinner")],
        json!({"model": STORED, "messages": hi}),
    );
    client.title("tools");
    server.program(&program([
        calls("paint", json!({"colour": "red"}), "p1"),
        reply("Red."),
    ]));
    let tool = json!({"type": "function", "function": {"name": "paint", "parameters": {"type": "object"}}});
    both(
        &mut client,
        path,
        &json!({"model": STORED, "messages": hi, "tools": [tool]}),
    );
    client.title("structured output");
    server.program(&program([reply("{\"name\":\"soup\"}")]));
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "dish", "schema": schema}});
    both(
        &mut client,
        path,
        &json!({"model": "promptAgentWithState", "messages": hi, "response_format": format}),
    );
    client.title("a turn that fails, and requests that are refused");
    both(
        &mut client,
        path,
        &json!({"model": "customAgentFailing", "messages": hi}),
    );
    for body in [
        json!({"model": "missing", "messages": hi}),
        json!({"model": STORED}),
        json!({"model": STORED, "messages": []}),
        json!({"model": "promptAgent", "messages": hi, "tools": [tool]}),
        json!({"model": STORED, "messages": hi, "response_format": format}),
        json!({"model": STORED, "messages": hi, "n": 2}),
        json!({"model": STORED, "messages": [{"role": "nobody", "content": "hi"}]}),
    ] {
        client.post(path, body);
    }
    assert_recorded("openai_chat_completions.txt", &client.transcript);
}
