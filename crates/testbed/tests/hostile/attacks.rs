//! The requests of hostile clients, and the sessions that they read.

use serde_json::{Value, json};

use crate::MEGABYTE;
use crate::served::Testbed;
use crate::wire::{STREAMED, exchange, post};

/// The agent with all client permissions.
pub(crate) const OPEN: &str = "promptAgentOpenToClients";

/// The agent without any.
pub(crate) const CLOSED: &str = "promptAgentInline";

/// A request: its description, and its bytes.
pub(crate) type Request = (&'static str, Sent);

pub(crate) enum Sent {
    Http(String),
    /// The input of a turn on a WebSocket of an agent.
    Socket(String, String),
}

fn http(what: &'static str, path: &str, headers: &str, body: &str) -> Request {
    (what, Sent::Http(post(path, headers, body)))
}

/// Requests for a turn on each route of an agent, and at each adapter.
fn turns(agent: &str, what: &'static str, links: &[String], tools: &[Value]) -> Vec<Request> {
    let parts = |make: &dyn Fn(&String) -> Value| -> Vec<Value> { links.iter().map(make).collect() };
    let native = {
        let content = parts(&|url| json!({"media": {"url": url, "contentType": "image/png"}}));
        let content = if content.is_empty() {
            vec![json!({"text": "hi"})]
        } else {
            content
        };
        let tools: Vec<Value> = numbered(tools, |name, schema| json!({"name": name, "inputSchema": schema}));
        let mut data = json!({"message": {"role": "user", "content": content}, "tools": tools});
        if let Some(schema) = tools.first() {
            data["outputSchema"] = schema["inputSchema"].clone();
        }
        data
    };
    let responses = {
        let mut content = parts(&|url| json!({"type": "input_image", "image_url": url}));
        content.push(json!({"type": "input_text", "text": "hi"}));
        let tools = numbered(
            tools,
            |name, schema| json!({"type": "function", "name": name, "parameters": schema}),
        );
        json!({"model": agent, "input": [{"role": "user", "content": content}], "tools": tools}).to_string()
    };
    let chat = {
        let mut content = parts(&|url| json!({"type": "image_url", "image_url": {"url": url}}));
        content.push(json!({"type": "text", "text": "hi"}));
        let tools = numbered(
            tools,
            |name, schema| json!({"type": "function", "function": {"name": name, "parameters": schema}}),
        );
        json!({"model": agent, "messages": [{"role": "user", "content": content}], "tools": tools})
            .to_string()
    };
    let agui = {
        let mut content = parts(
            &|url| json!({"type": "image", "source": {"type": "url", "value": url, "mimeType": "image/png"}}),
        );
        content.push(json!({"type": "text", "text": "hi"}));
        let tools = numbered(
            tools,
            |name, schema| json!({"name": name, "description": "", "parameters": schema}),
        );
        let messages = json!([{"id": "u1", "role": "user", "content": content}]);
        json!({"threadId": format!("t{}", fastrand::u64(..)), "runId": format!("r{}", fastrand::u64(..)), "messages": messages, "tools": tools})
            .to_string()
    };
    let called = json!({ "data": native }).to_string();
    vec![
        http(what, &format!("/{agent}"), "", &called),
        http(what, &format!("/{agent}"), STREAMED, &called),
        (what, Sent::Socket(agent.to_owned(), native.to_string())),
        http(what, "/v1/responses", "", &responses),
        http(what, "/v1/chat/completions", "", &chat),
        http(what, &format!("/agui/{agent}"), "", &agui),
        http(what, &format!("/copilotkit/agent/{agent}/run"), "", &agui),
    ]
}

fn numbered(schemas: &[Value], make: impl Fn(String, &Value) -> Value) -> Vec<Value> {
    let named = schemas.iter().enumerate();
    named
        .map(|(number, schema)| make(format!("t{number}"), schema))
        .collect()
}

/// A schema of about this size in bytes.
fn schema(bytes: usize) -> Value {
    let properties: serde_json::Map<String, Value> = (0..bytes / 60)
        .map(|number| {
            (
                format!("p{number}"),
                json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}}),
            )
        })
        .collect();
    json!({"type": "object", "properties": properties})
}

