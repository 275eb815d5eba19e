//! Small but expensive requests: links to fetch, long lists, schemas to compile, values to parse. Eight
//! callers repeat them on every route and adapter.
//!
//! `EVERTURN_HOSTILE_SECONDS` sets the duration; the long form uses `60`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::observer::{Observer, resident_bytes};
use crate::served::Testbed;
use crate::wire::{STREAMED, connect_as, exchange, post, read_frame, text_frame, websocket};
use crate::{MEGABYTE, alone};

const OPEN: &str = "promptAgentOpenToClients";
const CLOSED: &str = "promptAgentInline";

/// The number of callers.
const CALLERS: u8 = 8;

/// The memory limit of the server.
const PEAK: usize = 512 * MEGABYTE;

/// The duration of ordinary requests before the attack, which load code, caches and threads.
const WARM_UP: Duration = Duration::from_secs(3);

/// The time in which the server must return memory after the last client has disconnected.
const PATIENCE: Duration = Duration::from_secs(40);

fn duration() -> Duration {
    let seconds = std::env::var("EVERTURN_HOSTILE_SECONDS").ok();
    Duration::from_secs(seconds.map_or(15, |seconds| seconds.parse().unwrap()))
}

/// Serves a megabyte at `/picture`, a body without end at `/endless`, nothing at `/silent`, and a redirect to
/// the metadata service of a cloud elsewhere.
fn serve_media() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(|| answer_media(connection.unwrap()));
        }
    });
    format!("http://{address}")
}

