//! Running a sub-agent on a task.

use everturn_ai::{History, Message, Messages, Part, Role};
use everturn_core::{
    ActionType, Connection, Context, DynAction, Error, JsonCall, Registry, Result, downcast,
};
use serde_json::Value;

use super::AgentRef;
use super::delegation::{Made, Outcome};
use crate::{
    AgentAction, AgentFinishReason, AgentInit, AgentInput, AgentOutput, AgentStreamChunk, Artifact,
    SessionHandle, SessionState, StateManagement,
};

/// One task for a sub-agent.
pub(super) struct DelegatedTask<'a> {
    pub(super) registry: &'a Registry,
    pub(super) agent: &'a AgentRef,
    pub(super) task: String,
    /// The part of the conversation that the sub-agent sees, if it has no separate session.
    pub(super) shown: History,
    /// Distinguishes this run's artifacts from those of other runs.
    pub(super) invocation: String,
    /// Whether the text of artifacts is part of the answer.
    pub(super) inline: bool,
}

impl DelegatedTask<'_> {
    /// Runs the agent; every outcome, failures included, is a result for the model.
    pub(super) async fn run(self, context: Context) -> Outcome {
        let output = match self.call(&self.agent.seeded(&context)).await {
            Ok(output) => output,
            Err(error) => return Outcome::text(format!("Error: {error}")),
        };
        match output.finish_reason {
            _ if output.is_failure() => {
                let reason = output
                    .error
                    .map_or_else(|| "no reason was given".to_owned(), |error| error.message);
                Outcome::text(format!("Error: the agent '{}' failed: {reason}", self.agent.name))
            }
            Some(AgentFinishReason::Interrupted) => Outcome::text(format!(
                "The agent '{}' needs an answer from a person, which cannot be given here.",
                self.agent.name
            )),
            _ => self.outcome(&output, &context),
        }
    }

    async fn call(&self, context: &Context) -> Result<AgentOutput> {
        let input = AgentInput::message(self.task.clone());
        if let Some(agent) = &self.agent.transport {
            let init = self.init(agent.state_management() == Some(StateManagement::Client));
            return converse(agent.connect(init, context), input).await;
        }
        let name = &self.agent.name;
        let action = self.registry.lookup(&ActionType::AGENT.key(name)).await?;
        let action = action.ok_or_else(|| Error::not_found(format!("there is no agent '{name}'")))?;
        let metadata = action.descriptor().metadata.get("agent");
        let management = metadata.and_then(|agent| agent.get("stateManagement"));
        let init = self.init(management == Some(&Value::from("client")));
        match downcast::<AgentAction>(action.clone()) {
            Some(agent) => converse(agent.connect_in(init, context), input).await,
            None => call_json(action.as_ref(), init, input, context).await,
        }
    }

    /// Returns the start of the agent's invocation. Only an agent that keeps no sessions is shown the
    /// conversation.
    fn init(&self, is_client_managed: bool) -> AgentInit {
        let state = SessionState {
            messages: self.shown.clone(),
            ..SessionState::default()
        };
        AgentInit {
            state: (is_client_managed && !self.shown.is_empty()).then_some(state),
            ..AgentInit::default()
        }
    }

    fn outcome(&self, output: &AgentOutput, context: &Context) -> Outcome {
        let text = output.message.as_ref().map(joined_text).unwrap_or_default();
        let response = if text.is_empty() {
            "(no response)".to_owned()
        } else {
            text
        };
        let made: Vec<Artifact> = output
            .artifacts
            .iter()
            .flatten()
            .filter_map(|made| self.adopted(made))
            .collect();
        let artifacts = made
            .iter()
            .map(|artifact| Made {
                name: artifact.given_name().unwrap_or_default().to_owned(),
                content: self.inline.then(|| artifact.content_text()),
            })
            .collect();
        // Kept under the run's own names, so that two runs of one agent do not replace each other's
        // artifacts.
        if let Some(session) = SessionHandle::of(context) {
            session.add_artifacts(made);
        }
        Outcome { response, artifacts }
    }

    /// Renames a sub-agent's artifact for this run; an artifact without a name is not kept.
    fn adopted(&self, artifact: &Artifact) -> Option<Artifact> {
        let name = format!("{}/{}", self.invocation, artifact.given_name()?);
        let adopted = Artifact {
            name: Some(name),
            ..artifact.clone()
        };
        Some(
            adopted
                .with_metadata_entry("source", self.agent.name.clone())
                .with_metadata_entry("invocationId", self.invocation.clone()),
        )
    }
}

async fn converse(
    connection: Connection<AgentInput, AgentOutput, AgentStreamChunk>,
    input: AgentInput,
) -> Result<AgentOutput> {
    // An invocation that was refused takes no input; its output holds the reason.
    let _ = connection.send(input).await;
    connection.into_output().await
}

async fn call_json(
    action: &dyn DynAction,
    init: AgentInit,
    input: AgentInput,
    context: &Context,
) -> Result<AgentOutput> {
    let call = JsonCall {
        input: Some(serde_json::to_value(input)?),
        init: Some(serde_json::to_value(init)?),
        context: context.clone(),
        emitter: None,
    };
    Ok(serde_json::from_value(action.run_json(call).await?)?)
}

/// Returns the last messages of user and model that have text, with their text only.
pub(super) fn last_texts(conversation: &Messages, count: usize) -> History {
    if count == 0 {
        return History::new();
    }
    let messages = conversation
        .iter()
        .filter(|message| matches!(message.role(), Role::User | Role::Model));
    let mut texts: Vec<Message> = messages
        .filter_map(|message| {
            let parts: Vec<Part> = texts_of(message).map(Part::text).collect();
            (!parts.is_empty()).then(|| Message::new(message.role(), parts))
        })
        .collect();
    texts.drain(..texts.len().saturating_sub(count));
    texts.into_iter().collect()
}

fn joined_text(message: &Message) -> String {
    texts_of(message).collect::<Vec<_>>().join("\n")
}

fn texts_of(message: &Message) -> impl Iterator<Item = &str> {
    let texts = message.content().iter().filter_map(Part::as_text);
    texts.filter(|text| !text.is_empty())
}
