//! Turns of one small agent over HTTP, served by this project and by Genkit's JavaScript server, under the same load in one
//! run; prints how many times more requests per second this one answers.
//!
//! `cargo bench -p testbed --bench http_versus_js` needs `node` and the packages that `./test` installs into `.tools/npm`. Each
//! server is a process of its own; the load comes from this one.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everturn_agent::agent;
use everturn_agent::store::MemoryStore;
use everturn_ai::{Message, Model, ModelRequest, ModelResponse, ModelResponseChunk, register_model};
use everturn_core::{Context, Emitter, HandlerResult, Registry, Result};
use everturn_server::Server;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// As a server would have it that has to be fast; JavaScript brings its own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many requests are under way at once.
const CONNECTIONS: usize = 64;

/// How long each server is asked for, each time.
const SAMPLE: Duration = Duration::from_secs(3);

/// Makes this program the server instead of the load.
const SERVE: &str = "--serve";

const WORDS: [&str; 5] = ["Leek ", "and ", "potato ", "soup ", "tonight."];

fn main() {
    if std::env::args().any(|argument| argument == SERVE) {
        let runtime = tokio::runtime::Runtime::new().expect("there is a runtime");
        return runtime.block_on(serve()).expect("the server runs");
    }
    // Cargo passes this only to run benchmarks; with other commands there is nothing to do.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    // One thread makes the load for either server, and leaves them the rest of the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("there is a runtime").block_on(compare());
}

async fn compare() {
    let (here, javascript) = (start_here(), start_javascript());

    println!("{CONNECTIONS} connections; requests per second");
    println!("                     JavaScript         here        ratio");
    for (name, accept) in [
        ("streamed turn", "text/event-stream"),
        ("turn in one answer", "application/json"),
    ] {
        // Alternately, and the best of each counts: a busy machine slows both alike.
        let (mut slow, mut fast) = (0.0_f64, 0.0_f64);
        for _ in 0..3 {
            slow = slow.max(requests_per_second(javascript.address, accept).await);
            fast = fast.max(requests_per_second(here.address, accept).await);
        }
        println!("{name:<20} {slow:>10.0} {fast:>12.0} {:>11.1}x", fast / slow);
    }
}

/// A server in a process of its own; ends with this one.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(command: &mut Command) -> Process {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the server can be started");
    let mut output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the server says something");
    let address = line.trim().strip_prefix("listening on http://");
    let address = address
        .and_then(|address| address.parse().ok())
        .expect("the server says where it listens");
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Process { child, address }
}

fn start_here() -> Process {
    let program = std::env::current_exe().expect("this program has a path");
    start(Command::new(program).arg(SERVE))
}

fn start_javascript() -> Process {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("../../.tools/npm").canonicalize();
    start(
        Command::new("node")
            .arg(root.join("benches/http_versus_js/server.mjs"))
            .arg(packages.expect("./test has installed the packages")),
    )
}

struct Cook;

impl Model for Cook {
    async fn generate(
        &self,
        _: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _: Context,
    ) -> HandlerResult<ModelResponse> {
        for word in WORDS {
            emitter.send(ModelResponseChunk::new(word)).await?;
        }
        Ok(ModelResponse::new(Message::model(WORDS.concat())))
    }
}

async fn serve() -> Result<()> {
    let registry = Registry::new();
    register_model(&registry, "cook", Cook)?;
    agent(&registry, "chef")
        .model("cook")
        .system("You are a cook.")
        .store(MemoryStore::new())
        .define()?;
    let server = Server::new(&registry).bind(("127.0.0.1", 0)).await?;
    println!("listening on http://{}", server.address());
    let handle = server.handle();
    // Ends with the process that started it.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        handle.shut_down();
    });
    server.run().await
}

async fn requests_per_second(address: SocketAddr, accept: &str) -> f64 {
    let body = r#"{"data":{"message":{"role":"user","content":[{"text":"What shall we eat?"}]}},"init":{}}"#;
    let request = format!(
        "POST /agents/chef HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let begin = Instant::now();
    let connections =
        (0..CONNECTIONS).map(|_| tokio::spawn(ask_until(address, request.clone(), begin + SAMPLE)));
    let answered = join_all(connections).await;
    let answered: u32 = answered
        .into_iter()
        .map(|count| count.expect("no request fails"))
        .sum();
    f64::from(answered) / begin.elapsed().as_secs_f64()
}

/// Asks one request after another on one connection: how many were answered.
async fn ask_until(address: SocketAddr, request: String, end: Instant) -> u32 {
    let mut stream = TcpStream::connect(address).await.expect("the server accepts");
    stream.set_nodelay(true).expect("the connection is open");
    let mut answered = 0;
    let mut buffer = Vec::new();
    while Instant::now() < end {
        stream
            .write_all(request.as_bytes())
            .await
            .expect("the server reads");
        buffer.clear();
        while !is_whole(&buffer) {
            let read = stream.read_buf(&mut buffer).await.expect("the server answers");
            assert!(read > 0, "the server closed the connection");
        }
        assert!(is_result(&buffer), "{}", String::from_utf8_lossy(&buffer));
        answered += 1;
    }
    answered
}

/// Whether this is a whole answer, by its last chunk or by its length.
fn is_whole(answer: &[u8]) -> bool {
    const LENGTH: &[u8] = b"\r\ncontent-length:";
    if answer.ends_with(b"\r\n0\r\n\r\n") {
        return true;
    }
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return false;
    };
    let (head, body) = answer.split_at(head + 4);
    let named = |bytes: &[u8]| bytes.eq_ignore_ascii_case(LENGTH);
    let Some(named) = head.windows(LENGTH.len()).position(named) else {
        return false;
    };
    let digits = head[named + LENGTH.len()..].trim_ascii_start();
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    body.len() >= digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'))
}

/// Whether a whole answer holds an output and no error.
fn is_result(answer: &[u8]) -> bool {
    answer.windows(10).any(|bytes| bytes == br#"{"result":"#)
}
