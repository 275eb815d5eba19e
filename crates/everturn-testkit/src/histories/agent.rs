//! An agent whose turns are predictable.

use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_agent::{
    Agent, AgentSession, Artifact, Clock, SessionState, SnapshotIds, Timeline, Turn, custom_agent,
};
use everturn_ai::{FinishReason, Message};
use everturn_core::{HandlerResult, Registry};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Returns the user's text of a turn.
pub(super) fn user_text(text: u8) -> String {
    format!("say {text}")
}

/// The additions of a turn, except the user's message.
struct Answer {
    message: Message,
    custom: Value,
    artifact: Option<Artifact>,
}

fn answer(text: &str, custom: &Value) -> Answer {
    let number: u8 = text.trim_start_matches("say ").parse().unwrap_or_default();
    let turns = custom["turns"].as_u64().unwrap_or_default() + 1;
    let mut custom = if custom.is_object() {
        custom.clone()
    } else {
        json!({})
    };
    custom["turns"] = json!(turns);
    custom[format!("shelf {}", number % 4)] = json!({
        "jars": number,
        "weight": 0.1 + f64::from(number) / 3.0,
        "label": "pickled leeks ".repeat(8),
    });
    // Some artifacts are so large that a store may keep them separately.
    let artifact = number.is_multiple_of(3).then(|| {
        let length = if number.is_multiple_of(16) { 3_000 } else { 10 };
        let contents = format!("{turns} {}", "carrot ".repeat(length));
        Artifact::text(format!("plan {}", number % 2), contents)
    });
    Answer {
        message: Message::model(format!("reply to: {text}")),
        custom,
        artifact,
    }
}

/// Blocks a turn until the test lets it end.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) entered: Semaphore,
    pub(super) leave: Semaphore,
}

impl Gate {
    pub(super) fn closed() -> Arc<Self> {
        Arc::new(Self {
            entered: Semaphore::new(0),
            leave: Semaphore::new(0),
        })
    }
}

pub(super) fn agent(
    store: Arc<dyn SessionStore>,
    clock: Clock,
    ids: SnapshotIds,
    timeline: Timeline,
    gate: Option<Arc<Gate>>,
) -> Agent {
    let agent = custom_agent(&Registry::new(), "histories", move |session: AgentSession| {
        let gate = gate.clone();
        async move {
            let gated = async |at: Turn| {
                if let Some(gate) = &gate {
                    gate.entered.add_permits(1);
                    gate.leave.acquire().await?.forget();
                }
                turn(at).await
            };
            session.run(gated).await?;
            Ok(session.result())
        }
    });
    agent
        .store(store)
        .clock(clock)
        .snapshot_ids(ids)
        .timeline(timeline)
        .build()
        .expect("an agent with a name and a store")
}

async fn turn(turn: Turn) -> HandlerResult<FinishReason> {
    let text = turn.message().map(|message| message.text().into_owned());
    let answer = answer(&text.unwrap_or_default(), &turn.custom());
    turn.add_message(answer.message);
    turn.set_custom(answer.custom);
    if let Some(artifact) = answer.artifact {
        turn.send_artifact(artifact).await?;
    }
    Ok(FinishReason::Stop)
}

/// Returns the state after a turn, computed by copying everything.
pub(super) fn after_turn(state: &SessionState, text: u8) -> SessionState {
    let user_text = user_text(text);
    let answer = answer(&user_text, state.custom.as_deref().unwrap_or(&Value::Null));
    let mut messages: Vec<Message> = state.messages.iter().cloned().collect();
    messages.push(Message::user(user_text));
    messages.push(answer.message);
    let mut artifacts = state.artifacts.to_vec();
    if let Some(artifact) = answer.artifact {
        match artifacts
            .iter_mut()
            .find(|existing| existing.name == artifact.name)
        {
            Some(existing) => *existing = artifact,
            None => artifacts.push(artifact),
        }
    }
    SessionState {
        messages: messages.into_iter().collect(),
        custom: Some(Arc::new(answer.custom)),
        artifacts: Arc::new(artifacts),
        ..state.clone()
    }
}
