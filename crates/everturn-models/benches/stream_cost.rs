//! The cost of a call that streams 200 chunks, compared with a bare loop over the same bytes; and the time
//! from the arrival of the first chunk until the caller receives it.
//!
//! `cargo bench -p everturn-models`

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everturn_ai::{Message, ModelRequest, ModelResponseChunk, call_model};
use everturn_core::{Context, Emitter, Registry};
use everturn_models::OpenAi;
use serde_json::json;

const CHUNKS: usize = 200;
const CALLS: usize = 200;

/// When the server wrote its first chunk of an answer.
type Written = Arc<Mutex<Option<Instant>>>;

fn chunk(content: &str, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": { "content": content }, "finish_reason": finish });
    let data = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "system_fingerprint": "fp", "choices": [choice],
    });
    format!("data: {data}\n\n")
}

/// Serves the same stream to every client, an HTTP chunk per event.
fn serve(written: Written) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut events: Vec<String> = (0..CHUNKS)
        .map(|number| chunk(&format!("word{number} "), None))
        .collect();
    events.push(chunk("", Some("stop")));
    events.push("data: [DONE]\n\n".to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, events, written) = (stream.unwrap(), events.clone(), Arc::clone(&written));
            std::thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut request = [0; 16 * 1024];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                    stream.write_all(head.as_bytes()).unwrap();
                    for (number, event) in events.iter().enumerate() {
                        let framed = format!("{:x}\r\n{event}\r\n", event.len());
                        if number == 0 {
                            *written.lock().unwrap() = Some(Instant::now());
                        }
                        stream.write_all(framed.as_bytes()).unwrap();
                    }
                    stream.write_all(b"0\r\n\r\n").unwrap();
                }
            });
        }
    });
    format!("http://{address}/v1")
}

async fn bare(client: &reqwest::Client, url: &str) {
    let body = json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Leeks?" }] });
    let mut response = client
        .post(format!("{url}/chat/completions"))
        .json(&body)
        .send()
        .await
        .unwrap();
    let mut bytes = 0;
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes += chunk.len();
    }
    assert!(bytes > CHUNKS);
}

async fn ours(registry: &Registry, written: &Written) -> Duration {
    let first = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&first);
    let emitter = Emitter::new(move |_: ModelResponseChunk| {
        seen.lock().unwrap().get_or_insert_with(Instant::now);
        std::future::ready(Ok(()))
    });
    let request = ModelRequest::new(Message::user("Leeks?"));
    let response = call_model(registry, "local/m", request, emitter, Context::new())
        .await
        .unwrap();
    assert!(response.text().ends_with("word199 "));
    let (first, written) = (first.lock().unwrap().unwrap(), written.lock().unwrap().unwrap());
    first.saturating_duration_since(written)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    everturn_core::install_tls_provider();
    let written = Written::default();
    let url = serve(Arc::clone(&written));
    let client = reqwest::Client::new();
    let registry = Registry::new();
    registry
        .install(Arc::new(OpenAi::compatible("local", &url)))
        .unwrap();
    let (mut bare_times, mut our_times, mut first_chunks) = (Vec::new(), Vec::new(), Vec::new());

    // Alternately, so that whatever else the machine does is shared.
    for call in 0..CALLS + 20 {
        let begun = Instant::now();
        bare(&client, &url).await;
        let bare_time = begun.elapsed();
        let begun = Instant::now();
        let first_chunk = ours(&registry, &written).await;
        let our_time = begun.elapsed();
        if call >= 20 {
            bare_times.push(bare_time);
            our_times.push(our_time);
            first_chunks.push(first_chunk);
        }
    }

    let (bare, ours) = (median(bare_times), median(our_times));
    println!("bare loop, {CHUNKS} chunks     {bare:>10.1?}");
    println!(
        "a model call              {ours:>10.1?}  {:.2} times",
        ours.as_secs_f64() / bare.as_secs_f64()
    );
    println!("first chunk after arrival {:>10.1?}", median(first_chunks));
}
