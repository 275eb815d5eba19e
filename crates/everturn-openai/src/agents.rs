//! The agents that the API serves.

use std::ops::Deref;

use everturn_core::{Context, Registry};
use everturn_server::{ServedAgent, ServedAgents};

/// An agent that the caller may use.
#[derive(Clone)]
pub(crate) struct Agent {
    served: ServedAgent,
    /// The tools that always interrupt and only accept a response.
    respond_only: Vec<String>,
}

impl Deref for Agent {
    type Target = ServedAgent;

    fn deref(&self) -> &ServedAgent {
        &self.served
    }
}

impl Agent {
    /// Returns the agents that the caller may use, sorted by name.
    pub(crate) async fn all(registry: &Registry, context: &Context) -> Vec<Self> {
        let mut agents = Vec::new();
        if let Some(served) = context.extension::<ServedAgents>() {
            for name in served.names() {
                agents.extend(Self::find(registry, name, context).await);
            }
        }
        agents
    }

    /// Returns the agent of that name, if the caller may use it.
    pub(crate) async fn find(registry: &Registry, name: &str, context: &Context) -> Option<Self> {
        let served = ServedAgent::admitted(registry, name, context).await?;
        Some(Self {
            respond_only: served.respond_only().map(str::to_owned).collect(),
            served,
        })
    }

    /// Returns the tools that always interrupt and only accept a response.
    pub(crate) fn respond_only(&self) -> Vec<String> {
        self.respond_only.clone()
    }

    /// Returns the same agent with the tools of all these agents: agents with the same store share its
    /// sessions.
    pub(crate) fn among(&self, agents: &[Self]) -> Self {
        Self {
            respond_only: agents.iter().flat_map(Self::respond_only).collect(),
            ..self.clone()
        }
    }
}
