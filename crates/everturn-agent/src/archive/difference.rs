//! The difference between two snapshots.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use everturn_ai::Message;
use everturn_core::Result;
use everturn_macros::wire;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Archive;
use super::plain::plain;
use crate::patch::{JsonPatch, PatchOperation};
use crate::{Artifact, SessionState, Snapshot, SnapshotId};

/// The number of characters of a text that are printed.
const SHOWN: usize = 100;

/// The number of characters of an id that are printed: all of any sensible id.
const SHOWN_ID: usize = 256;

/// The difference between two snapshots. A snapshot without a state counts as an empty conversation.
///
/// If the two come from a store that shares common messages, computing it costs as much as they differ.
#[wire]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Difference {
    /// The id of the left snapshot.
    pub left: SnapshotId,
    /// The id of the right snapshot.
    pub right: SnapshotId,
    /// The time of the left snapshot.
    #[schemars(with = "Option<String>")]
    pub left_at: Option<Timestamp>,
    /// The time of the right snapshot.
    #[schemars(with = "Option<String>")]
    pub right_at: Option<Timestamp>,
    /// The number of messages that both begin with.
    pub common: usize,
    /// The messages of the left one after the common ones.
    pub only_left: Vec<Message>,
    /// The messages of the right one after the common ones.
    pub only_right: Vec<Message>,
    /// The patch that turns the left custom state into the right one.
    pub custom: JsonPatch,
    /// The changes of the artifacts from left to right.
    pub artifacts: Vec<ArtifactChange>,
}

/// The change of an artifact. Named artifacts are matched by name, unnamed ones by equality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ArtifactChange {
    /// The artifact is only on the right.
    Added(Artifact),
    /// The artifact is only on the left.
    Removed(Artifact),
    /// The artifact is on both sides with different content.
    Changed {
        /// The artifact on the left.
        from: Artifact,
        /// The artifact on the right.
        to: Artifact,
    },
}

impl Archive {
    /// Compares two snapshots, of one session or of two.
    ///
    /// # Errors
    /// As [`Archive::get`], for either.
    pub async fn diff(
        &self,
        left: impl Into<SnapshotId>,
        right: impl Into<SnapshotId>,
    ) -> Result<Difference> {
        Ok(Difference::between(
            &self.get(left).await?,
            &self.get(right).await?,
        ))
    }
}

impl Difference {
    /// Compares two snapshots.
    pub fn between(left: &Snapshot, right: &Snapshot) -> Self {
        let nothing = SessionState::default();
        let (one, other) = (
            left.state.as_ref().unwrap_or(&nothing),
            right.state.as_ref().unwrap_or(&nothing),
        );
        let common = one.messages.common_prefix(&other.messages);
        Self {
            left: left.snapshot_id.clone(),
            right: right.snapshot_id.clone(),
            left_at: Some(left.created_at),
            right_at: Some(right.created_at),
            common,
            only_left: one.messages.since(common).cloned().collect(),
            only_right: other.messages.since(common).cloned().collect(),
            custom: custom(one.custom.as_ref(), other.custom.as_ref()),
            artifacts: artifacts(&one.artifacts, &other.artifacts),
        }
    }

    /// Returns whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.only_left.is_empty()
            && self.only_right.is_empty()
            && self.custom.is_empty()
            && self.artifacts.is_empty()
    }
}

fn custom(left: Option<&Arc<Value>>, right: Option<&Arc<Value>>) -> JsonPatch {
    if let (Some(left), Some(right)) = (left, right)
        && Arc::ptr_eq(left, right)
    {
        return JsonPatch::default();
    }
    let value = |side: Option<&Arc<Value>>| side.map_or(Value::Null, |side| Value::clone(side));
    JsonPatch::diff(&value(left), &value(right))
}

