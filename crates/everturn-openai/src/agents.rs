//! The agents behind the surface, as their actions in the registry.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::archive::{DeleteRequest, Deleted};
use everturn_agent::{
    AbortAction, AbortRequest, AgentAction, GetSnapshotRequest, SessionId, Snapshot, SnapshotAction,
    SnapshotId, WatchAction,
};
use everturn_core::{Action, ActionType, Context, DynAction, Emitter, Error, Registry, Result, downcast};
use everturn_server::ServedAgents;
use serde_json::Value;

/// One agent.
#[derive(Clone)]
pub(crate) struct ServedAgent {
    pub(crate) name: String,
    pub(crate) run: Arc<AgentAction>,
    /// The tools that only a response answers.
    respond_only: Vec<String>,
    registry: Registry,
}

impl ServedAgent {
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
        if !context.extension::<ServedAgents>()?.admit(name).await {
            return None;
        }
        let run: Arc<AgentAction> = downcast(registry.get(&ActionType::AGENT.key(name))?)?;
        Some(Self {
            name: name.to_owned(),
            respond_only: respond_only(&run),
            run,
            registry: registry.clone(),
        })
    }

    /// Returns whether the agent keeps its sessions in a store.
    pub(crate) fn has_store(&self) -> bool {
        self.companion::<SnapshotAction>(&ActionType::AGENT_SNAPSHOT)
            .is_some()
    }

    /// Returns whether the agent has background runs.
    pub(crate) fn can_detach(&self) -> bool {
        self.companion::<AbortAction>(&ActionType::AGENT_ABORT).is_some()
    }

    /// Returns whether the agent takes the tools of clients.
    pub(crate) fn takes_tools(&self) -> bool {
        let own = self.run.descriptor().metadata.get("everturn");
        own.and_then(|own| own.get("clientTools")) == Some(&Value::Bool(true))
    }

    /// Returns the agent's tools that only a response answers.
    pub(crate) fn respond_only(&self) -> Vec<String> {
        self.respond_only.clone()
    }

    /// The same agent, which knows the tools of all these agents: those that share a store share its sessions.
    pub(crate) fn among(&self, agents: &[Self]) -> Self {
        Self {
            respond_only: agents.iter().flat_map(Self::respond_only).collect(),
            ..self.clone()
        }
    }

    /// Returns the time without a heartbeat after which a background run is lost.
    pub(crate) fn lost_after(&self) -> Option<Duration> {
        let own = self.run.descriptor().metadata.get("everturn");
        let time = own.and_then(|own| own.get("lostAfterMillis")?.as_u64());
        time.map(Duration::from_millis)
    }

    fn companion<A: DynAction>(&self, action_type: &ActionType) -> Option<Arc<A>> {
        downcast(self.registry.get(&action_type.key(&self.name))?)
    }

    /// Reads a snapshot; `None` if this caller has no such snapshot.
    pub(crate) async fn snapshot(&self, id: &SnapshotId, context: &Context) -> Result<Option<Snapshot>> {
        self.read(
            GetSnapshotRequest {
                snapshot_id: Some(id.clone()),
                session_id: None,
            },
            context,
        )
        .await
    }

    /// Reads the tip of a session; `None` if this caller has no such session.
    pub(crate) async fn tip(&self, session: &SessionId, context: &Context) -> Result<Option<Snapshot>> {
        self.read(
            GetSnapshotRequest {
                snapshot_id: None,
                session_id: Some(session.clone()),
            },
            context,
        )
        .await
    }

    async fn read(&self, request: GetSnapshotRequest, context: &Context) -> Result<Option<Snapshot>> {
        let Some(action) = self.companion::<SnapshotAction>(&ActionType::AGENT_SNAPSHOT) else {
            return Ok(None);
        };
        match action.call(request, context.clone(), Emitter::silent()).await {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(error) if error.status() == everturn_core::Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Aborts a background run.
    pub(crate) async fn abort(&self, id: &SnapshotId, context: &Context) -> Result<()> {
        let action = self
            .companion::<AbortAction>(&ActionType::AGENT_ABORT)
            .ok_or_else(|| Error::not_found("the agent has no background runs"))?;
        let request = AbortRequest {
            snapshot_id: id.clone(),
        };
        action.call(request, context.clone(), Emitter::silent()).await?;
        Ok(())
    }

    /// Deletes a snapshot, or a session with all its snapshots; returns how many snapshots are gone.
    pub(crate) async fn delete(&self, request: DeleteRequest, context: &Context) -> Result<u64> {
        let action = self
            .companion::<Action<DeleteRequest, Deleted>>(&ActionType::AGENT_DELETE)
            .ok_or_else(|| Error::not_found("the agent keeps nothing"))?;
        let deleted = action.call(request, context.clone(), Emitter::silent()).await?;
        Ok(deleted.snapshots)
    }

    /// Returns the action that shows background runs.
    pub(crate) fn watch(&self) -> Option<Arc<WatchAction>> {
        self.companion(&ActionType::AGENT_WATCH)
    }
}

fn respond_only(run: &AgentAction) -> Vec<String> {
    let own = run.descriptor().metadata.get("everturn");
    let names = own.and_then(|own| own.get("respondOnly")?.as_array());
    let name = |name: &Value| name.as_str().map(str::to_owned);
    names.into_iter().flatten().filter_map(name).collect()
}
