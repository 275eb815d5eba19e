//! Many clients at once: turns complete, idle connections block nothing, clients that disconnect free their
//! resources, and clients that do not read cost no memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_core::{Emitter, Registry};
use everturn_server::Server;
use everturn_testkit::conformance::skip;
use everturn_testkit::eventually;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::alone;
use crate::served::Testbed;

/// The files that this process needs except the connections of a test.
const OTHER_FILES: usize = 128;

/// Returns whether this process may open so many files, after raising its limit; prints a reason if a test is
/// skipped.
fn may_open(files: usize) -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // Child processes inherit the limit. If it cannot be raised, it may still suffice.
        let _ = setrlimit(Resource::Nofile, raised);
        let wanted = (files + OTHER_FILES) as u64;
        if let Some(limit) = getrlimit(Resource::Nofile).current
            && limit < wanted
        {
            skip(format!(
                "{wanted} files have to be open at once, and {limit} may be"
            ));
            return false;
        }
    }
    true
}

/// The request, in one piece, so that a single write sends it.
fn post(path: &str, data: &str, connection: &str) -> String {
    let body = format!(r#"{{"data":{data}}}"#);
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: {connection}\r\naccept: text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const SAYS_HI: &str = r#"{"message":{"role":"user","content":[{"text":"hi"}]}}"#;

async fn ask(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads until a text has arrived.
async fn read_until(stream: &mut TcpStream, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        let read = stream.read_buf(&mut seen).await.unwrap();
        assert!(read > 0, "{text} is not in {}", String::from_utf8_lossy(&seen));
    }
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    everturn_testkit::in_time("the clients are served", future).await
}

async fn serve(registry: &Registry) -> SocketAddr {
    let server = Server::new(registry).bind(("127.0.0.1", 0)).await.unwrap();
    let address = server.address();
    tokio::spawn(server.run());
    address
}

/// An agent whose turns send a text, wait for the gate and send another text.
fn patient(registry: &Registry, gate: &watch::Receiver<bool>) -> Agent {
    let gate = gate.clone();
    custom_agent(registry, "patient", move |session: AgentSession| {
        let gate = gate.clone();
        async move {
            session
                .run(move |turn| {
                    let mut gate = gate.clone();
                    async move {
                        turn.send_chunk("waiting").await?;
                        // A closed gate never opens.
                        let _ = gate.wait_for(|open| *open).await;
                        turn.add_message(Message::model("done"));
                        Ok(FinishReason::Stop)
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .cancellation_grace(Duration::from_millis(10))
    .store(Arc::new(MemoryStore::new()))
    .define()
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streamed_turns_go_on_at_once_and_all_complete() {
    let _alone = alone();
    let turns = 1000;
    if !may_open(2 * turns) {
        return;
    }
    let registry = Registry::new();
    let (open, gate) = watch::channel(false);
    let agent = patient(&registry, &gate);
    let address = serve(&registry).await;
    let request = post("/agents/patient", SAYS_HI, "close");

    let mut streams = in_time(join_all((0..turns).map(|_| ask(address, &request)))).await;
    in_time(join_all(
        streams.iter_mut().map(|stream| read_until(stream, "waiting")),
    ))
    .await;
    assert_eq!(agent.invocations(), turns);
    open.send(true).unwrap();
    let rests = in_time(join_all(streams.into_iter().map(read_to_end))).await;

    for rest in rests {
        assert!(rest.contains(r#"data: {"result":"#), "{rest}");
        assert!(rest.contains("done"), "{rest}");
    }
    in_time(agent.idle()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_killed_free_their_turns() {
    let _alone = alone();
    let turns = 500;
    if !may_open(2 * turns) {
        return;
    }
    let registry = Registry::new();
    let (_closed, gate) = watch::channel(false);
    let agent = patient(&registry, &gate);
    let address = serve(&registry).await;
    let request = post("/agents/patient", SAYS_HI, "keep-alive");

    let mut streams = in_time(join_all((0..turns).map(|_| ask(address, &request)))).await;
    in_time(join_all(
        streams.iter_mut().map(|stream| read_until(stream, "waiting")),
    ))
    .await;
    assert_eq!(agent.invocations(), turns);
    drop(streams);

    in_time(agent.idle()).await;
    assert_eq!(agent.invocations(), 0);
}

/// The memory of a process, if the operating system reports it.
fn resident_bytes(process: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_are_held_while_turns_go_on() {
    let _alone = alone();
    let wanted = 10_000;
    if !may_open(wanted) {
        return;
    }
    let server = Testbed::start("memory");
    server.program(
        r#"{"responses":[{"message":{"role":"model","content":[{"text":"hi"}]},"finishReason":"stop"}]}"#,
    );
    let address: SocketAddr = server.address.trim_start_matches("http://").parse().unwrap();
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let before = resident_bytes(server.id());

    let mut idle = Vec::new();
    while idle.len() < wanted {
        // In batches, so that no connection waits in a bounded queue of the operating system.
        let portion = (wanted - idle.len()).min(250);
        let opening = (0..portion).map(|_| async {
            let mut stream = ask(address, health).await;
            read_until(&mut stream, r#"{"status":"ok"}"#).await;
            stream
        });
        idle.extend(in_time(join_all(opening)).await);
    }
    let held = resident_bytes(server.id());
    let request = post("/promptAgentWithStore", SAYS_HI, "close");
    let turns = (0..50).map(|_| async { read_to_end(ask(address, &request).await).await });
    let turns = in_time(join_all(turns)).await;
    let again = idle.iter_mut().step_by(100).map(|stream| async move {
        stream.write_all(health.as_bytes()).await.unwrap();
        read_until(stream, r#"{"status":"ok"}"#).await;
    });
    in_time(join_all(again)).await;

    for turn in turns {
        assert!(turn.contains(r#"data: {"result":"#), "{turn}");
    }
    match before.zip(held) {
        Some((before, held)) => {
            let each = held.saturating_sub(before) / wanted;
            println!("{wanted} idle connections take {each} bytes each");
            assert!(each < 64 * 1024, "{each} bytes for each connection");
        }
        None => println!("note: this system does not say how much memory a process has"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_do_not_read_cost_no_memory() {
    let _alone = alone();
    let registry = Registry::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let endless = move |(): (), emitter: Emitter<String>| {
        let count = Arc::clone(&count);
        async move {
            loop {
                emitter.send("x".repeat(16 * 1024)).await?;
                count.fetch_add(1, Ordering::SeqCst);
            }
            #[expect(unreachable_code, reason = "says what the flow would return")]
            Ok(())
        }
    };
    registry.define_streaming_flow("endless", endless).unwrap();
    let address = serve(&registry).await;
    let readers = 8;
    let request = post("/flows/endless", "null", "close");
    let before = resident_bytes(std::process::id());

    let asking = (0..readers).map(|_| async {
        // Buffers of the operating system are not measured.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    });
    let streams = in_time(join_all(asking)).await;
    let (mut seen, mut unchanged) = (0, 0);
    eventually("nothing more is sent", async || {
        let before = std::mem::replace(&mut seen, sent.load(Ordering::SeqCst));
        unchanged = if seen == 0 || seen != before {
            0
        } else {
            unchanged + 1
        };
        unchanged == 100
    })
    .await;

    match before.zip(resident_bytes(std::process::id())) {
        Some((before, after)) => {
            let each = after.saturating_sub(before) / readers;
            println!("a reader that does not read takes {each} bytes");
            assert!(each < 4 * 1024 * 1024, "{each} bytes for each reader");
        }
        None => println!("note: this system does not say how much memory a process has"),
    }
    drop(streams);
}
