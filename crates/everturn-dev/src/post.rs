//! Posting JSON to the tools on the same machine.
//!
//! Uses hyper, which the server depends on anyway. The tools use plain HTTP on loopback, so a client with
//! TLS, proxies and pools would add only build time.

use std::time::Duration;

use bytes::Bytes;
use everturn_core::{Error, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The timeout of one post.
const PATIENCE: Duration = Duration::from_secs(2);

/// Posts a body and waits for the response.
///
/// # Errors
/// `INVALID_ARGUMENT` if the address is invalid; `UNAVAILABLE` if the server cannot be reached, does not
/// respond in time, or responds with an error status.
pub(crate) async fn post(server: &str, path: &str, body: Bytes) -> Result<()> {
    tokio::time::timeout(PATIENCE, exchange(server, path, body))
        .await
        .unwrap_or_else(|_| Err(Error::unavailable(format!("{server} does not answer"))))
}

async fn exchange(server: &str, path: &str, body: Bytes) -> Result<()> {
    let unusable = || {
        Error::invalid_argument(format!(
            "'{server}' is not an address of the form http://host:port"
        ))
    };
    let uri: Uri = format!("{}{path}", server.trim_end_matches('/'))
        .parse()
        .map_err(|_| unusable())?;
    let authority = uri
        .authority()
        .filter(|_| uri.scheme_str() == Some("http"))
        .ok_or_else(unusable)?;
    let unreachable = |error: &dyn std::fmt::Display| Error::unavailable(format!("{server}: {error}"));
    // All addresses of `localhost` are tried, because the tools listen on 127.0.0.1 only.
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
        // The body is read and discarded, so that the connection ends properly. The timeout bounds a body
        // without end.
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
        // The connection may end before its response was passed on.
        ended = &mut connection => match ended {
            Ok(()) => answering.await,
            Err(error) => Err(unreachable(&error)),
        },
    }
}
