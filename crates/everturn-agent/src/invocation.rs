//! One call of an agent, from its `init` to its output.

mod agent_session;
mod background;
mod broadcast;
mod client;
mod conversation;
mod definition;
mod driver;
mod effect;
mod execute;
mod function;
mod generate;
mod journals;
mod machine;
mod opening;
mod outbox;
mod output;
mod prompt_turn;
mod snapshots;
mod turn;

use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Inputs, Result, SpanRecorder};
use tokio::sync::oneshot;
use tracing::Instrument;

pub use self::agent_session::AgentSession;
pub use self::client::HandOff;
pub use self::definition::Heartbeat;
pub(crate) use self::definition::{AgentFunction, CANCELLATION_GRACE, Definition, ScopeOf};
pub(crate) use self::driver::Driver;
use self::driver::{AgentEvent, Written};
pub use self::effect::TurnEffect;
pub use self::generate::TurnGenerate;
pub(crate) use self::opening::Opening;
use self::opening::open;
pub(crate) use self::prompt_turn::prompt_function;
pub use self::turn::{Turn, TurnContext, TurnResult};
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
