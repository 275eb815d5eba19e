//! Flows for testing clients.

use std::time::Duration;

use everturn_core::{Emitter, Error, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The pause of `slowly` between chunks, long enough to disconnect during it.
const PAUSE: Duration = Duration::from_millis(50);

/// The characters in a chunk of `bulky`: a few thousand chunks fill any buffer.
const BULK: usize = 4 * 1024;

/// A chunk of the counting flows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Count {
    count: u32,
}

/// Defines all flows.
pub(crate) fn define(registry: &Registry) -> Result<()> {
    registry.define_flow("echo", |input: Value| async move { Ok(input) })?;
    registry.define_streaming_flow("streamy", |to: u32, emitter| count(to, emitter, Duration::ZERO))?;
    registry.define_streaming_flow("bulky", bulky)?;
    registry.define_streaming_flow("slowly", |to: u32, emitter| count(to, emitter, PAUSE))?;
    registry.define_flow("failing", |_: Value| async move {
        Err::<Value, _>(Error::internal("an internal matter").into())
    })?;
    registry.define_flow("denied", |_: Value| async move {
        let error = Error::permission_denied("not for you").with_public();
        Err::<Value, _>(error.with_details(json!({ "ask": "somebody else" })).into())
    })?;
    Ok(())
}

/// Sends chunks of [`BULK`] characters.
async fn bulky(count: u32, emitter: Emitter<String>) -> HandlerResult<u32> {
    for _ in 0..count {
        emitter.send("x".repeat(BULK)).await?;
    }
    Ok(count)
}

#[expect(clippy::disallowed_methods, reason = "the pace of the stream")]
async fn count(to: u32, emitter: Emitter<Count>, pause: Duration) -> HandlerResult<String> {
    for count in 0..to {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        emitter.send(Count { count }).await?;
    }
    Ok(format!("done {to}, streamed: {to} times"))
}
