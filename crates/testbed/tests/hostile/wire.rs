//! Requests as bytes, for clients that HTTP libraries do not allow.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// A header that requests a stream.
pub(crate) const STREAMED: &str = "accept: text/event-stream\r\n";

/// Sends a request and reads until the server closes.
pub(crate) fn exchange(host: &str, request: &str) -> String {
    read(send(host, request))
}

/// Reads until the server closes.
pub(crate) fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    // A broken connection has delivered its data.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request, and leaves the response unread.
pub(crate) fn send(host: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(host).unwrap();
    // A server that has rejected the request may have closed the connection.
    let _ = stream.write_all(request.as_bytes());
    stream
}

/// Connects from another address of this machine: without a principal, an address is a caller.
pub(crate) fn connect_as_another(host: &str) -> TcpStream {
    connect_as(host, 2)
}

/// Connects as one of several callers, from an address of this machine with that number.
pub(crate) fn connect_as(host: &str, number: u8) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let stream = runtime.unwrap().block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket
            .bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, number), 0)))
            .unwrap();
        let stream = socket.connect(host.parse().unwrap()).await.unwrap();
        stream.into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The body of a turn in a session.
pub(crate) fn says(text: &str, session: &str) -> String {
    format!(
        r#"{{"data":{{"message":{{"role":"user","content":[{{"text":"{text}"}}]}}}},"init":{{"sessionId":"{session}"}}}}"#
    )
}

/// Opens a WebSocket of an agent.
pub(crate) fn websocket(mut socket: TcpStream, agent: &str) -> TcpStream {
    let request = format!(
        "GET /{agent} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: everturn.v1\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    socket
}

/// Returns a text as a frame with a mask of zeros.
pub(crate) fn text_frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend((text.len() as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// Reads a frame of a server, and returns its first byte and the beginning of its content.
pub(crate) fn read_frame(socket: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    socket.read_exact(&mut head)?;
    let mut length = u64::from(head[1] & 127);
    if length >= 126 {
        let mut bytes = [0; 8];
        let start = if length == 126 { 6 } else { 0 };
        socket.read_exact(&mut bytes[start..])?;
        length = u64::from_be_bytes(bytes);
    }
    let mut content = vec![0; usize::try_from(length.min(64)).unwrap()];
    socket.read_exact(&mut content)?;
    let rest = &mut socket.take(length - content.len() as u64);
    std::io::copy(rest, &mut std::io::sink())?;
    Ok((head[0], content))
}
