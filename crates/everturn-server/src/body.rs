//! Reading a request's body within the limits on its size and on the time it takes.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use everturn_core::Error;
use http_body_util::BodyExt;

use crate::error_body::Refusal;
use crate::permits::Permit;
use crate::{Limits, ServerHandle};

/// How much of a body that is too large is read and discarded. A client that reads the answer only after it has sent
/// everything would otherwise see a broken connection.
const DISCARDED_BYTES: usize = 256 * 1024 * 1024;

/// How long discarding may take.
const DISCARD_TIME: Duration = Duration::from_secs(30);

/// Reads the whole body.
///
/// Fails with `413` if it is too large, with `400` if the client breaks off or its values would take too much memory, with
/// `408` if it takes too long, with `429` if the server holds as much as it may and with `503` if it has ended its grace
/// period.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    handle: &ServerHandle,
    permit: &mut Permit,
) -> Result<Bytes, Refusal> {
    tokio::select! {
        // First the body, which has mostly arrived: waiting for the token takes a lock that all requests share.
        biased;
        read = read_in_time(headers, body, limits, permit) => read,
        () = handle.grace_over().cancelled() => {
            let message = "the server ended before the request had arrived: send it again";
            Err(Error::unavailable(message).with_public().into())
        }
    }
}

async fn read_in_time(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    permit: &mut Permit,
) -> Result<Bytes, Refusal> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limits.body_bytes as u64) {
        // A client that sent `Expect: 100-continue` has not begun to send.
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large(limits));
    }
    let reading = tokio::time::timeout(limits.body_time, collect(body, limits, permit));
    reading.await.unwrap_or_else(|_| {
        let message = format!(
            "the body did not arrive within {} seconds",
            limits.body_time.as_secs_f64()
        );
        let error = Error::deadline_exceeded(message);
        Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error))
    })
}

async fn collect(mut body: Body, limits: &Limits, permit: &mut Permit) -> Result<Bytes, Refusal> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let error = Error::invalid_argument("the body broke off or is not framed as announced");
            Refusal::new(StatusCode::BAD_REQUEST, error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if collected.len() + data.len() > limits.body_bytes {
            drop(collected);
            discard(body).await;
            return Err(too_large(limits));
        }
        permit.take(data.len())?;
        collected.extend_from_slice(&data);
    }
    let collected = collected.freeze();
    permit.take_parsed(limits.parsed_size(&collected).await?)?;
    Ok(collected)
}

pub(crate) async fn discard(mut body: Body) {
    let discarding = async {
        let mut seen = 0;
        while let Some(Ok(frame)) = body.frame().await {
            seen += frame.data_ref().map_or(0, Bytes::len);
            if seen > DISCARDED_BYTES {
                break;
            }
        }
    };
    // The answer is the same whether or not discarding ended in time.
    let _ = tokio::time::timeout(DISCARD_TIME, discarding).await;
}

fn too_large(limits: &Limits) -> Refusal {
    let message = format!(
        "the body is larger than the {} bytes that are allowed",
        limits.body_bytes
    );
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, Error::invalid_argument(message))
}