fn artifacts(left: &Arc<Vec<Artifact>>, right: &Arc<Vec<Artifact>>) -> Vec<ArtifactChange> {
    if Arc::ptr_eq(left, right) {
        return Vec::new();
    }
    let mut named: HashMap<&str, VecDeque<&Artifact>> = HashMap::new();
    let mut unnamed: Vec<&Artifact> = Vec::new();
    for artifact in right.iter() {
        match artifact.given_name() {
            Some(name) => named.entry(name).or_default().push_back(artifact),
            None => unnamed.push(artifact),
        }
    }
    let mut changes = Vec::new();
    for from in left.iter() {
        let to = match from.given_name() {
            Some(name) => named.get_mut(name).and_then(VecDeque::pop_front),
            None => unnamed
                .iter()
                .position(|other| *other == from)
                .map(|at| unnamed.remove(at)),
        };
        match to {
            Some(to) if to == from => {}
            Some(to) => changes.push(ArtifactChange::Changed {
                from: from.clone(),
                to: to.clone(),
            }),
            None => changes.push(ArtifactChange::Removed(from.clone())),
        }
    }
    // Artifacts that were not matched are new; they keep the order of the right side.
    let left_over = |artifact: &&Artifact| match artifact.given_name() {
        Some(name) => named
            .get(name)
            .is_some_and(|rest| rest.iter().any(|other| std::ptr::eq(*other, *artifact))),
        None => unnamed.iter().any(|other| std::ptr::eq(*other, *artifact)),
    };
    changes.extend(right.iter().filter(left_over).cloned().map(ArtifactChange::Added));
    changes
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sides = [('-', &self.left, self.left_at), ('+', &self.right, self.right_at)];
        for (sign, id, at) in sides {
            write!(f, "{sign} {}", plain(id.as_str(), SHOWN_ID))?;
            match at {
                Some(at) => writeln!(f, " {at:.0}")?,
                None => writeln!(f)?,
            }
        }
        if self.is_empty() {
            return writeln!(f, "no difference");
        }
        writeln!(f, "messages: {} in common", self.common)?;
        for (sign, messages) in [('-', &self.only_left), ('+', &self.only_right)] {
            for message in messages {
                write_message(f, sign, message)?;
            }
        }
        if !self.custom.is_empty() {
            writeln!(f, "custom state:")?;
            for operation in self.custom.operations() {
                write_operation(f, operation)?;
            }
        }
        if !self.artifacts.is_empty() {
            writeln!(f, "artifacts:")?;
            for change in &self.artifacts {
                let (sign, artifact) = match change {
                    ArtifactChange::Added(artifact) => ('+', artifact),
                    ArtifactChange::Removed(artifact) => ('-', artifact),
                    ArtifactChange::Changed { to, .. } => ('~', to),
                };
                let name = artifact.given_name().unwrap_or("(unnamed)");
                writeln!(f, "  {sign} {}", plain(name, SHOWN))?;
            }
        }
        Ok(())
    }
}

fn write_message(f: &mut fmt::Formatter<'_>, sign: char, message: &Message) -> fmt::Result {
    write!(f, "  {sign} {}:", message.role())?;
    let text = message.text();
    if !text.is_empty() {
        write!(f, " {}", plain(&text, SHOWN))?;
    }
    let mut others = 0;
    for part in message.content() {
        if let Some(request) = part.as_tool_request() {
            write_call(f, '→', &request.name, request.input.as_ref())?;
        } else if let Some(response) = part.as_tool_response() {
            write_call(f, '←', &response.name, response.output.as_ref())?;
        } else if part.as_text().is_none() {
            others += 1;
        }
    }
    match others {
        0 => writeln!(f),
        1 => writeln!(f, " (and a part that is not text)"),
        _ => writeln!(f, " (and {others} parts that are not text)"),
    }
}

/// Writes a tool's name with what it was given or answered.
fn write_call(f: &mut fmt::Formatter<'_>, arrow: char, name: &str, value: Option<&Value>) -> fmt::Result {
    write!(f, " {arrow} {}", plain(name, SHOWN))?;
    match value {
        Some(value) => write!(f, " {}", plain(&value.to_string(), SHOWN)),
        None => Ok(()),
    }
}

fn write_operation(f: &mut fmt::Formatter<'_>, operation: &PatchOperation) -> fmt::Result {
    let place = |path: &str| match path {
        "" => "(all of it)".to_owned(),
        path => plain(path, SHOWN).to_string(),
    };
    let (sign, path, value) = match operation {
        PatchOperation::Add { path, value } => ('+', path, Some(value)),
        PatchOperation::Replace { path, value } => ('~', path, Some(value.as_ref())),
        PatchOperation::Remove { path } => ('-', path, None),
        // A diff consists of the three operations above only.
        PatchOperation::Move { path, .. }
        | PatchOperation::Copy { path, .. }
        | PatchOperation::Test { path, .. } => ('~', path, None),
    };
    write!(f, "  {sign} {}", place(path))?;
    match value {
        Some(value) => writeln!(f, " {}", plain(&value.to_string(), SHOWN)),
        None => writeln!(f),
    }
}
