//! Agents for protocol adapters: their actions in the registry.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::archive::{DeleteRequest, Deleted, ListSnapshotsRequest};
use everturn_agent::{
    AbortAction, AbortRequest, AgentAction, GetSnapshotRequest, HandOff, SessionId, Snapshot, SnapshotAction,
    SnapshotEvent, SnapshotId, SnapshotsAction, WatchAction,
};
use everturn_core::{
    Action, ActionType, Context, DynAction, Emitter, Error, Registry, Result, Status, downcast,
};
use serde_json::Value;

use super::ids::turn_name;
use crate::{ServedAgents, ServerHandle};

/// The maximum number of turns that are looked up in vain for one request.
const MOST_LOOKED_UP: usize = 64;

/// An agent that a [protocol adapter](crate::ProtocolAdapter) serves, as its actions in the registry.
///
/// All reads and runs use the context of a call, so a caller sees only its own sessions.
#[derive(Clone)]
pub struct ServedAgent {
    name: String,
    run: Arc<AgentAction>,
    registry: Registry,
}

everturn_core::opaque_debug!(ServedAgent, name);

impl ServedAgent {
    /// Returns the agents that the caller whose call has this context may use, sorted by name.
    pub async fn all(registry: &Registry, context: &Context) -> Vec<Self> {
        let mut agents = Vec::new();
        if let Some(served) = context.extension::<ServedAgents>() {
            for name in served.names() {
                agents.extend(Self::admitted(registry, name, context).await);
            }
        }
        agents
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

    /// Returns the agent of that name if the caller whose call has this context may use it.
    pub async fn admitted(registry: &Registry, name: &str, context: &Context) -> Option<Self> {
        let agent = Self::find(registry, name)?;
        let served = context.extension::<ServedAgents>()?;
        served.admit(name).await.then_some(agent)
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

    /// Returns whether the agent is built around a prompt. Its turns send a chunk when they have accepted
    /// their input.
    pub fn is_prompted(&self) -> bool {
        self.own("prompted") == Some(&Value::Bool(true))
    }

    /// Returns whether the agent accepts instructions from clients.
    pub fn accepts_instructions(&self) -> bool {
        self.permits("instructions")
    }

    /// Returns whether the agent accepts tools from clients.
    pub fn accepts_tools(&self) -> bool {
        self.permits("tools")
    }

    /// Returns whether clients may replace the custom state at the start of a turn.
    pub fn accepts_custom(&self) -> bool {
        self.permits("custom")
    }

    /// Returns whether clients may choose the schema of an answer.
    pub fn accepts_output_schema(&self) -> bool {
        self.permits("outputSchema")
    }

    /// Returns whether the agent's [permissions](everturn_agent::ClientPermissions) have an entry.
    fn permits(&self, entry: &str) -> bool {
        let entries = self.own("clientPermissions").and_then(Value::as_array);
        entries.is_some_and(|entries| entries.iter().any(|allowed| allowed == entry))
    }

    /// Returns whether the agent has background runs.
    pub fn can_detach(&self) -> bool {
        self.companion::<AbortAction>(&ActionType::AGENT_ABORT).is_some()
    }

    /// Returns whether turns get random names. Content-addressed snapshots have no id before they are
    /// written.
    pub(crate) fn names_turns_itself(&self) -> bool {
        self.own("contentAddressed") == Some(&Value::Bool(true))
    }

    /// Returns the time without a heartbeat after which a background run is lost.
    pub fn lost_after(&self) -> Option<Duration> {
        self.own("lostAfterMillis")?.as_u64().map(Duration::from_millis)
    }

    /// Returns the names of the agent's tools that always interrupt and only accept a response.
    pub fn respond_only(&self) -> Vec<String> {
        let names = self.own("respondOnly").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    }

    /// Returns the schema of the answers to a tool that only accepts a response; `None` for every other tool.
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
        let names = self.registry.of_type(&ActionType::AGENT).into_keys();
        names.filter(|name| *name != self.name).collect()
    }

    /// Reads a snapshot; `None` if this caller has no such snapshot.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn snapshot(&self, id: &SnapshotId, context: &Context) -> Result<Option<Snapshot>> {
        let request = GetSnapshotRequest::snapshot(id.clone());
        self.read(request, context).await
    }

    /// Reads the tip of a session; `None` if this caller has no such session.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn tip(&self, session: &SessionId, context: &Context) -> Result<Option<Snapshot>> {
        let request = GetSnapshotRequest::head(session.clone());
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

