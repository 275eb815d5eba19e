//! A client that writes down what it sends and receives.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::text_frame;

const JSON: (&str, &str) = ("content-type", "application/json");
const STREAMED: (&str, &str) = ("accept", "text/event-stream");
pub(crate) const EXTENSIONS: (&str, &str) = ("x-everturn-extensions", "1");

/// A client of one server, and the transcript of its requests.
pub(crate) struct Client {
    host: String,
    pub(crate) transcript: String,
}

/// A response.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    /// Returns the body, or the data of the last event.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let last = self.body.lines().rfind(|line| line.starts_with("data: {"));
        let json = last.map_or(self.body.as_str(), |line| &line["data: ".len()..]);
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Returns the result of a call.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        self.json()["result"].clone()
    }

    /// Returns the id of the snapshot in the result.
    #[track_caller]
    pub(crate) fn snapshot(&self) -> String {
        text(&self.result()["snapshotId"])
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(header, _)| header == name);
        &found.unwrap_or_else(|| panic!("there is no header {name}")).1
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }
}

impl Client {
    pub(crate) fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            transcript: String::new(),
        }
    }

    pub(crate) fn title(&mut self, title: &str) {
        let gap = if self.transcript.is_empty() { "" } else { "\n" };
        writeln!(self.transcript, "{gap}=== {title}\n").unwrap();
    }

    /// Sends a request and records the exchange.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let answer = self.unrecorded(method, path, headers, body);
        let transcript = &mut self.transcript;
        writeln!(transcript, "{method} {path}").unwrap();
        for (name, value) in headers {
            writeln!(transcript, "{name}: {value}").unwrap();
        }
        if !body.is_empty() {
            let end = body.char_indices().nth(2000).map_or(body.len(), |(at, _)| at);
            writeln!(transcript, "{}", &body[..end]).unwrap();
        }
        writeln!(transcript, "--> {}", answer.status).unwrap();
        for (name, value) in &answer.headers {
            writeln!(transcript, "{name}: {value}").unwrap();
        }
        writeln!(transcript, "{}\n", readable(&answer.body)).unwrap();
        answer
    }

    /// Sends a request and returns the response.
    pub(crate) fn unrecorded(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            write!(head, "host: {}\r\n", self.host).unwrap();
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if method != "GET" {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        parse(&bytes)
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    /// Posts JSON.
    #[expect(clippy::needless_pass_by_value, reason = "most bodies are literals")]
    pub(crate) fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[JSON], &body.to_string())
    }

    /// Posts JSON with further headers.
    #[expect(clippy::needless_pass_by_value, reason = "most bodies are literals")]
    pub(crate) fn post_with(&mut self, path: &str, headers: &[(&str, &str)], body: Value) -> Answer {
        let headers = [&[JSON], headers].concat();
        self.send("POST", path, &headers, &body.to_string())
    }

    /// Posts JSON and reads the events.
    pub(crate) fn stream(&mut self, path: &str, body: Value) -> Answer {
        self.post_with(path, &[STREAMED], body)
    }

    /// Posts JSON and reads the events with every field that Everturn adds.
    pub(crate) fn stream_extended(&mut self, path: &str, body: Value) -> Answer {
        self.post_with(path, &[STREAMED, EXTENSIONS], body)
    }

    /// Does something else while a streamed response has begun and not ended.
    pub(crate) fn while_streaming(&mut self, path: &str, body: &Value, other: impl FnOnce(&mut Self)) {
        let mut open = TcpStream::connect(&self.host).unwrap();
        open.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let (host, body) = (&self.host, body.to_string());
        write!(
            open,
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer alice-token\r\naccept: text/event-stream\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        open.read_exact(&mut [0]).unwrap();
        other(self);
    }

    /// Sends frames on a WebSocket, reads to the end of the conversation, and records both.
    pub(crate) fn converse(&mut self, agent: &str, protocols: &str, frames: &[Value]) {
        let mut socket = TcpStream::connect(&self.host).unwrap();
        socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let host = &self.host;
        write!(
            socket,
            "GET /{agent} HTTP/1.1\r\nhost: {host}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             sec-websocket-protocol: {protocols}\r\n\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let upgraded = parse(&head);
        writeln!(self.transcript, "GET /{agent}\n--> {}", upgraded.status).unwrap();
        for (name, value) in &upgraded.headers {
            writeln!(self.transcript, "{name}: {value}").unwrap();
        }
        for frame in frames {
            socket.write_all(&text_frame(&frame.to_string())).unwrap();
            writeln!(self.transcript, "> {frame}").unwrap();
        }
        while let Some(read) = self.frame(&mut socket) {
            if ["{\"result\"", "{\"error\"", "{\"aborted\""]
                .iter()
                .any(|end| read.starts_with(end))
            {
                break;
            }
        }
        self.transcript.push('\n');
    }

    /// Reads and records a frame; returns nothing after the last one. Pings are left out.
    fn frame(&mut self, socket: &mut TcpStream) -> Option<String> {
        loop {
            let mut head = [0; 2];
            socket.read_exact(&mut head).ok()?;
            let mut length = u64::from(head[1]);
            if length >= 126 {
                let mut bytes = [0; 8];
                let start = if length == 126 { 6 } else { 0 };
                socket.read_exact(&mut bytes[start..]).unwrap();
                length = u64::from_be_bytes(bytes);
            }
            let mut content = vec![0; usize::try_from(length).unwrap()];
            socket.read_exact(&mut content).unwrap();
            match head[0] & 15 {
                1 => {
                    let text = String::from_utf8(content).unwrap();
                    writeln!(self.transcript, "< {text}").unwrap();
                    return Some(text);
                }
                8 => {
                    let code = content
                        .get(..2)
                        .map(|code| u16::from_be_bytes([code[0], code[1]]));
                    let reason = String::from_utf8_lossy(content.get(2..).unwrap_or_default());
                    writeln!(self.transcript, "< close {code:?} {reason}").unwrap();
                    return None;
                }
                _ => {}
            }
        }
    }

    /// Waits for the last row of a background run: an abort is visible before its worker has written it.
    pub(crate) fn wait(&self, agent: &str, snapshot: &str) {
        let lookup = json!({"data": {"snapshotId": snapshot}}).to_string();
        let start = Instant::now();
        while start.elapsed() < Duration::from_mins(1) {
            let row = self
                .unrecorded("POST", &format!("/{agent}/getSnapshot"), &[JSON], &lookup)
                .result();
            if row["status"] != "pending" && row.get("finishReason").is_some() {
                return;
            }
        }
        panic!("the run {snapshot} has not ended");
    }
}

/// Reads a response. Headers are sorted by name.
fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let split = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let mut headers: Vec<(String, String)> = lines.map(split).collect();
    headers.sort();
    let rest = &bytes[end + 4..];
    let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
    let body = if is_chunked {
        dechunked(rest)
    } else {
        rest.to_vec()
    };
    let body = String::from_utf8(body).unwrap();
    Answer {
        status,
        headers,
        body,
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = bytes.iter().position(|byte| *byte == b'\r').unwrap();
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + size + 4..];
    }
}