/// The schemas of tools: too many, too large, too deep, with references that multiply and with expressions
/// that are costly to compile; and as many as are accepted.
fn schemas() -> Vec<Vec<Value>> {
    let deep = (0..100).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    let doubled: serde_json::Map<String, Value> = (0..24)
        .map(|number| {
            let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
            (format!("d{number}"), json!({"allOf": [next, next]}))
        })
        .collect();
    let mut doubled = json!({"$ref": "#/$defs/d0", "$defs": doubled});
    doubled["$defs"]["d24"] = json!({"type": "string"});
    let pattern = |pattern: &str| json!({"properties": {"a": {"type": "string", "pattern": pattern}}});
    vec![
        vec![schema(40_000); 90],
        vec![schema(1_500); 60],
        vec![deep; 60],
        vec![doubled; 60],
        vec![pattern("^((a{1,90}){1,90}){1,90}$"); 60],
        vec![pattern("^(\\p{L}{1,20}-){1,20}$"); 60],
    ]
}

fn get(path: &str) -> Sent {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    Sent::Http(request)
}

/// The requests that read a session.
fn readings(session: &str, snapshot: &str) -> Vec<Request> {
    let action = |action: &'static str, headers: &str, data: Value| {
        let body = json!({ "data": data }).to_string();
        http(action, &format!("/{OPEN}/{action}"), headers, &body)
    };
    let data = |name: &'static str, data: Value| action(name, "", data);
    let thread = json!({"threadId": session, "runId": "r", "messages": []}).to_string();
    vec![
        data(
            "listSnapshots",
            json!({"sessionId": session, "whole": true, "limit": 1000}),
        ),
        data("getSnapshot", json!({"sessionId": session})),
        data("getSession", json!({"sessionId": session})),
        data("tree", json!({"sessionId": session, "excerpts": true})),
        data("diff", json!({"left": snapshot, "right": snapshot})),
        data("listSessions", json!({"limit": 1000})),
        data("usage", json!({"sessionId": session})),
        data("export", json!({"sessionId": session})),
        data("watch", json!({"snapshotId": snapshot})),
        action("watch", STREAMED, json!({"snapshotId": snapshot})),
        action("export", STREAMED, json!({"sessionId": session})),
        action(
            "export",
            "accept: application/x-ndjson\r\n",
            json!({"sessionId": session}),
        ),
        (
            "items",
            get(&format!("/v1/conversations/{session}/items?limit=100")),
        ),
        mcp("mcp tools", "tools/list", "{}"),
        mcp("mcp resources", "resources/list", "{}"),
        mcp_call(
            "mcp call",
            &format!(r#"{{"message":"hi","sessionId":"{session}"}}"#),
        ),
        ("conversation", get(&format!("/v1/conversations/{session}"))),
        ("agents", get("/agents")),
        ("openapi", get("/openapi.json")),
        ("metrics", get("/metrics")),
        http("connect", &format!("/agui/{OPEN}/connect"), "", &thread),
        http(
            "copilotkit connect",
            &format!("/copilotkit/agent/{OPEN}/connect"),
            "",
            &thread,
        ),
    ]
}

/// A request to the MCP server.
fn mcp(what: &'static str, method: &str, params: &str) -> Request {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let headers = "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18\r\n";
    http(what, "/mcp", headers, &body)
}

