//! The demo agents.

pub(crate) mod banker;
mod chef;
mod coder;
mod orchestrator;
mod planner;
mod researcher;
mod tutor;

use std::sync::Arc;
use std::time::Duration;

use everturn::Result;
use everturn::agent::store::Scope;
use everturn::agent::{AgentBuilder, AgentKind, AgentTransport, ChatBuilder, CustomState};
use everturn::prelude::{Agent, Archive, Everturn, Heartbeat, Value};

use crate::database::Database;
use crate::model::Choice;

/// A short heartbeat, so that a run whose process was killed continues soon after a restart.
const HEARTBEAT: Heartbeat = Heartbeat {
    interval: Duration::from_secs(2),
    expiry: Duration::from_secs(6),
};

/// A demo agent. The playground handles the state of every agent as untyped JSON.
#[derive(Clone)]
pub(crate) struct Demo {
    pub(crate) name: String,
    pub(crate) about: String,
    /// A suggested message.
    pub(crate) hint: &'static str,
    /// The archive of the agent's sessions.
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

    /// Starts or resumes a session.
    pub(crate) fn chat(&self) -> ChatBuilder<Value> {
        ChatBuilder::new(Arc::clone(&self.agent))
    }
}

/// Defines the agents on one database, with the chosen model. The offline model pauses for `pace` before each
/// word.
pub(crate) async fn define(files: &Database, model: Choice, pace: Duration) -> Result<(Everturn, Vec<Demo>)> {
    let app = model.add_to(Everturn::builder(), pace).build().await?;
    let demos = vec![
        Demo::new(chef::define(&app, files)?, "Stock the pantry with leeks")?,
        Demo::new(banker::define(&app, files)?, "Transfer 50 to Ann")?,
        Demo::new(coder::define(&app, files)?, "Write a function that sorts names")?,
        Demo::new(
            researcher::define(&app, files)?,
            "/detach Research the history of soup",
        )?,
        Demo::new(planner::define(&app, files)?, "/detach Plan the week")?,
        Demo::new(
            orchestrator::define(&app, files)?,
            "Let the chef say what is in season, and the coder print it",
        )?,
    ];
    // This agent has no stored sessions, so the terminal chat leaves it out.
    tutor::define(&app)?;
    Ok((app, demos))
}

/// Gives an agent its store and run log in the shared database. Each agent has a separate tenant, and other
/// processes can display its background runs.
fn keep<S: CustomState, K: AgentKind<S>>(
    agent: AgentBuilder<S, K>,
    name: &'static str,
    files: &Database,
) -> AgentBuilder<S, K> {
    agent
        .store(files.sessions.clone())
        .run_log(files.streams.clone())
        .scope(move |_| Scope::new(name))
        .heartbeat(HEARTBEAT)
}
