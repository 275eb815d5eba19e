//! The innermost wrapper: how long the provider took, and what went in and out.

use std::future::Future;
use std::time::Instant;

use everturn_core::HandlerResult;

use crate::{Message, ModelRequest, ModelResponse};

/// Runs the provider and fills in what it did not measure itself. Counting does not walk a shared history.
pub(super) async fn measured<Fut>(
    request: ModelRequest,
    provider: impl FnOnce(ModelRequest) -> Fut,
) -> HandlerResult<ModelResponse>
where
    Fut: Future<Output = HandlerResult<ModelResponse>>,
{
    let input = request.messages.tally();
    let started = Instant::now();
    let mut response = provider(request).await?;
    response
        .latency_ms
        .get_or_insert_with(|| started.elapsed().as_secs_f64() * 1000.0);
    let output = response.message.as_ref().map(Message::tally).unwrap_or_default();
    response.usage.get_or_insert_default().fill_counts(input, output);
    Ok(response)
}
