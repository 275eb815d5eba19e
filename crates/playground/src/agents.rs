//! The agents there are to talk to.

pub(crate) mod banker;
mod chef;
mod planner;

use std::sync::Arc;
use std::time::Duration;

use everturn::agent::store::SessionStore;
use everturn::agent::{Agent, AgentTransport, ChatBuilder, CustomState};
use everturn::prelude::{Everturn, Value};
use everturn::testkit::OfflineModel;
use everturn::{Error, Result};

/// An agent to talk to. What type of state it keeps is its own affair: here everything is JSON.
#[derive(Clone)]
pub(crate) struct Demo {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Something worth typing.
    pub(crate) hint: &'static str,
    pub(crate) store: Arc<dyn SessionStore>,
    agent: Arc<dyn AgentTransport>,
}

impl Demo {
    fn new<S: CustomState>(agent: Agent<S>, hint: &'static str) -> Result<Self> {
        let store = agent.store().cloned();
        Ok(Self {
            name: agent.name().to_owned(),
            about: agent.description().unwrap_or_default().to_owned(),
            hint,
            store: store.ok_or_else(|| Error::internal("a demo agent keeps its conversations"))?,
            agent: Arc::new(agent),
        })
    }

    /// A conversation to be begun or resumed.
    pub(crate) fn chat(&self) -> ChatBuilder<Value> {
        ChatBuilder::new(Arc::clone(&self.agent))
    }
}

/// Defines the agents around a model that pauses for `pace` before each word.
pub(crate) async fn define(pace: Duration) -> Result<Vec<Demo>> {
    let model = OfflineModel::new().with_pace(pace);
    let app = Everturn::builder()
        .model("offline", model)
        .default_model("offline")
        .build()
        .await?;
    Ok(vec![
        Demo::new(chef::define(&app)?, "Stock the pantry with leeks")?,
        Demo::new(banker::define(&app)?, "Transfer 50 to Ann")?,
        Demo::new(planner::define(&app)?, "/detach Plan the week")?,
    ])
}
