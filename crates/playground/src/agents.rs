//! The agents there are to talk to.

pub(crate) mod banker;
mod chef;
mod planner;

use std::sync::Arc;
use std::time::Duration;

use everturn::Result;
use everturn::agent::store::Scope;
use everturn::agent::{AgentBuilder, AgentKind, AgentTransport, ChatBuilder, CustomState};
use everturn::prelude::{Agent, Archive, Everturn, Heartbeat, Value};

use crate::database::Database;
use crate::model::Choice;

/// Short, so that a run whose process was killed goes on soon after the next start.
const HEARTBEAT: Heartbeat = Heartbeat {
    interval: Duration::from_secs(2),
    expiry: Duration::from_secs(6),
};

/// An agent to talk to. What type of state it keeps is its own affair: here everything is JSON.
#[derive(Clone)]
pub(crate) struct Demo {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Something worth typing.
    pub(crate) hint: &'static str,
    /// The conversations with it.
    pub(crate) archive: Archive,
    agent: Arc<dyn AgentTransport>,
}

impl Demo {
    fn new<S: CustomState>(agent: Agent<S>, hint: &'static str) -> Result<Self> {
        Ok(Self {
            name: agent.name().to_owned(),
            about: agent.description().unwrap_or_default().to_owned(),
            hint,
            archive: agent.archive()?,
            agent: Arc::new(agent),
        })
    }

    /// A conversation to be begun or resumed.
    pub(crate) fn chat(&self) -> ChatBuilder<Value> {
        ChatBuilder::new(Arc::clone(&self.agent))
    }
}

/// Defines the agents, with their conversations in a database and the chosen model, which pauses for `pace` before each
/// word if it is the offline one.
pub(crate) async fn define(files: &Database, model: Choice, pace: Duration) -> Result<(Everturn, Vec<Demo>)> {
    let app = model.add_to(Everturn::builder(), pace).build().await?;
    let demos = vec![
        Demo::new(chef::define(&app, files)?, "Stock the pantry with leeks")?,
        Demo::new(banker::define(&app, files)?, "Transfer 50 to Ann")?,
        Demo::new(planner::define(&app, files)?, "/detach Plan the week")?,
    ];
    Ok((app, demos))
}

/// Keeps an agent's conversations in the database that all share, apart from those with the others, and what its
/// background runs stream, so that another process can show them.
fn keep<S: CustomState, K: AgentKind<S>>(
    agent: AgentBuilder<S, K>,
    name: &'static str,
    files: &Database,
) -> AgentBuilder<S, K> {
    agent
        .store(files.sessions.clone())
        .run_log(Arc::new(files.streams.clone()))
        .scope(move |_| Scope::new(name))
        .heartbeat(HEARTBEAT)
}
