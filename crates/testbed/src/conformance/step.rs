//! Performing one step.

use std::time::Duration;

use everturn_agent::{AgentTransport, GetSnapshotRequest, SessionId, Snapshot, SnapshotId};
use everturn_core::{Context, Error};
use everturn_testkit::contains_each;
use futures::StreamExt;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::captures::Captures;
use super::exchange::exchange;
use super::expectation::{ExpectedError, ExpectedOutput, ExpectedSnapshot};

/// The polling interval for a run whose status is not pushed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Step {
    Send(Box<Send>),
    GetSnapshotData(Read),
    Abort(Abort),
    WaitUntilCompleted(Wait),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Send {
    #[serde(default = "empty")]
    init: Value,
    #[serde(default)]
    inputs: Vec<Value>,
    /// Both belong to the model: see [`replies`](everturn_testkit::conformance::replies).
    #[serde(default, rename = "modelResponses")]
    _model_responses: Option<IgnoredAny>,
    #[serde(default, rename = "streamChunks")]
    _stream_chunks: Option<IgnoredAny>,
    expect_chunks: Option<Vec<Value>>,
    #[serde(default)]
    expect_output: ExpectedOutput,
    expect_error: Option<ExpectedError>,
    capture_snapshot_id: Option<String>,
    capture_state: Option<String>,
    capture_session_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Read {
    snapshot_id: Option<SnapshotId>,
    session_id: Option<SessionId>,
    #[serde(default)]
    expect_snapshot: ExpectedSnapshot,
    expect_error: Option<ExpectedError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Abort {
    snapshot_id: SnapshotId,
    /// Null expects that no such run exists.
    #[serde(default, deserialize_with = "given")]
    expect_previous_status: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wait {
    snapshot_id: SnapshotId,
    #[serde(default = "five_seconds")]
    timeout_ms: u64,
    #[serde(default)]
    expect_snapshot: ExpectedSnapshot,
}

fn empty() -> Value {
    json!({})
}

fn five_seconds() -> u64 {
    5000
}

/// Reads a member that is present, even if it is null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(super) async fn perform(
    step: Value,
    agent: &dyn AgentTransport,
    program: &(dyn Fn(&Value) -> Result<(), Error> + Sync),
    captures: &mut Captures,
) -> Result<(), String> {
    match Step::deserialize(&step).map_err(|error| format!("this is not a step: {error}"))? {
        Step::Send(send) => {
            program(&step).map_err(|error| error.to_string())?;
            send.perform(agent, captures).await
        }
        Step::GetSnapshotData(read) => read.perform(agent).await,
        Step::Abort(abort) => abort.perform(agent).await,
        Step::WaitUntilCompleted(wait) => wait.perform(agent).await,
    }
}

impl Send {
    async fn perform(
        self: Box<Self>,
        agent: &dyn AgentTransport,
        captures: &mut Captures,
    ) -> Result<(), String> {
        let (chunks, outcome) = exchange(agent, &self.init, &self.inputs).await;
        let chunks = chunks.iter().map(wire).collect::<Result<Vec<_>, _>>()?;
        if let Some(expected) = &self.expect_chunks {
            contains_each(&chunks, expected)
                .map_err(|difference| format!("chunks: {difference}\nthe chunks were {:#}", json!(chunks)))?;
        }
        let Some(output) = accepted(outcome, self.expect_error.as_ref())? else {
            return Ok(());
        };
        let output = wire(&output)?;
        self.expect_output.check(&output)?;
        captures.capture(
            self.capture_snapshot_id.as_ref(),
            "snapshotId",
            output.get("snapshotId"),
        )?;
        captures.capture(self.capture_state.as_ref(), "state", output.get("state"))?;
        captures.capture(
            self.capture_session_id.as_ref(),
            "sessionId",
            output.get("sessionId"),
        )
    }
}

impl Read {
    async fn perform(self, agent: &dyn AgentTransport) -> Result<(), String> {
        let request = GetSnapshotRequest {
            snapshot_id: self.snapshot_id,
            session_id: self.session_id,
            ..GetSnapshotRequest::default()
        };
        let row = agent.snapshot(request, Context::new()).await;
        match accepted(row, self.expect_error.as_ref())? {
            Some(row) => self.expect_snapshot.check(&wire(&row)?),
            None => Ok(()),
        }
    }
}

impl Abort {
    async fn perform(self, agent: &dyn AgentTransport) -> Result<(), String> {
        let abort = agent
            .abort(self.snapshot_id, Context::new())
            .await
            .map_err(|error| error.to_string())?;
        let previous = json!(abort.map(|abort| abort.previous));
        match self.expect_previous_status {
            Some(expected) if expected != previous => Err(format!(
                "the previous status should be {expected} and is {previous}"
            )),
            _ => Ok(()),
        }
    }
}

impl Wait {
    async fn perform(self, agent: &dyn AgentTransport) -> Result<(), String> {
        let limit = Duration::from_millis(self.timeout_ms);
        let row = tokio::time::timeout(limit, settled(agent, &self.snapshot_id)).await;
        let row = row.map_err(|_| format!("the run is still pending after {} ms", self.timeout_ms))?;
        self.expect_snapshot
            .check(&wire(&row.map_err(|error| error.to_string())?)?)
    }
}

/// Compares a failure with the expectation; returns `None` if the failure was expected.
fn accepted<T>(outcome: Result<T, Error>, expected: Option<&ExpectedError>) -> Result<Option<T>, String> {
    match (outcome, expected) {
        (Ok(value), None) => Ok(Some(value)),
        (Ok(_), Some(_)) => Err("an error was expected, and there was none".to_owned()),
        (Err(error), Some(expected)) => expected.check(&error).map(|()| None),
        (Err(error), None) => Err(format!("it failed with {:?}: {error}", error.status())),
    }
}

/// Waits for the end of a background run and returns its snapshot.
async fn settled(agent: &dyn AgentTransport, id: &SnapshotId) -> Result<Snapshot, Error> {
    let mut statuses = agent.watch(id, &Context::new());
    loop {
        let request = GetSnapshotRequest::snapshot(id.clone());
        let row = agent.snapshot(request, Context::new()).await?;
        if !row.status.is_under_way() {
            return Ok(row);
        }
        let is_pushed = match &mut statuses {
            Some(statuses) => statuses.next().await.is_some(),
            None => false,
        };
        if !is_pushed {
            statuses = None;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn wire(value: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