/// Returns JSON over several lines; other texts are returned without their empty lines.
fn readable(body: &str) -> String {
    if let Ok(json) = serde_json::from_str::<Value>(body) {
        return serde_json::to_string_pretty(&json).unwrap();
    }
    let lines: Vec<&str> = body.lines().filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("this is no text: {value}"))
        .to_owned()
}

/// The body of a turn with a message.
pub(crate) fn says(text: &str) -> Value {
    says_at(text, &json!({}))
}

/// The body of a turn that begins at a session, a snapshot or a state.
pub(crate) fn says_at(text: &str, init: &Value) -> Value {
    json!({"data": {"message": {"role": "user", "content": [{"text": text}]}}, "init": init})
}

/// An answer of the model.
pub(crate) fn reply(text: &str) -> Value {
    json!({"message": {"role": "model", "content": [{"text": text}]}, "finishReason": "stop"})
}

/// A model's request to run a tool.
#[expect(clippy::needless_pass_by_value, reason = "inputs are literals")]
pub(crate) fn calls(tool: &str, input: Value, reference: &str) -> Value {
    let request = json!({"toolRequest": {"name": tool, "input": input, "ref": reference}});
    json!({"message": {"role": "model", "content": [request]}, "finishReason": "stop"})
}

/// A program of the model with answers that are not streamed.
#[expect(clippy::needless_pass_by_value, reason = "inputs are literals")]
pub(crate) fn program<const N: usize>(responses: [Value; N]) -> String {
    json!({"responses": responses.to_vec()}).to_string()
}

/// A program of the model with one answer, streamed in pieces.
pub(crate) fn streamed(pieces: &[&str]) -> String {
    let chunks: Vec<Value> = pieces
        .iter()
        .map(|piece| json!({"content": [{"text": piece}]}))
        .collect();
    json!({"responses": [reply(&pieces.concat())], "chunks": [chunks]}).to_string()
}