/// A call of an agent as a tool of the MCP server.
fn mcp_call(what: &'static str, arguments: &str) -> Request {
    let params = format!(r#"{{"name":"{OPEN}","arguments":{arguments}}}"#);
    mcp(what, "tools/call", &params)
}

/// Imports lines, as a file and as a list.
fn imports(what: &'static str, line: &str) -> [Request; 2] {
    let path = format!("/{OPEN}/import");
    let list = format!(r#"{{"data":[{line},{line}],"init":{{}}}}"#);
    let lines = format!("{line}\n{line}\n");
    let file = lines_to(&path, &lines);
    [(what, Sent::Http(file)), http(what, &path, "", &list)]
}

/// Messages with many links to resources.
fn linking(agent: &str) -> Vec<Request> {
    ["recipe://large", "house://secret"]
        .into_iter()
        .flat_map(|uri| {
            let content = vec![json!({"resource": {"uri": uri}}); 40];
            let body = json!({"data": {"message": {"role": "user", "content": content}}}).to_string();
            let path = format!("/{agent}");
            ["", STREAMED].map(|headers| http("resources", &path, headers, &body))
        })
        .collect()
}

/// Turns of OpenAI's clients that continue a conversation or a response, and background turns.
fn continuing(session: &str, response: &str) -> Vec<Request> {
    let responses = |what: &'static str, more: Value| {
        let mut body = json!({"model": OPEN, "input": "x".repeat(MEGABYTE)});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        http(what, "/v1/responses", "", &body.to_string())
    };
    let detach = json!({"data": {"message": {"role": "user", "content": [{"text": "hi"}]}, "detach": true}});
    vec![
        responses("in a conversation", json!({"conversation": session})),
        responses("after a response", json!({"previous_response_id": response})),
        responses("in the background", json!({"background": true})),
        http(
            "new conversation",
            "/v1/conversations",
            "",
            r#"{"metadata":{"a":"b"}}"#,
        ),
        ("response", get(&format!("/v1/responses/{response}"))),
        (
            "input items",
            get(&format!("/v1/responses/{response}/input_items?limit=100")),
        ),
        http("detach", &format!("/{OPEN}"), "", &detach.to_string()),
    ]
}

/// Valid imports of an exported session, as a file and as a list.
fn valid_imports(lines: &str) -> [Request; 2] {
    let path = format!("/{OPEN}/import");
    let init = json!({"sessionId": "imported", "replace": true});
    let list: Vec<&str> = lines.lines().collect();
    let list = format!(r#"{{"data":[{}],"init":{init}}}"#, list.join(","));
    // The same start, percent-encoded.
    let query = "%7B%22sessionId%22:%22imported%22,%22replace%22:true%7D";
    let file = lines_to(&format!("{path}?init={query}"), lines);
    [
        ("large import", Sent::Http(file)),
        http("large import", &path, "", &list),
    ]
}

/// A file of JSON lines.
fn lines_to(path: &str, lines: &str) -> String {
    let length = lines.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n{lines}"
    )
}

/// Bodies whose values need a hundred times the memory of their text.
fn dense(bytes: usize) -> Vec<Request> {
    let what = "dense values";
    let objects = vec![r#"{"":0}"#; bytes / 7].join(",");
    let input =
        format!(r#"{{"message":{{"role":"user","content":[{{"text":"hi"}}]}},"custom":[{objects}]}}"#);
    let state = format!(r#"{{"data":{input}}}"#);
    let agui = format!(r#"{{"threadId":"t","runId":"r","messages":[],"state":[{objects}]}}"#);
    let responses = format!(r#"{{"model":"{OPEN}","input":"hi","metadata":[{objects}]}}"#);
    let mut requests = vec![
        http(what, &format!("/{OPEN}"), "", &state),
        http(what, &format!("/{OPEN}"), STREAMED, &state),
        http(what, "/flows/echo", "", &format!(r#"{{"data":[{objects}]}}"#)),
        http(what, &format!("/agui/{OPEN}"), "", &agui),
        http(what, "/v1/responses", "", &responses),
        (what, Sent::Socket(OPEN.to_owned(), input)),
        mcp_call(what, &format!(r#"{{"message":"hi","more":[{objects}]}}"#)),
    ];
    requests.extend(imports(what, &format!("[{objects}]")));
    requests
}

/// A custom state of many small values, in about this many bytes.
fn many_values(bytes: usize) -> Value {
    json!(vec![json!({"": 0}); bytes / 7])
}

/// Creates a session of some turns with a text of `bytes` each, whose every snapshot contains all earlier
/// ones. Returns the id of its last snapshot.
pub(crate) fn make_session(server: &Testbed, id: &str, turns: usize, bytes: usize, custom: &Value) -> String {
    let text = "x".repeat(bytes);
    let mut last = None;
    for _ in 0..turns {
        let body = json!({
            "data": {"message": {"role": "user", "content": [{"text": text}]}, "custom": custom},
            "init": {"sessionId": id},
        });
        let answer = exchange(server.host(), &post(&format!("/{OPEN}"), "", &body.to_string()));
        let id = answer.split(r#""snapshotId":""#).nth(1);
        let id = id.and_then(|rest| rest.split('"').next());
        last = id.map(str::to_owned);
        assert!(last.is_some(), "{}", &answer[..answer.len().min(500)]);
    }
    last.unwrap()
}

/// The stored sessions that are read.
pub(crate) struct Sessions {
    /// The last snapshot of a session of large messages.
    large: String,
    /// The last snapshot of a session whose custom state has many small values.
    dense: String,
    /// A response of OpenAI's API.
    response: String,
    /// The lines of an exported session, of almost 16 MiB.
    exported: String,
}

impl Sessions {
    pub(crate) fn make(server: &Testbed) -> Self {
        let large = make_session(server, "large", 10, 2 * MEGABYTE, &json!({}));
        let dense = make_session(server, "dense", 10, 100, &many_values(200_000));
        let body = json!({"model": OPEN, "input": "x".repeat(MEGABYTE)}).to_string();
        let answer = exchange(server.host(), &post("/v1/responses", "", &body));
        let id = answer
            .split(r#""id":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let response = id.unwrap_or_else(|| panic!("{}", &answer[..answer.len().min(500)]));
        make_session(server, "exported", 5, 3 * MEGABYTE, &json!({}));
        let export = post(
            &format!("/{OPEN}/export"),
            "accept: application/x-ndjson\r\n",
            r#"{"data":{"sessionId":"exported"}}"#,
        );
        let exported = exchange(server.host(), &export);
        // The body is chunked: its lines that are JSON are those of the export.
        let lines = exported.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<&str> = lines.collect();
        let exported = lines.join("\n") + "\n";
        assert!(exported.len() > 15 * MEGABYTE, "{} bytes", exported.len());
        Self {
            large,
            dense,
            response: response.to_owned(),
            exported,
        }
    }
}

/// The requests of ordinary clients, on every route and adapter.
pub(crate) fn ordinary(snapshot: &str) -> Vec<Request> {
    let mut requests = readings("small", snapshot);
    requests.extend(turns(OPEN, "ordinary", &[], &[schema(100)]));
    requests.extend(turns(CLOSED, "ordinary", &[], &[]));
    requests.extend(imports("import", "{}"));
    requests.push(http("echo", "/flows/echo", "", r#"{"data":1}"#));
    requests.push(mcp_call("mcp call", r#"{"message":"hi"}"#));
    requests
}

/// The hostile requests, on every route and adapter.
pub(crate) fn hostile(media: &str, sessions: &Sessions) -> Vec<Request> {
    let metadata: Vec<String> = (0..40)
        .map(|number| format!("http://169.254.169.254/{number}"))
        .collect();
    let mut requests = readings("large", &sessions.large);
    requests.extend(readings("dense", &sessions.dense));
    requests.extend(valid_imports(&sessions.exported));
    requests.extend(continuing("large", &sessions.response));
    for agent in [OPEN, CLOSED] {
        // The path names the agent, so that the requests at the media server are counted for each.
        let links = |path: &str| -> Vec<String> {
            (0..40)
                .map(|number| format!("{media}/{path}/{agent}?{number}"))
                .collect()
        };
        requests.extend(linking(agent));
        for links in [
            links("endless"),
            links("silent"),
            // The maximum number of fetched links.
            links("picture").split_off(10),
            links("redirect"),
            metadata.clone(),
        ] {
            requests.extend(turns(agent, "media", &links, &[]));
        }
        for tools in schemas() {
            requests.extend(turns(agent, "schemas", &[], &tools));
        }
    }
    // More than the limit of a request, and almost as much.
    requests.extend(dense(3 * MEGABYTE));
    requests.extend(dense(300_000));
    requests
}
