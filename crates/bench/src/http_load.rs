//! The load on servers: turns on many connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use everturn::Result;
use everturn::prelude::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::worker::question;

/// Requests turns for so many seconds, at least one turn on each connection; returns the number of responses.
///
/// # Errors
/// `INTERNAL` if a turn has no output.
pub(crate) async fn load(
    address: SocketAddr,
    path: &str,
    accept: &str,
    clients: usize,
    seconds: f64,
) -> Result<f64> {
    let request = request(address, path, accept);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let connections: Vec<_> = (0..clients)
        .map(|_| tokio::spawn(ask_while(address, request.clone(), move |_| Instant::now() < end)))
        .collect();
    let mut answered = 0;
    for connection in connections {
        answered += connection.await.map_err(Error::foreign)??;
    }
    Ok(f64::from(answered))
}

/// Requests a streamed turn on each of so many connections, and returns them after their first chunks.
///
/// # Errors
/// `INTERNAL` if a stream ends before its first chunk.
pub(crate) async fn hold_open(address: SocketAddr, path: &str, streams: u32) -> Result<Vec<TcpStream>> {
    let request = request(address, path, "text/event-stream");
    let mut open = Vec::new();
    for _ in 0..streams {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::new();
        while !buffer.windows(5).any(|bytes| bytes == b"data:") {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(Error::internal("a server of the comparison ended a stream"));
            }
        }
        open.push(stream);
    }
    Ok(open)
}

fn request(address: SocketAddr, path: &str, accept: &str) -> String {
    let body = format!(
        r#"{{"data":{{"message":{{"role":"user","content":[{{"text":"{}"}}]}}}},"init":{{}}}}"#,
        question()
    );
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends one request after another on one connection, while `continues` returns true for the number of
/// responses.
async fn ask_while(address: SocketAddr, request: String, continues: impl Fn(u32) -> bool) -> Result<u32> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answered = 0;
    let mut buffer = Vec::new();
    loop {
        stream.write_all(request.as_bytes()).await?;
        buffer.clear();
        while !is_whole(&buffer) {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(Error::internal(
                    "a server of the comparison closed the connection",
                ));
            }
        }
        if !buffer.windows(10).any(|bytes| bytes == br#"{"result":"#) {
            let answer = String::from_utf8_lossy(&buffer).into_owned();
            return Err(Error::internal(format!(
                "a server answered without an output: {answer}"
            )));
        }
        answered += 1;
        if !continues(answered) {
            return Ok(answered);
        }
    }
}

/// Whether this is a whole response, by its last chunk or by its length.
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