    /// Reads all snapshots of a session with their states, one page at a time, and maps each with `take`.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn snapshots<T>(
        &self,
        session: &SessionId,
        context: &Context,
        take: impl Fn(Snapshot) -> T + Send,
    ) -> Result<Vec<T>>
    where
        T: Send,
    {
        let request = ListSnapshotsRequest {
            whole: true,
            ..ListSnapshotsRequest::of(session.clone())
        };
        self.list(request, context, take).await
    }

    /// Reads all snapshots of a session without their states, the newest first.
    pub(crate) async fn summaries(&self, session: &SessionId, context: &Context) -> Result<Vec<Snapshot>> {
        let request = ListSnapshotsRequest::of(session.clone());
        self.list(request, context, |snapshot| snapshot).await
    }

    async fn list<T: Send>(
        &self,
        mut request: ListSnapshotsRequest,
        context: &Context,
        take: impl Fn(Snapshot) -> T + Send,
    ) -> Result<Vec<T>> {
        let Some(action) = self.companion::<SnapshotsAction>(&ActionType::AGENT_SNAPSHOTS) else {
            return Ok(Vec::new());
        };
        request.orphaned = true;
        let mut snapshots = Vec::new();
        loop {
            let page = action
                .call(request.clone(), context.clone(), Emitter::silent())
                .await?;
            snapshots.extend(page.snapshots.into_iter().map(&take));
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(snapshots),
            }
        }
    }

    /// Returns the newest snapshot, searching backwards from `from`, that ends a turn and has at most
    /// `length` messages; `None` if the conversation begins after them.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if a snapshot on the way was deleted; the store's own errors.
    pub async fn ending_at(
        &self,
        from: &Snapshot,
        length: usize,
        context: &Context,
    ) -> Result<Option<Snapshot>> {
        let mut candidate = from.clone();
        loop {
            let messages = candidate.state.as_ref().map_or(0, |state| state.messages.len());
            if messages <= length && candidate.event != Some(SnapshotEvent::RoundEnd) {
                return Ok(Some(candidate));
            }
            let Some(parent) = &candidate.parent_id else {
                return Ok(None);
            };
            let found = self.snapshot(parent, context).await?;
            let found = found.filter(|found| found.session_id == candidate.session_id);
            candidate = found.ok_or_else(|| {
                // A new conversation instead would repeat old messages.
                Error::failed_precondition(format!(
                    "the conversation cannot continue there: its snapshot '{parent}' was deleted"
                ))
                .with_public()
            })?;
        }
    }

    /// Finds the last turn of this caller in a client's conversation, and its index. `names` holds the names
    /// of turns in the conversation, the last one first, each with its index; `tip` is a turn that was read
    /// already. `contains` returns whether a turn contains the message with that index.
    ///
    /// # Errors
    /// The store's own errors.
    pub async fn last_turn<'a>(
        &self,
        names: impl Iterator<Item = (usize, &'a str)> + Send,
        tip: Option<&Snapshot>,
        contains: impl Fn(usize, &Snapshot) -> bool + Send,
        context: &Context,
    ) -> Result<Option<(usize, Snapshot)>> {
        let mut missing = HashSet::new();
        for (index, name) in names {
            if let Some(tip) = tip.filter(|tip| turn_name(tip) == name) {
                return Ok(Some((index, tip.clone())));
            }
            if missing.contains(name) {
                continue;
            }
            if missing.len() == MOST_LOOKED_UP {
                break;
            }
            match self.turn(name, context).await? {
                Some(found) if contains(index, &found) => return Ok(Some((index, found))),
                _ => missing.insert(name),
            };
        }
        Ok(None)
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

    /// Deletes a snapshot, or a session with all its snapshots. Returns the number of deleted snapshots.
    ///
    /// # Errors
    /// `NOT_FOUND` if the agent has no store; the store's own errors.
    pub async fn delete(&self, request: DeleteRequest, context: &Context) -> Result<u64> {
        let action = self
            .companion::<Action<DeleteRequest, Deleted>>(&ActionType::AGENT_DELETE)
            .ok_or_else(|| Error::not_found("the agent keeps nothing"))?;
        let deleted = action.call(request, context.clone(), Emitter::silent()).await?;
        Ok(deleted.snapshots)
    }

    /// Returns the action that shows background runs.
    pub fn watch(&self) -> Option<Arc<WatchAction>> {
        self.companion(&ActionType::AGENT_WATCH)
    }

    /// Returns a context in which turns of this agent are handed to the background when the server shuts
    /// down, if the agent has background runs.
    pub fn handed_off(&self, context: Context) -> Context {
        match context.extension::<ServerHandle>() {
            Some(handle) if self.can_detach() => {
                let hand_off = HandOff::when(handle.handing_off().child_token());
                context.with_extension(Arc::new(hand_off))
            }
            _ => context,
        }
    }
}
