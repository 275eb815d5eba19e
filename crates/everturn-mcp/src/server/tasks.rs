//! Tasks: background runs of agents, by the ids of their snapshots. Their state is in the agents' stores, so
//! a task outlives this process.

use everturn_agent::{AgentFinishReason, AgentInit, AgentInput, Snapshot, SnapshotStatus};
use everturn_ai::{Message, Part};
use everturn_core::{ActionType, Error, JsonCall, Result, Status};
use rmcp::model::{DetailedTask, ErrorCode, GetTaskResult, Task, TaskPayload, TaskStatus, UpdateTaskParams};
use serde_json::{Value, json};

use super::agents::{POLL_INTERVAL_MS, answers_to, questions, result};
use super::asking::{self, Answered};
use super::session::Request;

/// The maximum number of questions of a run.
const MOST_ANSWERS: usize = 100;

/// The current state of an agent's run.
struct Run {
    agent: String,
    snapshot: Snapshot,
}

/// Returns the state of a task.
pub(super) async fn get(request: &Request<'_>, id: &str) -> Result<GetTaskResult> {
    let run = find(request, id).await?;
    let created = run.snapshot.created_at.to_string();
    let run = followed(request, run).await?;
    let updated = run
        .snapshot
        .updated_at
        .unwrap_or(run.snapshot.created_at)
        .to_string();
    let task = Task::new(id, TaskStatus::Working, created, updated).with_poll_interval_ms(POLL_INTERVAL_MS);
    Ok(GetTaskResult::new(DetailedTask::new(
        task,
        payload(&run.snapshot)?,
    )))
}

fn payload(snapshot: &Snapshot) -> Result<TaskPayload> {
    Ok(match snapshot.status {
        SnapshotStatus::Pending | SnapshotStatus::Aborting => TaskPayload::Working,
        SnapshotStatus::Aborted => TaskPayload::Cancelled,
        SnapshotStatus::Completed if is_interrupted(snapshot) => TaskPayload::InputRequired {
            input_requests: asking::input_requests(&questions(&interrupts(snapshot)))?,
        },
        SnapshotStatus::Completed => {
            let text = last_message(snapshot).map(|message| message.text().into_owned());
            let (session, id) = (snapshot.session_id.as_ref(), Some(&snapshot.snapshot_id));
            let result = result(text.unwrap_or_default(), session, id, snapshot.finish_reason);
            let result = serde_json::to_value(result)?;
            TaskPayload::Completed {
                result: result.as_object().cloned().unwrap_or_default(),
            }
        }
        status => {
            let message = match (&snapshot.error, status) {
                (Some(error), _) => error.message.as_str(),
                (None, SnapshotStatus::Expired) => "the run's worker has gone silent",
                (None, _) => "the run failed",
            };
            let error = json!({ "code": ErrorCode::INTERNAL_ERROR, "message": message });
            TaskPayload::Failed {
                error: error.as_object().cloned().unwrap_or_default(),
            }
        }
    })
}

fn is_interrupted(snapshot: &Snapshot) -> bool {
    snapshot.finish_reason == Some(AgentFinishReason::Interrupted)
}

fn last_message(snapshot: &Snapshot) -> Option<Message> {
    let messages = &snapshot.state.as_ref()?.messages;
    messages.iter().last().cloned()
}

fn interrupts(snapshot: &Snapshot) -> Vec<Part> {
    let message = last_message(snapshot);
    message.map_or_else(Vec::new, |message| message.interrupts().cloned().collect())
}

/// Answers a run, which then continues.
pub(super) async fn update(request: &Request<'_>, params: UpdateTaskParams) -> Result<()> {
    let run = find(request, &params.task_id).await?;
    let run = followed(request, run).await?;
    if !is_interrupted(&run.snapshot) {
        let message = format!("the task '{}' does not wait for an answer", params.task_id);
        return Err(Error::failed_precondition(message).with_public());
    }
    let parts = interrupts(&run.snapshot);
    let answers = match asking::read(&questions(&parts), &params.input_responses)? {
        Answered::With { answers, .. } => answers,
        Answered::Declined(_) => {
            let message = "an agent's question that is declined ends its task: cancel it";
            return Err(Error::failed_precondition(message).with_public());
        }
    };
    let input = AgentInput::answers(answers_to(&parts, answers)).detached();
    let init = AgentInit::snapshot(run.snapshot.snapshot_id);
    let mut call = companion_call(request, serde_json::to_value(input)?);
    call.init = Some(serde_json::to_value(init)?);
    companion(request, &ActionType::AGENT, &run.agent, call).await?;
    Ok(())
}

/// Aborts a run.
pub(super) async fn cancel(request: &Request<'_>, id: &str) -> Result<()> {
    let run = find(request, id).await?;
    let run = followed(request, run).await?;
    if run.snapshot.status == SnapshotStatus::Pending {
        let call = companion_call(request, json!({ "snapshotId": run.snapshot.snapshot_id }));
        companion(request, &ActionType::AGENT_ABORT, &run.agent, call).await?;
    }
    Ok(())
}

/// Finds the run of that id among all agents. A run of another caller is reported as missing.
async fn find(request: &Request<'_>, id: &str) -> Result<Run> {
    let agents = request.exposed.registry.of_type(&ActionType::AGENT_SNAPSHOT);
    for agent in agents.keys() {
        let is_exposed = request.exposed.action(&ActionType::AGENT.key(agent)).await?;
        if is_exposed.is_none() {
            continue;
        }
        match read(request, agent, id).await {
            Ok(snapshot) => {
                let agent = agent.clone();
                return Ok(Run { agent, snapshot });
            }
            Err(error) if matches!(error.status(), Status::NotFound | Status::InvalidArgument) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::not_found(format!("there is no task '{id}'")).with_public())
}

async fn read(request: &Request<'_>, agent: &str, id: &str) -> Result<Snapshot> {
    let call = companion_call(request, json!({ "snapshotId": id }));
    let snapshot = companion(request, &ActionType::AGENT_SNAPSHOT, agent, call).await?;
    Ok(serde_json::from_value(snapshot)?)
}

/// Returns the run that continues a run with the answer to its question, if there is one.
async fn followed(request: &Request<'_>, mut run: Run) -> Result<Run> {
    for _ in 0..MOST_ANSWERS {
        if !is_interrupted(&run.snapshot) {
            break;
        }
        let Some(session) = &run.snapshot.session_id else {
            break;
        };
        let call = companion_call(request, json!({ "sessionId": session }));
        let list = companion(request, &ActionType::AGENT_SNAPSHOTS, &run.agent, call).await?;
        let own = json!(run.snapshot.snapshot_id);
        let snapshots = list.get("snapshots").and_then(Value::as_array);
        let next = snapshots.and_then(|rows| rows.iter().find(|row| row.get("parentId") == Some(&own)));
        let Some(next) = next.and_then(|row| row.get("snapshotId")?.as_str()) else {
            break;
        };
        run.snapshot = read(request, &run.agent, next).await?;
    }
    Ok(run)
}

fn companion_call(request: &Request<'_>, input: Value) -> JsonCall {
    JsonCall {
        context: request.context.clone(),
        ..JsonCall::new(input)
    }
}

async fn companion(request: &Request<'_>, kind: &ActionType, agent: &str, call: JsonCall) -> Result<Value> {
    let action = request.exposed.registry.resolve(&kind.key(agent)).await?;
    action.run_json(call).await
}
