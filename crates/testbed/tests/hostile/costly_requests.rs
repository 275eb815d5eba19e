//! Small but expensive requests: links to fetch, long lists, schemas to compile, values to parse. Eight
//! callers repeat them on every route and adapter.
//!
//! `EVERTURN_HOSTILE_SECONDS` sets the duration; without it each request is sent at least once, for 20 s.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::attacks::{CLOSED, OPEN, Request, Sent, Sessions, hostile, make_session, ordinary};
use crate::observer::{Observer, resident_bytes};
use crate::served::Testbed;
use crate::wire::{connect_as, read_frame, text_frame, websocket};
use crate::{MEGABYTE, alone};

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
    Duration::from_secs(seconds.map_or(20, |seconds| seconds.parse().unwrap()))
}

/// A server of media: a megabyte at `/picture`, a body without end at `/endless`, nothing at `/silent`, and a
/// redirect to the metadata service of a cloud elsewhere. The rest of a path is the name of an agent.
struct MediaServer {
    address: String,
    /// The number of requests for each agent.
    hits: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl MediaServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let hits: Arc<Mutex<BTreeMap<_, _>>> = Arc::default();
        let counted = Arc::clone(&hits);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer_media(connection.unwrap(), &counted));
            }
        });
        Self { address, hits }
    }

    fn hits(&self, agent: &str) -> usize {
        self.hits.lock().unwrap().get(agent).copied().unwrap_or_default()
    }
}

fn answer_media(mut connection: TcpStream, hits: &Mutex<BTreeMap<String, usize>>) {
    let mut request = [0; 1024];
    let length = connection.read(&mut request).unwrap_or(0);
    let request = String::from_utf8_lossy(&request[..length]).into_owned();
    let agent = request.split(['/', '?']).nth(2).unwrap_or_default();
    *hits.lock().unwrap().entry(agent.to_owned()).or_default() += 1;
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
    let media = MediaServer::start();
    let hostile = hostile(&media.address, &Sessions::make(&server));
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
    assert!(
        media.hits(OPEN) > 0 && media.hits(CLOSED) == 0,
        "{:?} at the media server",
        media.hits
    );
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
