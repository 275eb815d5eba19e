//! The agents of the program.

use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_agent::{
    Agent, AgentFinishReason, AgentSession, Clock, Timeline, Turn, WhileInterrupted, agent, custom_agent,
};
use everturn_ai::{
    FinishReason, Message, ModelResponse, Part, Replay, Tool, ToolContext, ToolRequest, ToolResponse,
    metadata, set_default_model,
};
use everturn_core::{Error, HandlerResult, Registry};
use serde_json::{Value, json};

use crate::{Reply, ScriptedModel};

/// The settings that all agents of a program share.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) clock: Clock,
    pub(super) model: ScriptedModel,
    pub(super) policy: WhileInterrupted,
}

impl Setting {
    fn registry(&self) -> Registry {
        let registry = Registry::new();
        self.model
            .register(&registry, "scripted")
            .expect("the registry is new");
        set_default_model(&registry, "scripted");
        registry
    }

    /// Returns an agent around a prompt, as defined in one process.
    pub(super) fn clerk(&self, timeline: Timeline) -> Agent {
        agent(&self.registry(), "clerk")
            .system("Be kind.")
            .tools(tools())
            .store(Arc::clone(&self.store))
            .clock(self.clock.clone())
            .timeline(timeline)
            .while_interrupted(self.policy)
            .allow_edited_inputs()
            .build()
            .expect("an agent with a name and a store")
    }

    /// Returns an agent that adds the messages selected by the user's text, and calls the model.
    pub(super) fn writer(&self) -> Agent {
        custom_agent(&self.registry(), "writer", |session: AgentSession| async move {
            session.run(add_messages).await?;
            Ok(session.result())
        })
        .store(Arc::clone(&self.store))
        .clock(self.clock.clone())
        .while_interrupted(self.policy)
        .build()
        .expect("an agent with a name and a store")
    }

    /// Returns an agent without a store, for conversations that are only examined.
    pub(super) fn probe(&self) -> Agent {
        agent(&self.registry(), "probe")
            .tools(tools())
            .build()
            .expect("an agent with a name")
    }
}

fn tools() -> [Tool; 4] {
    [
        Tool::new("look", "Looks.", |_: Value, _: ToolContext| async { Ok("seen") }),
        Tool::new("pay", "Pays once.", |_: Value, _: ToolContext| async {
            Ok("paid")
        })
        .with_replay(Replay::Once),
        Tool::new("break", "Fails.", |_: Value, _: ToolContext| async {
            Err::<String, _>(Error::internal("broken").nothing_happened().into())
        }),
        Tool::new(
            "ask",
            "Asks a person.",
            |_: Value, call: ToolContext| async move {
                match call.answer::<Value>()? {
                    None => Err(call.interrupt("May I?").into()),
                    Some(_) => Ok("allowed"),
                }
            },
        ),
    ]
}

async fn add_messages(turn: Turn) -> HandlerResult<AgentFinishReason> {
    let number = turn.message().and_then(|message| message.text().parse().ok());
    turn.add_messages(messages(number.unwrap_or_default()));
    // A failed model call keeps the added messages.
    let _ = turn
        .generate()
        .history()
        .with(|generate| generate.tools(tools()))
        .await;
    Ok(AgentFinishReason::Stop)
}

/// Returns a tool request. References repeat, as some models number their calls from one in each message.
fn call(name: &str, reference: u32) -> ToolRequest {
    ToolRequest::new(name, json!({})).with_reference(reference.to_string())
}

/// Returns arbitrary messages.
fn messages(number: u32) -> Vec<Message> {
    let count = number % 4;
    let message = |index: u32| {
        let bits = number >> (2 + index * 8);
        let reference = (bits >> 5) & 1;
        let request = || Part::from(call("ask", reference));
        let response = || Part::from(ToolResponse::to(&call("ask", reference), "late"));
        match bits % 12 {
            0 => Message::model("said"),
            1 => Message::user("said"),
            2 => Message::model(vec![request()]),
            3 => Message::model(vec![
                request().with_metadata_entry(metadata::INTERRUPT, true),
                request(),
            ]),
            4 => Message::tool(vec![response()]),
            5 => Message::tool(vec![response(), response()]),
            6 => Message::user(vec![response()]),
            7 => Message::user(vec![request(), Part::text("said")]),
            8 => Message::model(""),
            9 => Message::model(vec![Part::reasoning("hm")]),
            10 => Message::user(Vec::<Part>::new()),
            _ => Message::system("Be brief."),
        }
    };
    (0..count).map(message).collect()
}

/// Returns the replies of the model in a turn.
pub(super) fn replies(number: u8) -> Vec<Reply> {
    let unanswered = ModelResponse::new(Message::model(vec![Part::from(call("pay", 1))]));
    match number % 14 {
        0 | 1 => vec!["fine".into()],
        2 => vec![Reply::from(call("look", 1)), "seen".into()],
        3 | 4 => vec![Reply::from(call("ask", 1))],
        5 => vec![Reply::tools([call("look", 1), call("ask", 2)])],
        6 => vec![Reply::tools([call("ask", 1), call("ask", 2), call("pay", 3)])],
        7 => vec![Error::unavailable("overloaded").into()],
        8 => vec![
            Reply::from(call("pay", 1)),
            Error::unavailable("overloaded").into(),
        ],
        9 => vec![Reply::from(call("break", 1))],
        10 => vec![Reply::panic("lost"), Reply::from(call("nothing", 1))],
        11 => vec![Reply::content("")],
        12 => vec![Reply::content(vec![Part::reasoning("hm")])],
        _ => vec![unanswered.with_finish_reason(FinishReason::Blocked).into()],
    }
}

/// Returns a tool call before a reply that never comes.
pub(super) fn tool_reply() -> Reply {
    Reply::from(call("pay", 1))
}
