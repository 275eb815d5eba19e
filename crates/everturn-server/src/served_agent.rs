//! Agents as doors see them: their actions in the registry.

use std::sync::Arc;

use everturn_agent::archive::ListSnapshotsRequest;
use everturn_agent::{
    AbortAction, AbortRequest, AgentAction, GetSnapshotRequest, HandOff, SessionId, Snapshot, SnapshotAction,
    SnapshotId, SnapshotsAction, WatchAction,
};
use everturn_core::{ActionType, Context, DynAction, Emitter, Error, Registry, Result, Status, downcast};
use serde_json::Value;

use crate::ServerHandle;

/// An agent behind a [door](crate::Door), as its actions in the registry.
///
/// Everything is read and run in the context of a call, so a caller sees only its own sessions.
#[derive(Clone)]
pub struct ServedAgent {
    name: String,
    run: Arc<AgentAction>,
    registry: Registry,
}

impl std::fmt::Debug for ServedAgent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ServedAgent")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ServedAgent {
    /// Returns the names of all agents, sorted.
    pub fn names(registry: &Registry) -> Vec<String> {
        registry.of_type(&ActionType::AGENT).into_keys().collect()
    }

    /// Returns the agent of that name.
    pub fn find(registry: &Registry, name: &str) -> Option<Self> {
        let action = registry.get(&ActionType::AGENT.key(name))?;
        Some(Self {
            name: name.to_owned(),
            run: downcast(action)?,
            registry: registry.clone(),
        })
    }

    /// Returns the agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the action that runs the agent.
    pub fn action(&self) -> &AgentAction {
        &self.run
    }

    /// Returns the agent's description, if it has one.
    pub fn description(&self) -> Option<&str> {
        self.run.descriptor().metadata.get("description")?.as_str()
    }

    /// Returns whether the agent keeps its sessions in a store.
    pub fn has_store(&self) -> bool {
        self.companion::<SnapshotAction>(&ActionType::AGENT_SNAPSHOT)
            .is_some()
    }

    /// Returns whether the agent takes the tools and instructions of clients.
    pub fn takes_additions(&self) -> bool {
        self.own("clientTools") == Some(&Value::Bool(true))
    }

    /// Returns the schema of the answers to one of the agent's tools that only a response answers; `None` for every other
    /// tool.
    pub fn answer_schema(&self, tool: &str) -> Option<&Value> {
        self.own("answerSchemas")?.get(tool)
    }

    fn own(&self, entry: &str) -> Option<&Value> {
        self.run.descriptor().metadata.get("everturn")?.get(entry)
    }

    fn companion<A: DynAction>(&self, action_type: &ActionType) -> Option<Arc<A>> {
        downcast(self.registry.get(&action_type.key(&self.name))?)
    }

    /// Returns the names of the other agents.
    pub fn others(&self) -> Vec<String> {
        let mut names = Self::names(&self.registry);
        names.retain(|name| *name != self.name);
        names
    }

    /// Reads a snapshot; `None` if this caller has no such snapshot.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn snapshot(&self, id: &SnapshotId, context: &Context) -> Result<Option<Snapshot>> {
        let request = GetSnapshotRequest {
            snapshot_id: Some(id.clone()),
            session_id: None,
        };
        self.read(request, context).await
    }

    /// Reads the tip of a session; `None` if this caller has no such session.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn tip(&self, session: &SessionId, context: &Context) -> Result<Option<Snapshot>> {
        let request = GetSnapshotRequest {
            snapshot_id: None,
            session_id: Some(session.clone()),
        };
        self.read(request, context).await
    }

    async fn read(&self, request: GetSnapshotRequest, context: &Context) -> Result<Option<Snapshot>> {
        let Some(action) = self.companion::<SnapshotAction>(&ActionType::AGENT_SNAPSHOT) else {
            return Ok(None);
        };
        match action.call(request, context.clone(), Emitter::silent()).await {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all snapshots of a session, with their states.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn snapshots(&self, session: &SessionId, context: &Context) -> Result<Vec<Snapshot>> {
        let Some(action) = self.companion::<SnapshotsAction>(&ActionType::AGENT_SNAPSHOTS) else {
            return Ok(Vec::new());
        };
        let mut snapshots = Vec::new();
        let mut after = None;
        loop {
            let request = ListSnapshotsRequest {
                orphaned: true,
                whole: true,
                after,
                ..ListSnapshotsRequest::of(session.clone())
            };
            let page = action.call(request, context.clone(), Emitter::silent()).await?;
            snapshots.extend(page.snapshots);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(snapshots),
            }
        }
    }

    /// Aborts a background run.
    ///
    /// # Errors
    /// `NOT_FOUND` if the agent has no such run; the store's own errors.
    pub async fn abort(&self, id: &SnapshotId, context: &Context) -> Result<()> {
        let action = self
            .companion::<AbortAction>(&ActionType::AGENT_ABORT)
            .ok_or_else(|| Error::not_found("the agent has no background runs"))?;
        let request = AbortRequest {
            snapshot_id: id.clone(),
        };
        action.call(request, context.clone(), Emitter::silent()).await?;
        Ok(())
    }

    /// Returns the action that shows background runs.
    pub fn watch(&self) -> Option<Arc<WatchAction>> {
        self.companion(&ActionType::AGENT_WATCH)
    }

    /// Returns a context in which turns of this agent are handed to the background when the server ends, where the agent
    /// has background runs.
    pub fn handed_off(&self, context: Context) -> Context {
        let can_detach = self.companion::<AbortAction>(&ActionType::AGENT_ABORT).is_some();
        match context.extension::<ServerHandle>() {
            Some(handle) if can_detach => {
                let hand_off = HandOff::when(handle.handing_off().child_token());
                context.with_extension(Arc::new(hand_off))
            }
            _ => context,
        }
    }
}
