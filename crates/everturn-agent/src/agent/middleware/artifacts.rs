//! Tools that give the model access to the session's artifacts.

use std::fmt::Write as _;

use async_trait::async_trait;
use everturn_ai::{
    GenerateRound, Middleware, ModelResponse, NextRound, Replay, Tool, ToolContext, place_system_part,
};
use everturn_core::HandlerResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Artifact, SessionHandle};

/// The metadata entry that marks the part with the list of artifacts.
const MARKER: &str = "artifacts-middleware-listing";

/// Tells the model which artifacts the session has and lets it read them and, unless read-only, write them.
///
/// The list is in the system prompt and is kept up to date round by round. The tools are `read_artifact` and
/// `write_artifact`; outside a session they return an error text. Written artifacts are streamed to the
/// client like any artifact.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Artifacts {
    /// Whether the model may only read.
    readonly: bool,
}

impl Artifacts {
    /// Creates middleware that lets the model read artifacts and not write them.
    pub fn readonly() -> Self {
        Self { readonly: true }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// The artifact's name.
    name: String,
}

#[derive(Serialize, JsonSchema)]
struct ReadResult {
    name: String,
    content: String,
    found: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Write {
    /// The artifact's name; one of that name is replaced.
    name: String,
    /// Its whole text.
    content: String,
}

#[derive(Serialize, JsonSchema)]
struct WriteResult {
    status: String,
}

#[async_trait]
impl Middleware for Artifacts {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        if let Some(session) = SessionHandle::of(&round.context) {
            let artifacts = session.artifacts();
            if !artifacts.is_empty() {
                place_system_part(&mut round.request.messages, MARKER, listing(&artifacts));
            }
        }
        Ok(next.run(round).await?)
    }

    fn tools(&self) -> Vec<Tool> {
        let read = Tool::new(
            "read_artifact",
            "Reads the text of an artifact.",
            |input: Read, cx| async move { Ok(read(input, &cx)) },
        )
        .with_replay(Replay::Pure);
        if self.readonly {
            return vec![read];
        }
        let write = Tool::new(
            "write_artifact",
            "Writes an artifact, or replaces it.",
            |input: Write, cx| async move { Ok(write(input, &cx)) },
        )
        .with_replay(Replay::Pure);
        vec![read, write]
    }
}

fn read(input: Read, cx: &ToolContext) -> ReadResult {
    let artifacts = SessionHandle::of(cx.context())
        .map(|session| session.artifacts())
        .unwrap_or_default();
    let found = artifacts
        .iter()
        .find(|artifact| artifact.given_name() == Some(&input.name));
    let content = found.map_or_else(|| "There is no such artifact.".to_owned(), Artifact::content_text);
    ReadResult {
        found: found.is_some(),
        content,
        name: input.name,
    }
}

fn write(input: Write, cx: &ToolContext) -> WriteResult {
    let status = match SessionHandle::of(cx.context()) {
        None => "There is no session to keep artifacts in.".to_owned(),
        Some(session) => {
            let status = format!("Wrote '{}'.", input.name);
            session.add_artifacts([Artifact::text(input.name, input.content)]);
            status
        }
    };
    WriteResult { status }
}

/// Formats one line per artifact: its name, the length of its text, and the sub-agent that made it.
fn listing(artifacts: &[Artifact]) -> String {
    // Writing to a string cannot fail.
    let mut text = String::from("<artifacts>\n");
    for artifact in artifacts {
        text.push_str("  - ");
        text.push_str(artifact.given_name().unwrap_or("(unnamed)"));
        let length = artifact.content_text().chars().count();
        if length > 0 {
            let _ = write!(text, " ({length} chars)");
        }
        let source = artifact
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get("source")?.as_str());
        if let Some(source) = source {
            let _ = write!(text, " [from: {source}]");
        }
        text.push('\n');
    }
    text.push_str("</artifacts>");
    text
}
