//! The agents that held the kept conversations, and go on with them.

use std::sync::{Arc, Mutex};

use everturn_agent::store::{Scope, SessionStore};
use everturn_agent::{
    Agent, AgentBuilder, AgentSession, Artifact, Clock, SessionHandle, SnapshotEvent, SnapshotIds,
    SnapshotPolicy, Timeline, Turn, agent, custom_agent,
};
use everturn_ai::{Message, Replay, Tool, ToolContext, set_default_model};
use everturn_core::{Context, Error, Registry};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Compresses well.
const PROSE: &str =
    "Slice the leeks and the potatoes, soften them in butter, add stock and let them simmer. ";

/// Answers every message. Some words make it do more: see the match.
async fn write(turn: Turn) -> everturn_core::HandlerResult<()> {
    let said = turn
        .message()
        .map(|message| message.text().into_owned())
        .unwrap_or_default();
    match said.as_str() {
        "begin" => turn.set_custom(json!({"count": 0, "weight": 0.1 + 0.2, "recipe": PROSE.repeat(14)})),
        "count" => {
            turn.update_custom(|custom| custom["count"] = json!(custom["count"].as_u64().unwrap_or(0) + 1));
        }
        "make" => {
            let plan = Artifact::text("plan", PROSE.repeat(4)).with_metadata_entry("pages", 1);
            turn.send_artifact(plan).await?;
        }
        "summarise" => turn.set_messages([
            Message::user("summarise"),
            Message::system("Leeks were discussed."),
        ]),
        "fail" => return Err(Error::internal("the oven is cold").into()),
        "wait" => return Err(turn.context().ended().await.into()),
        _ => {}
    }
    turn.add_message(Message::model(format!("re: {said}")));
    Ok(())
}

/// The tenant that a caller names.
fn tenant(context: &Context) -> Scope {
    context
        .auth()
        .and_then(Value::as_str)
        .map_or_else(Scope::default, Scope::new)
}

fn writer(name: &str, store: &Arc<dyn SessionStore>, clock: &Clock) -> AgentBuilder<Value> {
    let function = |session: AgentSession| async move {
        session.run(write).await?;
        Ok(session.result())
    };
    custom_agent(&Registry::new(), name, function)
        .store(Arc::clone(store))
        .clock(clock.clone())
        .scope(tenant)
}

/// Keeps what it writes on branches.
pub(crate) fn scribe(store: &Arc<dyn SessionStore>, clock: &Clock) -> Agent {
    writer("scribe", store, clock).define().unwrap()
}

/// Leaves behind what it goes back before.
pub(crate) fn gardener(store: &Arc<dyn SessionStore>, clock: &Clock) -> Agent {
    let gardener = writer("gardener", store, clock).timeline(Timeline::Linear);
    gardener.define().unwrap()
}

/// Names snapshots after what they hold.
pub(crate) fn notary(store: &Arc<dyn SessionStore>, clock: &Clock) -> Agent {
    let notary = writer("notary", store, clock).snapshot_ids(SnapshotIds::ContentAddressed);
    notary.define().unwrap()
}

/// The fetched items of this process.
pub(crate) type Fetched = Arc<Mutex<Vec<String>>>;

#[derive(Deserialize, JsonSchema)]
struct Errand {
    what: String,
}

/// Defines an agent with a scripted model and a tool that must not run twice. Snapshots are also taken in the
/// middle of turns.
pub(crate) fn cook(
    store: &Arc<dyn SessionStore>,
    clock: &Clock,
    model: &ScriptedModel,
    fetched: &Fetched,
) -> Agent {
    let registry = Registry::new();
    model.register(&registry, "scripted").unwrap();
    set_default_model(&registry, "scripted");
    let fetched = Arc::clone(fetched);
    let fetch = Tool::new(
        "fetch",
        "Fetches something.",
        move |errand: Errand, _: ToolContext| {
            let fetched = Arc::clone(&fetched);
            async move {
                let session = SessionHandle::current().unwrap();
                session.add_artifacts([Artifact::text(errand.what.as_str(), "fetched")]);
                fetched.lock().unwrap().push(errand.what.clone());
                Ok(format!("here are the {}", errand.what))
            }
        },
    );
    agent(&registry, "cook")
        .system("You cook for {{guest}}.")
        .prompt_input(json!({"guest": "Ann"}))
        .tool(fetch.with_replay(Replay::Once))
        .store(Arc::clone(store))
        .clock(clock.clone())
        .scope(tenant)
        .record_context(["auth"])
        .snapshots(SnapshotPolicy::on([
            SnapshotEvent::RoundEnd,
            SnapshotEvent::TurnEnd,
        ]))
        .define()
        .unwrap()
}