fn answer_media(mut connection: TcpStream) {
    let mut request = [0; 1024];
    let length = connection.read(&mut request).unwrap_or(0);
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    if request.starts_with("GET /silent") {
        // Until the server closes the connection.
        let _ = connection.read(&mut [0; 1]);
    } else if request.starts_with("GET /picture") {
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1048576\r\n\r\n");
        let _ = connection.write_all(&vec![b'x'; MEGABYTE]);
    } else if request.starts_with("GET /endless") {
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n");
        while connection.write_all(&[b'x'; 16 * 1024]).is_ok() {}
    } else {
        let _ = connection.write_all(
            b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/meta-data/\r\ncontent-length: 0\r\n\r\n",
        );
    }
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

/// The schemas of tools: too many and too large, or as many as are accepted.
fn schemas() -> Vec<Vec<Value>> {
    vec![vec![schema(40_000); 90], vec![schema(1_500); 60]]
}

/// A request: its description, and its bytes.
type Request = (&'static str, Sent);

enum Sent {
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

/// The requests that read a session.
fn readings(session: &str, snapshot: &str) -> Vec<Request> {
    let get = |path: String| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        Sent::Http(request)
    };
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
        action("export", STREAMED, json!({"sessionId": session})),
        action(
            "export",
            "accept: application/x-ndjson\r\n",
            json!({"sessionId": session}),
        ),
        (
            "items",
            get(format!("/v1/conversations/{session}/items?limit=100")),
        ),
        mcp("mcp tools", "tools/list", "{}"),
        mcp("mcp resources", "resources/list", "{}"),
        mcp_call(
            "mcp call",
            &format!(r#"{{"message":"hi","sessionId":"{session}"}}"#),
        ),
        ("agents", get("/agents".to_owned())),
        ("openapi", get("/openapi.json".to_owned())),
        ("metrics", get("/metrics".to_owned())),
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
    let length = lines.len();
    let file = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n{lines}"
    );
    [(what, Sent::Http(file)), http(what, &path, "", &list)]
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

/// Runs a turn on a WebSocket. Returns its end: a result, an error, or the server's close code.
fn converse(host: &str, caller: u8, agent: &str, input: &str) -> String {
    let mut socket = websocket(connect_as(host, caller), agent);
    for frame in [
        r#"{"init":{}}"#,
        &format!(r#"{{"input":{input}}}"#),
        r#"{"close":true}"#,
    ] {
        // A server that has rejected a frame may have closed the connection.
        let _ = socket.write_all(&text_frame(frame));
    }
    while let Ok((kind, content)) = read_frame(&mut socket) {
        let text = String::from_utf8_lossy(&content);
        match kind & 0xf {
            1 if text.starts_with(r#"{"result""#) => return "200".to_owned(),
            1 if text.starts_with(r#"{"error""#) => return "an error".to_owned(),
            8 => return format!("code {}", u16::from_be_bytes([content[0], content[1]])),
            _ => {}
        }
    }
    "broken off".to_owned()
}

/// Sends a request as one of the callers, and discards the response. Returns the status.
fn send(host: &str, caller: u8, request: &Sent) -> String {
    let request = match request {
        Sent::Http(request) => request,
        Sent::Socket(agent, input) => return converse(host, caller, agent, input),
    };
    let mut stream = connect_as(host, caller);
    // A server that has rejected the request may have closed the connection.
    let _ = stream.write_all(request.as_bytes());
    let mut head = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        if head.len() < 64 {
            head.extend_from_slice(&piece[..length.min(64)]);
        }
    }
    let head = String::from_utf8_lossy(&head);
    head.split(' ').nth(1).unwrap_or("broken off").to_owned()
}

/// Creates a session of some turns with a text of `bytes` each, whose every snapshot contains all earlier
/// ones. Returns the id of its last snapshot.
fn make_session(server: &Testbed, id: &str, turns: usize, bytes: usize, custom: &Value) -> String {
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

/// The requests of ordinary clients, on every route and adapter.
fn ordinary(snapshot: &str) -> Vec<Request> {
    let mut requests = readings("small", snapshot);
    requests.extend(turns(OPEN, "ordinary", &[], &[schema(100)]));
    requests.extend(turns(CLOSED, "ordinary", &[], &[]));
    requests.extend(imports("import", "{}"));
    requests.push(http("echo", "/flows/echo", "", r#"{"data":1}"#));
    requests.push(mcp_call("mcp call", r#"{"message":"hi"}"#));
    requests
}

/// The hostile requests, on every route and adapter.
fn hostile(media: &str, snapshot: &str) -> Vec<Request> {
    let links =
        |path: &str| -> Vec<String> { (0..40).map(|number| format!("{media}/{path}?{number}")).collect() };
    let metadata: Vec<String> = (0..40)
        .map(|number| format!("http://169.254.169.254/{number}"))
        .collect();
    let mut requests = readings("large", snapshot);
    for agent in [OPEN, CLOSED] {
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

/// Makes all callers send requests concurrently, one after the other, until each request was sent and the
/// time has passed. Returns how often each received which status.
fn send_all(host: &str, requests: &[Request], time: Duration) -> BTreeMap<(&'static str, String), usize> {
    let until = Instant::now() + time;
    let sent = AtomicUsize::new(0);
    let seen: Mutex<BTreeMap<_, usize>> = Mutex::default();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (seen, sent) = (&seen, &sent);
            scope.spawn(move || {
                loop {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    if number >= requests.len() && Instant::now() > until {
                        return;
                    }
                    let (what, request) = &requests[number % requests.len()];
                    let status = send(host, 10 + caller, request);
                    *seen.lock().unwrap().entry((*what, status)).or_default() += 1;
                }
            });
        }
    });
    seen.into_inner().unwrap()
}

#[test]
fn costly_requests_of_eight_callers_on_every_route() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("sessions.db").display());
    let server = Testbed::start_with(&["--store", &store, "--archive"]);
    let snapshot = make_session(&server, "large", 10, 2 * MEGABYTE, &json!({}));
    let hostile = hostile(&serve_media(), &snapshot);
    // The number that fills the store's cache.
    let notes = json!({"notes": "x".repeat(MEGABYTE)});
    for number in 0..18 {
        make_session(&server, &format!("long-{number}"), 1, 5 * MEGABYTE / 2, &notes);
    }
    let ordinary = ordinary(&make_session(&server, "small", 10, 1_000, &json!({})));
    println!("ordinary: {:?}", send_all(server.host(), &ordinary, WARM_UP));
    let before = resident_bytes(server.id());

    let observer = Observer::of(&server);
    let seen = send_all(server.host(), &hostile, duration());
    println!("hostile: {seen:?}");
    observer.assert_unharmed("costly requests", PEAK - before);
    for (what, status) in seen.keys() {
        // Two callers may continue one thread of AG-UI at once, which is a conflict.
        let expected = ["200", "400", "409", "413", "429", "504", "an error"];
        assert!(
            expected.contains(&status.as_str()),
            "{what} was answered with {status}"
        );
    }
    let waiting = Instant::now();
    let allowed = before + before / 5;
    let mut after = resident_bytes(server.id());
    // Idle threads end, and the allocator returns memory when it is used.
    while after > allowed && waiting.elapsed() < PATIENCE {
        for (_, request) in &ordinary {
            send(server.host(), 10, request);
        }
        after = resident_bytes(server.id());
    }
    let [before, after, allowed] = [before, after, allowed].map(|bytes| bytes / MEGABYTE);
    println!("{before} MB before, {after} MB after");
    assert!(after <= allowed, "{before} MB before, {after} MB after");
}
