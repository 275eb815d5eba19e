//! An agent as actions: the run and its companion actions.

use std::sync::Arc;

use everturn_core::{Action, ActionType, BidiAction, Context, HandlerResult, Payload, Schema};
use futures::TryFutureExt as _;
use serde_json::{Map, json};

use crate::archive::{GetSessionRequest, ListSnapshotsRequest, SessionView, SnapshotList};
use crate::invocation::answers::RestartInputs;
use crate::invocation::{Definition, Visibility, invoke};
use crate::policy::visibility::not_found;
use crate::{
    AbortRequest, AbortResponse, AgentInit, AgentInput, AgentMetadata, AgentOutput, AgentStreamChunk,
    GetSnapshotRequest, Heartbeat, Snapshot, SnapshotIds, StateManagement,
};

/// The action behind an agent: opened once, fed with inputs, streaming chunks, ended by one output.
pub type AgentAction = BidiAction<AgentInit, AgentInput, AgentOutput, AgentStreamChunk>;

/// The action that reads an agent's snapshots.
pub type SnapshotAction = Action<GetSnapshotRequest, Snapshot>;

/// The action that lists the snapshots of one of an agent's sessions.
pub type SnapshotsAction = Action<ListSnapshotsRequest, SnapshotList>;

/// The action that reads one of an agent's sessions as it is now.
pub type SessionAction = Action<GetSessionRequest, SessionView>;

/// The action that aborts an agent's background runs.
pub type AbortAction = Action<AbortRequest, AbortResponse>;

pub(super) fn metadata(definition: &Definition) -> AgentMetadata {
    let json = |schema: &Schema| schema.as_json().clone();
    AgentMetadata {
        state_management: match definition.store {
            Some(_) => StateManagement::Server,
            None => StateManagement::Client,
        },
        abortable: definition.store.as_ref().is_some_and(|store| store.can_watch()),
        state_schema: definition.custom_schema.as_ref().map(json),
        status_schema: definition.status_schema.as_ref().map(json),
        output_schema: definition.output_schema.as_ref().map(json),
    }
}

pub(super) fn run_action(definition: &Arc<Definition>) -> AgentAction {
    let mut entries = Map::new();
    let metadata = serde_json::to_value(metadata(definition)).expect("agent metadata is plain data");
    entries.insert("agent".into(), metadata);
    entries.insert(
        "everturn".into(),
        json!({
            "concurrency": definition.concurrency.name(),
            "editedInputs": definition.restart_inputs == RestartInputs::Edited,
            "clientPermissions": definition.client_rules.names(),
            "public": definition.visibility == Visibility::Public,
            "prompted": definition.prompt.is_some(),
            "contentAddressed": definition.snapshot_ids == SnapshotIds::ContentAddressed,
            // Interrupts of these tools are answered by a response; all others can also be restarted.
            "respondOnly": definition.respond_only.keys().collect::<Vec<_>>(),
            "answerSchemas": definition.respond_only,
            // No worker takes over a background run whose worker was silent for this long.
            "lostAfterMillis": lost_after(definition.heartbeat),
        }),
    );
    if definition.visibility == Visibility::Internal {
        entries["everturn"]["internal"] = true.into();
    }
    if let Some(description) = &definition.description {
        entries.insert("description".into(), description.clone().into());
    }
    let this = Arc::clone(definition);
    let action = AgentAction::new(
        ActionType::AGENT,
        &definition.name,
        move |init, inputs, emitter, context| {
            invoke(Arc::clone(&this), init, inputs, emitter, context).err_into()
        },
    )
    .with_metadata(entries)
    .with_output_schema(Schema::lenient::<AgentOutput>());
    match &definition.description {
        Some(description) => action.with_description(description),
        None => action,
    }
}

/// Creates a companion action; `{}` in its description stands for the name of the agent.
pub(super) fn companion<I: Payload, O: Payload, Fut>(
    definition: &Arc<Definition>,
    action_type: ActionType,
    description: &str,
    answer: impl Fn(Arc<Definition>, I, Context) -> Fut + Send + Sync + 'static,
) -> Action<I, O>
where
    Fut: Future<Output = HandlerResult<O>> + Send + 'static,
{
    let this = Arc::clone(definition);
    Action::new(action_type, &definition.name, move |request, context| {
        answer(Arc::clone(&this), request, context)
    })
    .with_description(description.replace("{}", &definition.name))
}

/// Creates the companion action that reads snapshots.
pub(super) fn snapshot_action(definition: &Arc<Definition>) -> SnapshotAction {
    companion(
        definition,
        ActionType::AGENT_SNAPSHOT,
        "Reads a snapshot of agent '{}'.",
        |this, request, context| async move { Ok(this.read_snapshot(request, &context).await?) },
    )
    .with_output_schema(Schema::lenient::<Snapshot>())
}

/// Creates the companion action that lists a session's snapshots.
pub(super) fn snapshots_action(definition: &Arc<Definition>) -> SnapshotsAction {
    companion(
        definition,
        ActionType::AGENT_SNAPSHOTS,
        "Lists the snapshots of a session of agent '{}'.",
        |this, request: ListSnapshotsRequest, context| async move {
            let query = request.query()?;
            Ok(this.archive(&context)?.bounded_page(&query).await?.into())
        },
    )
    .with_output_schema(Schema::lenient::<SnapshotList>())
}

/// Creates the companion action that reads a session.
pub(super) fn session_action(definition: &Arc<Definition>) -> SessionAction {
    companion(
        definition,
        ActionType::AGENT_SESSION,
        "Reads a session of agent '{}' as it is now.",
        |this, request: GetSessionRequest, context| async move {
            let latest = this.archive(&context)?.latest(request.session_id.clone()).await?;
            Ok(SessionView {
                session_id: request.session_id,
                latest,
            })
        },
    )
    .with_output_schema(Schema::lenient::<SessionView>())
}

/// Creates the companion action that aborts background runs.
pub(super) fn abort_action(definition: &Arc<Definition>) -> AbortAction {
    companion(
        definition,
        ActionType::AGENT_ABORT,
        "Aborts a background run of agent '{}'.",
        |this, AbortRequest { snapshot_id }, context| async move {
            let abort = this.abort_run(&snapshot_id, &context).await?;
            let abort = abort.ok_or_else(|| not_found(&snapshot_id))?;
            Ok(AbortResponse {
                snapshot_id,
                status: Some(abort.status),
            })
        },
    )
}

/// Returns the time, in milliseconds, after which no worker takes over a run whose worker is silent: one
/// heartbeat after it expired.
fn lost_after(heartbeat: Heartbeat) -> u64 {
    let time = heartbeat.expiry.saturating_add(heartbeat.interval);
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
