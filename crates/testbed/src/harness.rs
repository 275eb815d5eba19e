//! All agents of the cases, on one registry.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_agent::{AgentBuilder, AgentKind, AgentTransport, CustomState, IntoStore};
use everturn_ai::register_model;
use everturn_core::stream_log::StreamLog;
use everturn_core::{Registry, Result};

use crate::ProgrammableModel;

/// The agents of the cases and the model behind them.
pub struct Harness {
    registry: Registry,
    model: ProgrammableModel,
    store: Arc<dyn SessionStore>,
    /// The log through which other processes can watch background runs.
    run_log: Option<Arc<dyn StreamLog>>,
    agents: BTreeMap<String, Arc<dyn AgentTransport>>,
}

impl Harness {
    /// Returns a harness without agents.
    pub(crate) fn empty(store: impl IntoStore, run_log: Option<Arc<dyn StreamLog>>) -> Result<Self> {
        let harness = Self {
            registry: Registry::new(),
            model: ProgrammableModel::default(),
            store: store.into_store(),
            run_log,
            agents: BTreeMap::new(),
        };
        register_model(&harness.registry, ProgrammableModel::NAME, harness.model.clone())?;
        Ok(harness)
    }

    /// Returns the registry of the agents and the model.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the model behind the agents that have one.
    pub fn model(&self) -> &ProgrammableModel {
        &self.model
    }

    /// Returns the names of the agents, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns the agent of that name.
    pub fn agent(&self, name: &str) -> Option<&dyn AgentTransport> {
        self.agents.get(name).map(AsRef::as_ref)
    }

    /// Replaces the transport of every agent.
    pub fn reached_by(mut self, way: impl Fn(&str) -> Arc<dyn AgentTransport>) -> Self {
        for (name, agent) in &mut self.agents {
            *agent = way(name);
        }
        self
    }

    pub(crate) fn store(&self) -> Arc<dyn SessionStore> {
        Arc::clone(&self.store)
    }

    /// Defines another agent.
    pub(crate) fn define<S: CustomState, K: AgentKind<S>, T: 'static, O: 'static>(
        &mut self,
        agent: AgentBuilder<S, K, T, O>,
    ) -> Result<()> {
        let agent = match &self.run_log {
            Some(log) => agent.run_log(Arc::clone(log)),
            None => agent,
        };
        let agent = agent.define()?;
        self.agents.insert(agent.name().to_owned(), Arc::new(agent));
        Ok(())
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("agents", &self.agents.keys())
            .finish_non_exhaustive()
    }
}
