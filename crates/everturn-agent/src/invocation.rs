//! One call of an agent, from its `init` to its output.

use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Inputs, Result, SpanRecorder};
use tokio::sync::oneshot;
use tracing::Instrument;

use crate::agent::Definition;
use crate::driver::Driver;
use crate::opening::open;
use crate::{AgentInit, AgentInput, AgentOutput, AgentStreamChunk, CustomState};

/// Opens an invocation and waits for its output.
///
/// The work belongs to a driver in a task of its own. This future only waits: dropping it tells the driver that the
/// client is gone, which ends the work unless it was detached.
pub(crate) async fn invoke<S: CustomState>(
    definition: Arc<Definition<S>>,
    init: AgentInit,
    inputs: Inputs<AgentInput>,
    emitter: Emitter<AgentStreamChunk>,
    context: Context,
) -> Result<AgentOutput> {
    let opening = open(&definition, init, &context).await?;
    SpanRecorder::current().session_id(opening.session_id.as_str());
    let (answer, outcome) = oneshot::channel();
    let driver = Driver::start(Arc::clone(&definition), opening, inputs, emitter, context, answer)?;
    definition
        .invocations
        .spawn(driver.run().instrument(tracing::Span::current()));
    outcome
        .await
        .unwrap_or_else(|_| Err(Error::internal("the invocation ended without an answer")))
}
