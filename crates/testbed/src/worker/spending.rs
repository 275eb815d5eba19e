//! A worker that uses up a session's budget: its turns call a model until the limit ends them, concurrently
//! with other workers.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_agent::{Budget, Limits, TurnLocking, agent};
use everturn_ai::{ModelInfo, ModelResponse, define_model};
use everturn_core::{Registry, Result, Status};

use super::Effects;

/// The session with the budget.
pub const SPENT: &str = "spent";

/// Runs turns of one session until its budget of model calls is used up. Each call has the worker's duration.
///
/// # Errors
/// The error of the agent's definition, or of a turn that neither the limit nor another turn ended.
pub async fn spend(
    store: Arc<dyn SessionStore>,
    effects: &Effects,
    pace: Duration,
    calls: u64,
) -> Result<()> {
    let registry = Registry::new();
    let effects = effects.clone();
    define_model(&registry, "clerk", ModelInfo::default(), move |_, _, _| {
        let effects = effects.clone();
        async move {
            effects.note(SPENT, "call")?;
            tokio::time::sleep(pace).await;
            Ok(ModelResponse::text_of("Done."))
        }
    })?;
    let agent = agent(&registry, "spending")
        .model("clerk")
        .limits(Limits::new().per_session(Budget::new().model_calls(calls)))
        // Turns of several processes run concurrently, and all but one are rejected when they commit.
        .turn_locking(TurnLocking::InProcess)
        .store(store)
        .define()?;
    loop {
        match agent.chat().resume(SPENT).run("Go on.").await {
            Ok(_) => {}
            Err(error) if error.status() == Status::Aborted => {}
            Err(error) if error.status() == Status::ResourceExhausted => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
