//! Handing tasks to other agents, and what comes back.

use everturn_agent::{
    AgentBuilder, AgentRef, AgentSession, Artifact, ArtifactStrategy, Delegation, InlinePrompt, agent,
    custom_agent, internal_agents, register_agent_middleware,
};
use everturn_ai::{Generate, Message, Part};
use everturn_core::{Error, Registry, Status};
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

/// A registry with a lead agent that delegates by script, and a helper that makes a document.
fn team(delegation: Delegation, script: ScriptedModel) -> (Registry, everturn_agent::Agent, ScriptedModel) {
    let registry = Registry::new();
    script.register(&registry, "scripted").unwrap();
    custom_agent(&registry, "helper", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let task = turn
                    .message()
                    .map(|message| message.text().into_owned())
                    .unwrap_or_default();
                if task == "fail" {
                    return Err(Error::internal("the helper is tired").into());
                }
                let shown = turn.messages().len() - 1;
                turn.add_artifact(Artifact::text("notes", "what was found"));
                turn.add_artifact(Artifact::unnamed("scribbles"));
                turn.add_message(Message::model(format!("did: {task}; was shown {shown}")));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .description("Helps with anything.")
    .define()
    .unwrap();
    let lead = agent(&registry, "lead")
        .model("scripted")
        .system("You lead.")
        .use_middleware(delegation)
        .define()
        .unwrap();
    (registry, lead, script)
}

fn asks(task: &str) -> Reply {
    Reply::tool("delegate_to_helper", json!({"task": task}))
}

/// The tool's answer to the model in the given call.
fn told(script: &ScriptedModel, call: usize) -> Value {
    let request = &script.requests()[call];
    let message = request.messages.last().unwrap();
    let responses = message.content().iter().filter_map(Part::as_tool_response);
    responses
        .map(|response| response.output.clone().unwrap())
        .next_back()
        .unwrap()
}

#[tokio::test]
async fn the_answer_and_the_artifacts_of_a_helper_come_back() {
    let script = ScriptedModel::new().reply(asks("look")).reply("done");
    let (_registry, lead, script) = team(Delegation::to(["helper"]), script);

    let reply = lead.run_text("go").await.unwrap();

    let told = told(&script, 1);
    assert_eq!(told["response"], "did: look; was shown 0");
    assert_eq!(
        told["artifacts"],
        json!([{"name": "helper_1/notes", "content": "what was found"}])
    );
    let kept: Vec<_> = reply
        .artifacts()
        .iter()
        .filter_map(|artifact| artifact.name.clone())
        .collect();
    assert_eq!(kept, ["helper_1/notes"]);
    assert_eq!(
        reply.artifacts()[0].metadata.as_ref().unwrap()["source"],
        "helper"
    );
}

#[tokio::test]
async fn the_model_is_told_about_its_helpers_and_the_conversation_is_not() {
    let script = ScriptedModel::new().reply("hello");
    let (_registry, lead, script) = team(Delegation::to(["helper"]), script);

    let reply = lead.run_text("go").await.unwrap();

    let system = script.requests()[0].messages.first().unwrap().text().into_owned();
    assert!(
        system.contains("<sub-agents>") && system.contains("Helps with anything."),
        "{system}"
    );
    let state = reply.state().unwrap();
    assert_eq!(state.messages.len(), 2);
}

#[tokio::test]
async fn names_alone_are_told_where_the_session_keeps_the_content() {
    let script = ScriptedModel::new().reply(asks("look")).reply("done");
    let delegation = Delegation::to(["helper"]).artifact_strategy(ArtifactStrategy::Session);
    let (_registry, lead, script) = team(delegation, script);

    lead.run_text("go").await.unwrap();

    assert_eq!(told(&script, 1)["artifacts"], json!([{"name": "helper_1/notes"}]));
}

#[tokio::test]
async fn a_helper_that_keeps_no_session_is_shown_the_last_messages() {
    let script = ScriptedModel::new()
        .reply("first")
        .reply(asks("look"))
        .reply("done");
    let (_registry, lead, script) = team(Delegation::to(["helper"]).history_length(2), script);
    let mut chat = lead.chat().open().await.unwrap();

    chat.run("one").await.unwrap();
    chat.run("two").await.unwrap();

    assert_eq!(told(&script, 2)["response"], "did: look; was shown 2");
}

#[tokio::test]
async fn beyond_the_limit_the_model_is_told_to_finish() {
    let script = ScriptedModel::new()
        .reply(asks("one"))
        .reply(asks("two"))
        .reply("done");
    let (_registry, lead, script) = team(Delegation::to(["helper"]).max_delegations(1), script);

    lead.run_text("go").await.unwrap();

    let told = told(&script, 2);
    assert!(
        told["response"]
            .as_str()
            .unwrap()
            .contains("finish with what there is"),
        "{told}"
    );
}

#[tokio::test]
async fn a_helper_that_fails_or_is_not_there_is_an_answer_and_not_an_error() {
    let script = ScriptedModel::new()
        .reply(asks("fail"))
        .reply(Reply::tool("delegate_to_nobody", json!({"task": "look"})))
        .reply("done");
    let agents = Delegation::to([
        AgentRef::new("helper"),
        AgentRef::new("nobody").description("Is away."),
    ]);
    let (_registry, lead, script) = team(agents, script);

    lead.run_text("go").await.unwrap();

    let (failed, missing) = (told(&script, 1), told(&script, 2));
    assert!(
        failed["response"]
            .as_str()
            .unwrap()
            .contains("the helper is tired"),
        "{failed}"
    );
    assert!(
        missing["response"].as_str().unwrap().starts_with("Error"),
        "{missing}"
    );
}

#[tokio::test]
async fn the_tools_may_have_the_bare_names_of_the_agents() {
    let script = ScriptedModel::new()
        .reply(Reply::tool("helper", json!({"task": "look"})))
        .reply("done");
    let (_registry, lead, script) = team(Delegation::to(["helper"]).tool_prefix(""), script);

    lead.run_text("go").await.unwrap();

    assert_eq!(told(&script, 1)["response"], "did: look; was shown 0");
}

#[tokio::test]
async fn prompts_can_name_it_and_a_team_of_nobody_is_refused() {
    let registry = Registry::new();
    register_agent_middleware(&registry).unwrap();
    let script = ScriptedModel::new().reply("hello");
    script.register(&registry, "scripted").unwrap();
    let named = |config: Value| everturn_ai::MiddlewareRef::new("agents").with_config(config);

    let good = agent(&registry, "good")
        .model("scripted")
        .use_middleware(named(
            json!({"agents": ["helper", {"name": "writer", "description": "Writes."}]}),
        ))
        .define()
        .unwrap();
    let bad = agent(&registry, "bad")
        .model("scripted")
        .use_middleware(named(json!({"agents": []})))
        .define()
        .unwrap();

    assert_eq!(good.run_text("go").await.unwrap().text(), "hello");
    assert_eq!(script.requests()[0].tools().len(), 2);
    assert_eq!(
        bad.run_text("go").await.unwrap_err().status(),
        Status::InvalidArgument
    );
}

/// An agent that answers with who calls it and how much it was shown.
fn butler(registry: &Registry) -> everturn_agent::AgentBuilder<Value> {
    custom_agent(registry, "butler", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let caller = turn.context().auth().cloned().unwrap_or_default();
                let shown = turn.messages().len() - 1;
                turn.add_message(Message::model(format!("for {caller}, shown {shown}")));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .description("Serves.")
}

#[tokio::test]
async fn an_agent_at_hand_is_referred_to_without_being_registered() {
    let script = ScriptedModel::new()
        .reply(Reply::tool("delegate_to_butler", json!({"task": "tea"})))
        .reply("done");
    let butler = butler(&Registry::new()).build().unwrap();
    let (_registry, lead, script) = team(Delegation::to([&butler]).history_length(5), script);

    lead.run_text("go").await.unwrap();

    assert_eq!(told(&script, 1)["response"], "for null, shown 1");
    let system = script.requests()[0].messages.first().unwrap().text().into_owned();
    assert!(
        system.contains("butler (tool delegate_to_butler): Serves."),
        "{system}"
    );
}

#[tokio::test]
async fn a_reference_seeds_the_context_of_that_agent_alone() {
    let script = ScriptedModel::new()
        .reply(Reply::tool("delegate_to_butler", json!({"task": "tea"})))
        .reply(asks("look"))
        .reply("done");
    let butler = butler(&Registry::new()).build().unwrap();
    let seeded = AgentRef::from(&butler).seed(|context| {
        let caller = context
            .auth()
            .and_then(Value::as_str)
            .unwrap_or("nobody")
            .to_owned();
        context.with_value("auth", format!("the butler of {caller}"))
    });
    let (_registry, lead, script) = team(Delegation::to([seeded, AgentRef::new("helper")]), script);

    let context = everturn_core::Context::new().with_value("auth", "ann");
    lead.chat().context(context).run("go").await.unwrap();

    assert_eq!(told(&script, 1)["response"], "for \"the butler of ann\", shown 0");
    assert_eq!(told(&script, 2)["response"], "did: look; was shown 0");
}

#[tokio::test]
async fn the_overrides_of_a_call_are_not_those_of_the_agents_it_delegates_to() {
    let script = ScriptedModel::new();
    let other = ScriptedModel::new()
        .reply(Reply::tool("delegate_to_writer", json!({"task": "write"})))
        .reply("done");
    let (registry, lead, script) = team(Delegation::to(["writer"]), script.reply("written"));
    other.register(&registry, "other").unwrap();
    agent(&registry, "writer").model("scripted").define().unwrap();

    let overrides = everturn_ai::prompt::PromptOverrides::new().model("other");
    lead.chat().overrides(overrides).run("go").await.unwrap();

    other.assert_calls(2);
    script.assert_calls(1);
}

#[tokio::test]
async fn code_that_delegates_at_run_time_needs_an_agent_that_is_internal_or_public() {
    type Build = fn(AgentBuilder<Value, InlinePrompt>) -> AgentBuilder<Value, InlinePrompt>;
    let refused: Build = |helper| helper;
    for (build, is_refused, internal) in [
        (refused, true, vec![]),
        (|helper| helper.internal(), false, vec!["helper"]),
        (|helper| helper.public(), false, vec![]),
    ] {
        let model = ScriptedModel::new().replies([asks("dig"), "dug".into(), "done".into()]);
        let registry = Registry::new();
        model.register(&registry, "scripted").unwrap();
        build(agent(&registry, "helper").model("scripted"))
            .define()
            .unwrap();

        let delegated = Generate::new(&registry)
            .model("scripted")
            .prompt("go")
            .use_middleware(Delegation::to(["helper"]))
            .await;

        assert_eq!(
            internal_agents(&registry).into_iter().collect::<Vec<_>>(),
            internal
        );
        match delegated {
            Ok(reply) => assert_eq!((reply.text().as_ref(), is_refused), ("done", false)),
            Err(error) => {
                assert!(is_refused, "{error}");
                assert_eq!(error.status(), Status::FailedPrecondition);
                for word in ["'helper'", "AgentBuilder::internal", "AgentBuilder::public"] {
                    assert!(error.message().contains(word), "{error}");
                }
                model.assert_calls(0);
            }
        }
    }
}
