//! Small requests that cost much: links to fetch, long lists to show, schemas to compile. Eight callers repeat them on every
//! route and adapter.
//!
//! `EVERTURN_HOSTILE_SECONDS` sets how long; `60` is the long form.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::observer::{Observer, resident_bytes};
use crate::served::Testbed;
use crate::wire::{STREAMED, connect_as, exchange, post};
use crate::{MEGABYTE, alone};

const OPEN: &str = "promptAgentOpenToClients";
const CLOSED: &str = "promptAgentInline";

/// The number of callers.
const CALLERS: u8 = 8;

/// How much memory the server may have at any time.
const PEAK: usize = 512 * MEGABYTE;

/// The settings of the GNU C library's allocator that `docs/serving.md` recommends.
const RETURNING_MEMORY: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "65536"),
    ("MALLOC_TRIM_THRESHOLD_", "65536"),
];

/// How long the server is observed at once: the delays of all its answers meanwhile are bounded together.
const OBSERVED: Duration = Duration::from_secs(10);

/// How long the server may take to return memory once the last client has left.
const PATIENCE: Duration = Duration::from_secs(20);

fn duration() -> Duration {
    let seconds = std::env::var("EVERTURN_HOSTILE_SECONDS").ok();
    Duration::from_secs(seconds.map_or(6, |seconds| seconds.parse().unwrap()))
}

/// Serves a body without end at `/endless`, nothing at `/silent`, and a redirect to the metadata service of a cloud elsewhere.
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
        // Until the server gives up.
        let _ = connection.read(&mut [0; 1]);
    } else if request.starts_with("GET /endless") {
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n");
        while connection.write_all(&[b'x'; 64 * 1024]).is_ok() {}
    } else {
        let _ = connection.write_all(
            b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/meta-data/\r\ncontent-length: 0\r\n\r\n",
        );
    }
}

/// A schema of about so many bytes.
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

