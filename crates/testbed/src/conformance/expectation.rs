//! The expectations of a step, and checking them.

use everturn_agent::{AgentFinishReason, SnapshotStatus};
use everturn_core::{Error, Status};
use everturn_testkit::contains;
use serde::Deserialize;
use serde_json::Value;

/// The expectation of an output.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ExpectedOutput {
    message: Option<Value>,
    has_snapshot_id: Option<bool>,
    has_session_id: Option<bool>,
    state_contains: Option<Value>,
    artifacts_contain: Vec<Value>,
    finish_reason: Option<AgentFinishReason>,
    error_contains: Option<ExpectedError>,
}

/// The expectation of a snapshot.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct ExpectedSnapshot {
    parent_id: Option<String>,
    status: Option<SnapshotStatus>,
    finish_reason: Option<AgentFinishReason>,
    has_session_id: Option<bool>,
    state_contains: Option<Value>,
    error_contains: Option<ExpectedError>,
}

/// The expectation of an error: its exact status, and words in its message.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ExpectedError {
    status: Option<Status>,
    message: Option<String>,
}

impl ExpectedOutput {
    pub(super) fn check(&self, output: &Value) -> Result<(), String> {
        self.check_whole(output)
            .map_err(|problem| format!("{problem}\nthe output was {output:#}"))
    }

    fn check_whole(&self, output: &Value) -> Result<(), String> {
        equal("finishReason", output.get("finishReason"), self.finish_reason)?;
        part(
            "error",
            output,
            self.error_contains.as_ref(),
            ExpectedError::check_wire,
        )?;
        presence("snapshotId", output.get("snapshotId"), self.has_snapshot_id)?;
        presence("sessionId", output.get("sessionId"), self.has_session_id)?;
        part("message", output, self.message.as_ref(), contained)?;
        part("state", output, self.state_contains.as_ref(), contained)?;
        self.artifacts_contain
            .iter()
            .try_for_each(|expected| artifact(output, expected))
    }
}

impl ExpectedSnapshot {
    pub(super) fn check(&self, snapshot: &Value) -> Result<(), String> {
        self.check_whole(snapshot)
            .map_err(|problem| format!("{problem}\nthe snapshot was {snapshot:#}"))
    }

    fn check_whole(&self, snapshot: &Value) -> Result<(), String> {
        equal("status", snapshot.get("status"), self.status)?;
        equal("finishReason", snapshot.get("finishReason"), self.finish_reason)?;
        equal("parentId", snapshot.get("parentId"), self.parent_id.as_ref())?;
        part(
            "error",
            snapshot,
            self.error_contains.as_ref(),
            ExpectedError::check_wire,
        )?;
        presence("sessionId", snapshot.get("sessionId"), self.has_session_id)?;
        presence(
            "state.sessionId",
            snapshot.pointer("/state/sessionId"),
            self.has_session_id,
        )?;
        part("state", snapshot, self.state_contains.as_ref(), contained)
    }
}

impl ExpectedError {
    /// Checks an error as returned in the process.
    pub(super) fn check(&self, error: &Error) -> Result<(), String> {
        self.check_parts(Some(error.status()), error.message())
    }

    /// Checks an error in its wire form.
    fn check_wire(actual: &Value, expected: &Self) -> Result<(), String> {
        let status = actual
            .get("status")
            .and_then(|status| Status::deserialize(status).ok());
        expected.check_parts(
            status,
            actual.get("message").and_then(Value::as_str).unwrap_or_default(),
        )
    }

    fn check_parts(&self, status: Option<Status>, message: &str) -> Result<(), String> {
        if self.status.is_some() && self.status != status {
            return Err(format!(
                "the status should be {:?} and is {status:?} ({message})",
                self.status
            ));
        }
        match &self.message {
            Some(words) if !message.contains(words) => {
                Err(format!("the message should contain '{words}' and is '{message}'"))
            }
            _ => Ok(()),
        }
    }
}

fn contained(actual: &Value, expected: &Value) -> Result<(), String> {
    contains(actual, expected).map_err(|difference| difference.to_string())
}

/// Checks a member against its expectation, if there is one.
fn part<T>(
    name: &str,
    whole: &Value,
    expected: Option<&T>,
    check: impl FnOnce(&Value, &T) -> Result<(), String>,
) -> Result<(), String> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let actual = whole.get(name).ok_or_else(|| format!("there is no {name}"))?;
    check(actual, expected).map_err(|problem| format!("{name}: {problem}"))
}

fn presence(name: &str, actual: Option<&Value>, expected: Option<bool>) -> Result<(), String> {
    let is_there = actual.and_then(Value::as_str).is_some_and(|id| !id.is_empty());
    match expected {
        Some(true) if !is_there => Err(format!("there should be a {name}")),
        Some(false) if is_there => Err(format!("there should be no {name}")),
        _ => Ok(()),
    }
}

fn equal(name: &str, actual: Option<&Value>, expected: Option<impl serde::Serialize>) -> Result<(), String> {
    let Some(expected) = expected else {
        return Ok(());
    };
    let expected = serde_json::to_value(expected).map_err(|error| error.to_string())?;
    if actual == Some(&expected) {
        return Ok(());
    }
    let actual = actual.map_or_else(|| "absent".to_owned(), Value::to_string);
    Err(format!("{name} should be {expected} and is {actual}"))
}

/// Checks the artifact of the expected name.
fn artifact(output: &Value, expected: &Value) -> Result<(), String> {
    let artifacts = output.get("artifacts").and_then(Value::as_array);
    let named = artifacts
        .into_iter()
        .flatten()
        .find(|artifact| artifact.get("name") == expected.get("name"));
    let actual = named.ok_or_else(|| format!("there is no artifact {}", expected["name"]))?;
    contained(actual, expected).map_err(|problem| format!("artifact {}: {problem}", expected["name"]))
}
