//! Clients that try to exhaust a server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use everturn_testkit::blocking_real_pause;
use everturn_testkit::conformance::skip;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::observer::{Observer, cpu_time};
use crate::served::Testbed;
use crate::wire::{STREAMED, connect_as_another, exchange, post, read, says, send, websocket};
use crate::{MEGABYTE, alone};

/// The duration of an attack.
const ATTACK: Duration = Duration::from_secs(3);

/// Why a test waits in real time.
const MEASURED: &str = "the time over which the use of the processor is measured";

/// The timeout until an attack has started, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The grace period of the server: its default.
const GRACE: Duration = Duration::from_secs(10);

/// The limit of the attacker's kept streams: low, because an unoptimised server is slow to send.
const STREAM_BYTES: usize = 16 * MEGABYTE;

fn talking(store: &str) -> Testbed {
    let bytes = STREAM_BYTES.to_string();
    let server = Testbed::start_with(&["--store", store, "--stream-bytes", &bytes]);
    server.program(r#"{"responses":[{"message":{"role":"model","content":[{"text":"soup"}]}}]}"#);
    server
}

/// Runs a turn as another caller than the attacker. Returns the head of the response.
#[track_caller]
fn assert_another_is_served(server: &Testbed, session: &str) -> String {
    let mut stream = connect_as_another(server.host());
    let turn = post("/promptAgentWithStore", STREAMED, &says("hi", session));
    stream.write_all(turn.as_bytes()).unwrap();
    let answer = read(stream);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(r#"{"result":"#), "{answer}");
    let head = answer.split("\r\n\r\n").next().unwrap();
    head.to_ascii_lowercase()
}

/// Sends pings, and reconnects when the server closes, until that has happened once and the attack has ended.
fn flood(host: &str, closed: &AtomicUsize) {
    // A final frame of 125 bytes with a mask of zeros.
    let ping = [&[0x89, 0x80 | 0x7d, 0, 0, 0, 0][..], &[0; 125]].concat();
    let pings = ping.repeat(500);
    let began = Instant::now();
    let is_over = || {
        let enough = closed.load(Ordering::Relaxed) > 0 && began.elapsed() > ATTACK;
        enough || began.elapsed() > PATIENCE
    };
    while !is_over() {
        let mut socket = websocket(TcpStream::connect(host).unwrap(), "promptAgentWithStore");
        let pause = Some(Duration::from_millis(100));
        socket.set_write_timeout(pause).unwrap();
        while !is_over() {
            match socket.write(&pings) {
                Ok(_) => {}
                // The server stops reading, as it should.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => {
                    closed.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
    }
}

#[test]
fn a_flood_of_pings_with_unread_answers() {
    let _alone = alone();
    let server = talking("memory");
    let observer = Observer::of(&server);
    let closed = AtomicUsize::new(0);

    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| flood(server.host(), &closed));
        }
    });

    observer.assert_unharmed("a flood of pings", 32 * MEGABYTE);
    assert!(closed.into_inner() > 0, "no connection was closed");
}

