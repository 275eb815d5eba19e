//! What travels between an agent and its clients.
//!
//! What a client sends is strict: an unknown field is an error, so that a misspelt one is not silently dropped.

use everturn_ai::{Answers, Message, ModelResponseChunk};
use everturn_core::{Error, Result, RuntimeError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::patch::JsonPatch;
use crate::{
    AgentFinishReason, Artifact, SessionId, SessionState, SnapshotEvent, SnapshotId, SnapshotStatus,
};

/// What an invocation starts from; all fields absent is a fresh conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentInit {
    /// Resume the latest point of this conversation, or begin it under this id. Server-managed agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Resume exactly here. Server-managed agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// Resume from what the client kept. Client-managed agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SessionState>,
    /// What the agent's prompt is rendered with, set when a conversation begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_input: Option<Value>,
}

impl AgentInit {
    /// Resumes the latest point of a conversation, or begins it under this id.
    pub fn session(session: impl Into<SessionId>) -> Self {
        Self {
            session_id: Some(session.into()),
            ..Self::default()
        }
    }

    /// Resumes exactly here.
    pub fn snapshot(snapshot: impl Into<SnapshotId>) -> Self {
        Self {
            snapshot_id: Some(snapshot.into()),
            ..Self::default()
        }
    }

    /// Resumes from what the client kept.
    pub fn state(state: SessionState) -> Self {
        Self {
            state: Some(state),
            ..Self::default()
        }
    }

    /// The same start, with what the agent's prompt is rendered with.
    pub fn with_prompt_input(self, input: impl Into<Value>) -> Self {
        Self {
            prompt_input: Some(input.into()),
            ..self
        }
    }

    /// Refuses what cannot be the start of anything, before an agent is asked.
    pub(crate) fn check(&self) -> Result<()> {
        let empty = |what: &str| {
            Err(Error::invalid_argument(format!(
                "an empty {what} id names nothing"
            )))
        };
        if self.session_id.as_ref().is_some_and(|id| id.as_str().is_empty()) {
            return empty("session");
        }
        if self.snapshot_id.as_ref().is_some_and(|id| id.as_str().is_empty()) {
            return empty("snapshot");
        }
        self.check_sources()
    }

    /// # Errors
    /// `INVALID_ARGUMENT` if both a state and an id are given.
    pub(crate) fn check_sources(&self) -> Result<()> {
        if self.state.is_some() && (self.session_id.is_some() || self.snapshot_id.is_some()) {
            return Err(Error::invalid_argument(
                "'state' is given with 'sessionId' or 'snapshotId': a conversation starts from one or the other",
            ));
        }
        Ok(())
    }
}

/// One turn's input.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentInput {
    /// What the user says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// Answers to interrupted tool requests; `resume` on the wire.
    #[serde(default, rename = "resume", skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// Leave after this input and let the work go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detach: Option<bool>,
}

impl AgentInput {
    /// An input with a message.
    pub fn message(message: impl Into<Message>) -> Self {
        Self {
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// An input that answers interrupts.
    pub fn answers(answers: impl Into<Answers>) -> Self {
        Self {
            answers: Some(answers.into()),
            ..Self::default()
        }
    }

    /// The same input, after which the client leaves.
    pub fn detached(mut self) -> Self {
        self.detach = Some(true);
        self
    }

    /// Whether there is anything to run a turn on.
    pub fn has_payload(&self) -> bool {
        let answers = |answers: &Answers| !answers.is_empty();
        self.message.is_some() || self.answers.as_ref().is_some_and(answers)
    }

    /// Whether the client leaves after this input.
    pub fn is_detach(&self) -> bool {
        self.detach == Some(true)
    }
}

impl From<&str> for AgentInput {
    fn from(text: &str) -> Self {
        Self::message(text)
    }
}

impl From<String> for AgentInput {
    fn from(text: String) -> Self {
        Self::message(text)
    }
}

impl From<Message> for AgentInput {
    fn from(message: Message) -> Self {
        Self::message(message)
    }
}

impl From<Answers> for AgentInput {
    fn from(answers: Answers) -> Self {
        Self::answers(answers)
    }
}

/// What an agent's function returns.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentResult {
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// What was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// How the invocation ended, if the last turn's reason is not it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<AgentFinishReason>,
}

/// How an invocation ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOutput {
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Where to resume: the last committed point, or the pending snapshot of a detached run. Server-managed agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// Every snapshot the invocation took, in order. Only of agents with a
    /// [policy](crate::AgentBuilder::snapshots) other than the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ids: Option<Vec<SnapshotId>>,
    /// Where to resume, for the client to keep. Client-managed agents only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SessionState>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    /// What was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<Artifact>>,
    /// How it ended, if anybody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<AgentFinishReason>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RuntimeError>,
}

/// One piece of an agent's stream.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStreamChunk {
    /// What the model says, piece by piece.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_chunk: Option<ModelResponseChunk>,
    /// How the custom state changed; pointers are rooted at the custom document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_patch: Option<JsonPatch>,
    /// An artifact that was added or replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
    /// What the agent is doing, in the agent's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// A snapshot was taken. Only of agents with a [policy](crate::AgentBuilder::snapshots) other than the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_created: Option<SnapshotCreated>,
    /// The turn is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_end: Option<TurnEnd>,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotCreated {
    /// Its id; readable the moment this arrives.
    pub snapshot_id: SnapshotId,
    /// What it was taken at.
    pub event: SnapshotEvent,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnEnd {
    /// The snapshot that holds the turn; readable the moment this arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// How the turn ended, if anybody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<AgentFinishReason>,
}

impl AgentStreamChunk {
    /// A chunk of the model's.
    pub fn model(chunk: ModelResponseChunk) -> Self {
        Self {
            model_chunk: Some(chunk),
            ..Self::default()
        }
    }

    /// A change of the custom state.
    pub fn patch(patch: JsonPatch) -> Self {
        Self {
            custom_patch: Some(patch),
            ..Self::default()
        }
    }

    /// An artifact.
    pub fn artifact(artifact: Artifact) -> Self {
        Self {
            artifact: Some(artifact),
            ..Self::default()
        }
    }

    /// What the agent is doing.
    pub fn status(status: Value) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// A snapshot that was taken.
    pub fn snapshot_created(snapshot: SnapshotCreated) -> Self {
        Self {
            snapshot_created: Some(snapshot),
            ..Self::default()
        }
    }

    /// The end of a turn.
    pub fn turn_end(turn_end: TurnEnd) -> Self {
        Self {
            turn_end: Some(turn_end),
            ..Self::default()
        }
    }
}

/// Who keeps the conversation between invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateManagement {
    /// The agent's store.
    Server,
    /// The client.
    Client,
}

/// What a listing says about an agent, under the metadata key `agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentMetadata {
    /// Who keeps the conversation.
    pub state_management: StateManagement,
    /// Whether a background run can be aborted.
    pub abortable: bool,
    /// The schema of the custom state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_schema: Option<Value>,
}

/// Asks for a snapshot: by its id, or the latest of a session; with both, the session must be the snapshot's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetSnapshotRequest {
    /// The snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// Asks for a background run to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AbortRequest {
    /// The run's pending snapshot.
    pub snapshot_id: SnapshotId,
}

/// What came of asking for a background run to stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbortResponse {
    /// The run's snapshot.
    pub snapshot_id: SnapshotId,
    /// Its status after the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SnapshotStatus>,
}
