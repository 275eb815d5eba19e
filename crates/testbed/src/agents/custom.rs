//! Agents with a custom turn loop.

use std::future::Future;

use everturn_agent::{AgentBuilder, AgentSession, Artifact, CustomState, Turn, custom_agent};
use everturn_ai::Message;
use everturn_core::{Error, HandlerResult, Registry, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Harness;

pub(super) fn define(harness: &mut Harness) -> Result<()> {
    let (registry, store) = (&harness.registry().clone(), harness.store());
    harness.define(turns(registry, "customAgentBlocking", block).store(store.clone()))?;
    harness.define(turns(registry, "customAgentFailing", fail).store(store.clone()))?;
    harness.define(turns(registry, "customAgentWithArtifacts", draft))?;
    harness.define(turns(registry, "customAgentWithArtifactsStore", file).store(store.clone()))?;
    harness.define(turns(registry, "customAgentWithCustomState", count))?;
    harness.define(turns(registry, "customAgentWithCustomStateStore", count).store(store))?;
    harness.define(turns(registry, "customAgentWithMultiCustomState", work))
}

/// Defines an agent that runs every turn with `turn` and returns the session's result.
fn turns<S, F, Fut>(registry: &Registry, name: &str, turn: F) -> AgentBuilder<S>
where
    S: CustomState,
    F: Fn(Turn<S>) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<()>> + Send + 'static,
{
    custom_agent(registry, name, move |session: AgentSession<S>| async move {
        session.run(turn).await?;
        Ok(session.result())
    })
}

fn done<S: CustomState>(turn: &Turn<S>) {
    turn.add_message(Message::model("done"));
}

async fn block(turn: Turn) -> HandlerResult<()> {
    turn.context().cancellation().cancelled().await;
    Err(Error::cancelled("the work was cancelled").into())
}

async fn fail(_turn: Turn) -> HandlerResult<()> {
    Err(Error::internal("intentional failure").into())
}

async fn draft(turn: Turn) -> HandlerResult<()> {
    turn.send_artifact(Artifact::text("doc1", "v1")).await?;
    turn.send_artifact(Artifact::text("doc1", "v2")).await?;
    turn.send_artifact(Artifact::text("doc2", "other")).await?;
    done(&turn);
    Ok(())
}

async fn file(turn: Turn) -> HandlerResult<()> {
    let number = turn.artifacts().len() + 1;
    turn.send_artifact(Artifact::text(format!("doc{number}"), format!("content{number}")))
        .await?;
    done(&turn);
    Ok(())
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Counter {
    counter: u32,
}

async fn count(turn: Turn<Counter>) -> HandlerResult<()> {
    turn.update_custom(|state| state.counter += 1);
    done(&turn);
    Ok(())
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Work {
    counter: u32,
    status: String,
}

async fn work(turn: Turn<Work>) -> HandlerResult<()> {
    turn.set_custom(Work {
        counter: 1,
        status: "working".to_owned(),
    });
    turn.update_custom(|work| work.counter = 2);
    turn.update_custom(|work| work.status = "done".into());
    done(&turn);
    Ok(())
}