/// A request with a message that requests tools, and with answers.
fn answering(requests: usize, answers: usize) -> String {
    let entry = |number| {
        let input = "x".repeat(60);
        format!(r#"{{"toolRequest":{{"name":"pay","ref":"{number}","input":{{"to":"{input}"}}}}}}"#)
    };
    let list = |count| (0..count).map(entry).collect::<Vec<_>>().join(",");
    let (requests, answers) = (list(requests), list(answers));
    // The client supplies the questions of an agent without a store.
    let body = format!(
        r#"{{"data":{{"resume":{{"restart":[{answers}]}}}},"init":{{"state":{{"messages":[{{"role":"model","content":[{requests}]}}]}}}}}}"#
    );
    assert!(body.len() < 4 * MEGABYTE, "{} bytes are refused", body.len());
    post("/promptAgent", "", &body)
}

#[test]
fn requests_with_thousands_of_answers_to_interrupts() {
    let _alone = alone();
    let server = talking("memory");
    let observer = Observer::of(&server);

    let at_once = |request: &str| -> Vec<String> {
        std::thread::scope(|scope| {
            let asking = [(); 6].map(|()| scope.spawn(|| exchange(server.host(), request)));
            asking.map(|asking| asking.join().unwrap()).into()
        })
    };
    let too_many = answering(4_000, 5_000);
    let alone = exchange(server.host(), &too_many);
    let beyond = at_once(&too_many);
    // The maximum number, with names of no existing tool.
    let within = at_once(&answering(3_000, 1_000));

    observer.assert_unharmed("answers to interrupts", 256 * MEGABYTE);
    assert!(alone.starts_with("HTTP/1.1 400 "), "{alone}");
    assert!(alone.contains("Limits::answers"), "{alone}");
    for answer in &beyond {
        // Together their values exceed the memory limit of a caller, and of all callers.
        let refused = [
            ("HTTP/1.1 400 ", "Limits::answers"),
            ("HTTP/1.1 429 ", "Limits::bytes_"),
        ];
        let is_refused = |(head, limit): &(&str, &str)| answer.starts_with(head) && answer.contains(limit);
        assert!(refused.iter().any(is_refused), "{answer}");
    }
    for answer in &within {
        assert!(!answer.contains("Limits::"), "{answer}");
        assert!(answer.contains("pay"), "{answer}");
    }
}

#[test]
fn large_unread_answers() {
    let _alone = alone();
    let server = talking("memory");
    let text = "x".repeat(4 * MEGABYTE - 1024);
    for _ in 0..14 {
        let answer = exchange(
            server.host(),
            &post("/promptAgentWithStore", "", &says(&text, "large")),
        );
        assert!(
            answer.starts_with("HTTP/1.1 200 "),
            "{}",
            &answer[..answer.len().min(500)]
        );
    }
    let observer = Observer::of(&server);

    let request = post(
        "/promptAgentWithStore/getSnapshot",
        "",
        r#"{"data":{"sessionId":"large"}}"#,
    );
    let unread: Vec<TcpStream> = (0..20).map(|_| send(server.host(), &request)).collect();
    let until = Instant::now() + ATTACK;
    let mut turns = 0;
    while Instant::now() < until {
        assert_another_is_served(&server, &format!("small-{turns}"));
        turns += 1;
    }

    // Two responses of 56 MB are being sent as text, and one is being built.
    observer.assert_unharmed("unread answers", 384 * MEGABYTE);
    drop(unread);
}

fn streams_that_fill_the_log(store: &str) {
    let server = talking(store);
    let observer = Observer::of(&server);

    // Each exceeds the limit of a caller.
    let endless = post("/flows/bulky", STREAMED, r#"{"data":100000}"#);
    let unread: Vec<TcpStream> = (0..6).map(|_| send(server.host(), &endless)).collect();
    let metrics = || server.request("GET", "/metrics", "");
    let began = Instant::now();
    let mut full_at = None;
    let mut turns = 0;
    // The log is full for a while, and rejects nothing.
    while full_at.is_none_or(|full: Instant| full.elapsed() < ATTACK) {
        let head = assert_another_is_served(&server, &format!("s{turns}"));
        assert!(!head.contains("x-everturn-stream-kept: no"), "{head}");
        turns += 1;
        if full_at.is_none() && metrics().contains("everturn_streams_not_kept_total{") {
            full_at = Some(Instant::now());
        }
        assert!(began.elapsed() < PATIENCE, "the log is not full");
    }

    let turn = post("/promptAgentWithStore", STREAMED, &says("hi", "attacker"));
    let answer = exchange(server.host(), &turn);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(r#"{"result":"#), "{answer}");
    observer.assert_unharmed(&format!("a full stream log ({store})"), 5 * STREAM_BYTES);
    drop(unread);
}

#[test]
fn endless_streams_that_fill_the_stream_log_in_memory() {
    let _alone = alone();
    streams_that_fill_the_log("memory");
}

#[test]
fn endless_streams_that_fill_the_stream_log_in_sqlite() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    streams_that_fill_the_log(&format!("sqlite:{}", folder.path().join("sessions.db").display()));

    let files = std::fs::read_dir(folder.path()).unwrap();
    let size: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 6 * STREAM_BYTES as u64, "the files have {size} bytes");
}

/// Raises the limit of open files of this process and its children; prints a reason if it stays too low.
fn may_open(files: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
    let allowed = getrlimit(Resource::Nofile)
        .current
        .is_none_or(|limit| limit >= files);
    if !allowed {
        skip(format!("{files} files have to be open at once"));
    }
    allowed
}

#[test]
fn two_thousand_watchers_of_a_silent_run() {
    let _alone = alone();
    let watchers = 2_000;
    if !may_open(watchers + 200) {
        return;
    }
    let server = talking("memory");
    let detach = r#"{"data":{"message":{"role":"user","content":[{"text":"hi"}]},"detach":true}}"#;
    let detached = exchange(server.host(), &post("/customAgentBlocking", "", detach));
    let id = detached
        .split(r#""snapshotId":""#)
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let watch = post(
        "/customAgentBlocking/watch",
        STREAMED,
        &format!(r#"{{"data":{{"snapshotId":"{id}"}}}}"#),
    );
    let watching: Vec<TcpStream> = (0..watchers).map(|_| send(server.host(), &watch)).collect();
    // Each watcher polls once.
    let settled = || {
        let before = cpu_time(server.id());
        blocking_real_pause(Duration::from_millis(500), MEASURED);
        cpu_time(server.id()).saturating_sub(before) < Duration::from_millis(100)
    };
    assert!((0..60).any(|_| settled()), "the watchers never come to rest");

    let before = cpu_time(server.id());
    blocking_real_pause(ATTACK, MEASURED);
    let spent = cpu_time(server.id()).saturating_sub(before);
    let observer = Observer::of(&server);
    for turn in 0..20 {
        assert_another_is_served(&server, &format!("s{turn}"));
    }

    assert!(
        spent < ATTACK / 10,
        "{spent:?} of CPU time in {ATTACK:?} of silence"
    );
    observer.assert_unharmed("idle watchers", 32 * MEGABYTE);
    drop(watching);
}

#[test]
fn half_sent_requests_do_not_outlast_the_grace_period() {
    let _alone = alone();
    let server = talking("memory");
    let head = "POST /promptAgent HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let _half = [
        send(server.host(), head),
        send(server.host(), &format!("{head}content-length: 1000\r\n\r\n{{")),
        send(
            server.host(),
            &format!("{head}transfer-encoding: chunked\r\n\r\n1\r\n{{\r\n"),
        ),
    ];
    // Answered after the others, so they have arrived.
    exchange(server.host(), &post("/flows/echo", "", r#"{"data":1}"#));

    assert_ends_in_time(server);
}

#[test]
fn busy_streams_of_disconnected_clients_do_not_outlast_the_grace_period() {
    let _alone = alone();
    // The streams are kept, so that they continue without their clients.
    let bytes = (64 * MEGABYTE).to_string();
    let server = Testbed::start_with(&["--stream-bytes", &bytes]);
    let endless = post("/flows/streamy", STREAMED, r#"{"data":4000000000}"#);
    for _ in 0..100 {
        let mut stream = send(server.host(), &endless);
        stream.read_exact(&mut [0; 512]).unwrap();
    }
    let before = cpu_time(server.id());
    blocking_real_pause(Duration::from_millis(500), MEASURED);
    let busy = cpu_time(server.id()).saturating_sub(before);
    assert!(
        busy > Duration::from_millis(50),
        "the streams use {busy:?} of 500 ms"
    );

    assert_ends_in_time(server);
}

/// Sends `SIGTERM`, and checks that the process ends soon after the grace period.
#[track_caller]
fn assert_ends_in_time(server: Testbed) {
    let told = Instant::now();
    server.signal("TERM");
    let ended = server.wait();

    assert!(ended.success(), "{ended}");
    let took = told.elapsed();
    println!("ended after {took:?}");
    assert!(
        took < GRACE + Duration::from_secs(2),
        "the server ended after {took:?}"
    );
}
