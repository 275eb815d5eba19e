//! Posting JSON to the tools on this machine.
//!
//! Written on hyper, which the server has anyway: the tools speak plain HTTP on loopback, so a client with TLS, proxies and
//! pools would only cost.

use std::time::Duration;

use bytes::Bytes;
use everturn_core::{Error, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long one post may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Posts a body and waits for the answer.
///
/// # Errors
/// `INVALID_ARGUMENT` if the address is none, `UNAVAILABLE` if the server cannot be reached, does not answer in time, or
/// answers with another status than success.
pub(crate) async fn post(server: &str, path: &str, body: Bytes) -> Result<()> {
    tokio::time::timeout(PATIENCE, exchange(server, path, body))
        .await
        .unwrap_or_else(|_| Err(Error::unavailable(format!("{server} does not answer"))))
}

async fn exchange(server: &str, path: &str, body: Bytes) -> Result<()> {
    let unusable =
        || Error::invalid_argument(format!("'{server}' is no address of the form http://host:port"));
    let uri: Uri = format!("{}{path}", server.trim_end_matches('/'))
        .parse()
        .map_err(|_| unusable())?;
    let authority = uri
        .authority()
        .filter(|_| uri.scheme_str() == Some("http"))
        .ok_or_else(unusable)?;
    let unreachable = |error: &dyn std::fmt::Display| Error::unavailable(format!("{server}: {error}"));
    // All addresses of `localhost` are tried: the tools listen on 127.0.0.1 alone.
    let host = authority.host().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80)))
        .await
        .map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    let request = Request::post(uri.path())
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(body))
        .map_err(|_| unusable())?;
    let answering = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| unreachable(&error))?;
        let status = answer.status();
        // What the server says is of no use, but the connection ends only once it was read. A server that talks without
        // end is left by the timeout.
        let mut body = answer.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        if status.is_success() {
            Ok(())
        } else {
            Err(Error::unavailable(format!("{server} answered {status}")))
        }
    };
    tokio::pin!(answering, connection);
    tokio::select! {
        answered = &mut answering => answered,
        // The connection may be over before its answer was handed on.
        ended = &mut connection => match ended {
            Ok(()) => answering.await,
            Err(error) => Err(unreachable(&error)),
        },
    }
}