/// A hostile request: what it is, and its bytes.
type Hostile = (&'static str, String);

/// The requests of one point on the route of an agent's turn, and at each adapter.
fn turns(agent: &str, what: &'static str, links: &[String], tools: &[Value]) -> Vec<Hostile> {
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
        json!({ "data": data }).to_string()
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
    vec![
        (what, post(&format!("/{agent}"), "", &native)),
        (what, post(&format!("/{agent}"), STREAMED, &native)),
        (what, post("/v1/responses", "", &responses)),
        (what, post("/v1/chat/completions", "", &chat)),
        (what, post(&format!("/agui/{agent}"), "", &agui)),
        (what, post(&format!("/copilotkit/agent/{agent}/run"), "", &agui)),
    ]
}

fn numbered(schemas: &[Value], make: impl Fn(String, &Value) -> Value) -> Vec<Value> {
    let named = schemas.iter().enumerate();
    named
        .map(|(number, schema)| make(format!("t{number}"), schema))
        .collect()
}

/// The requests that show a large session.
fn readings(session: &str, snapshot: &str) -> Vec<Hostile> {
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let data = |action: &str, data: Value| {
        post(
            &format!("/{OPEN}/{action}"),
            "",
            &json!({ "data": data }).to_string(),
        )
    };
    let thread = json!({"threadId": session, "runId": "r", "messages": []}).to_string();
    vec![
        (
            "listSnapshots",
            data(
                "listSnapshots",
                json!({"sessionId": session, "whole": true, "limit": 1000}),
            ),
        ),
        ("getSnapshot", data("getSnapshot", json!({"sessionId": session}))),
        ("getSession", data("getSession", json!({"sessionId": session}))),
        (
            "tree",
            data("tree", json!({"sessionId": session, "excerpts": true})),
        ),
        ("diff", data("diff", json!({"left": snapshot, "right": snapshot}))),
        ("listSessions", data("listSessions", json!({"limit": 1000}))),
        ("usage", data("usage", json!({"sessionId": session}))),
        (
            "items",
            get(format!("/v1/conversations/{session}/items?limit=100")),
        ),
        ("connect", post(&format!("/agui/{OPEN}/connect"), "", &thread)),
        (
            "copilotkit connect",
            post(&format!("/copilotkit/agent/{OPEN}/connect"), "", &thread),
        ),
    ]
}

/// Bodies whose values take a hundred times the memory of their text.
fn dense(bytes: usize) -> Vec<Hostile> {
    let objects = vec![r#"{"":0}"#; bytes / 7].join(",");
    let state = format!(
        r#"{{"data":{{"message":{{"role":"user","content":[{{"text":"hi"}}]}},"custom":[{objects}]}}}}"#
    );
    let agui = format!(r#"{{"threadId":"t","runId":"r","messages":[],"state":[{objects}]}}"#);
    let responses = format!(r#"{{"model":"{OPEN}","input":"hi","metadata":[{objects}]}}"#);
    vec![
        ("dense values", post(&format!("/{OPEN}"), "", &state)),
        ("dense values", post(&format!("/agui/{OPEN}"), "", &agui)),
        ("dense values", post("/v1/responses", "", &responses)),
    ]
}

/// Sends a request as one of the callers, and reads the answer without keeping it. Returns the status.
fn visit(host: &str, caller: u8, request: &str) -> String {
    let mut stream = connect_as(host, caller);
    // A server that has refused the request may have closed the connection.
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

/// Makes a session of 20 MB whose every snapshot holds all before it. Returns the id of its last snapshot.
fn large_session(server: &Testbed) -> String {
    let text = "x".repeat(2 * MEGABYTE);
    let mut last = String::new();
    for _ in 0..10 {
        let body = json!({
            "data": {"message": {"role": "user", "content": [{"text": text}]}},
            "init": {"sessionId": "large"},
        });
        let answer = exchange(server.host(), &post(&format!("/{OPEN}"), "", &body.to_string()));
        let id = answer
            .split(r#""snapshotId":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        last = id
            .unwrap_or_else(|| panic!("{}", &answer[..answer.len().min(500)]))
            .to_owned();
    }
    last
}

/// The hostile requests, on every route and adapter.
fn requests(media: &str, snapshot: &str) -> Vec<Hostile> {
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
            links("redirect"),
            metadata.clone(),
        ] {
            requests.extend(turns(agent, "media", &links, &[]));
        }
        for tools in schemas() {
            requests.extend(turns(agent, "schemas", &[], &tools));
        }
    }
    requests.extend(dense(3 * MEGABYTE));
    requests
}

/// Has all callers send requests at once, one after the other, until each request was sent and the time is over. Returns how often
/// each was answered with which status.
fn attack(host: &str, requests: &[Hostile], time: Duration) -> BTreeMap<(&'static str, String), usize> {
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
                    let status = visit(host, 10 + caller, request);
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
    let server = Testbed::start_in(&RETURNING_MEMORY, &["--store", &store]);
    let requests = requests(&serve_media(), &large_session(&server));
    let new = resident_bytes(server.id());
    let observer = Observer::of(&server);

    // Once, so that code, caches and threads are there.
    attack(server.host(), &requests, Duration::ZERO);
    observer.assert_unharmed("costly requests, once", PEAK - new);
    let before = resident_bytes(server.id());
    let until = Instant::now() + duration();
    while Instant::now() < until {
        let observer = Observer::of(&server);
        let started = resident_bytes(server.id());
        let seen = attack(server.host(), &requests, OBSERVED.min(until - Instant::now()));
        println!("answers: {seen:?}");
        observer.assert_unharmed("costly requests", PEAK.saturating_sub(started));
        for (what, status) in seen.keys() {
            // Chat Completions answers a failed turn with 500, whatever its reason.
            assert!(
                ["200", "400", "413", "422", "429", "500", "504"].contains(&status.as_str()),
                "{what} was answered with {status}"
            );
        }
    }
    let waiting = Instant::now();
    let allowed = before + before / 5;
    let mut after = resident_bytes(server.id());
    while after > allowed && waiting.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
        after = resident_bytes(server.id());
    }
    let [new, before, after] = [new, before, after].map(|bytes| bytes / MEGABYTE);
    println!("{new} MB at first, {before} MB before, {after} MB after");
    assert!(
        after * MEGABYTE <= allowed,
        "{new} MB at first, {before} MB before, {after} MB after"
    );
}
