//! Tools of an agent reach the conversation they are called in.

use everturn_agent::{
    AgentInit, Artifact, Session, SessionHandle, TurnContext, agent, prompt_agent, store::MemoryStore,
};
use everturn_ai::prompt::PromptDefinition;
use everturn_ai::{FromToolContext, Message, NoInput, Tool, ToolContext};
use everturn_core::Status;
use everturn_testkit::Reply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::prompt_support::{answering, invoke, json, said};

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    pots: u32,
}

#[tokio::test]
async fn a_tool_reads_and_changes_the_session_and_the_client_sees_it() {
    let cook = Tool::new("cook", "Cooks.", |_: NoInput, _: ToolContext| async {
        let session = Session::<Kitchen>::current().unwrap();
        session.update_custom(|kitchen| kitchen.pots += 1);
        session.add_artifact(Artifact::text("menu", "soup"));
        Ok(session.messages().len())
    });
    let (registry, _model) = answering([Reply::tool("cook", json!({})), "There.".into()]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .tool(cook)
        .define()
        .unwrap();

    let (chunks, output) = invoke(agent.connect(AgentInit::default()), "cook").await;

    let state = output.state.unwrap();
    assert_eq!(state.custom.as_deref(), Some(&json!({"pots": 1})));
    assert_eq!(
        json(&chunks[0]),
        json!({"customPatch": [{"op": "replace", "path": "", "value": {"pots": 1}}]})
    );
    assert_eq!(chunks[1].artifact, Some(Artifact::text("menu", "soup")));
    assert_eq!(
        json(&state.messages.get(2).unwrap().content()[0])["toolResponse"]["output"],
        1
    );
}

/// A tool that takes the session from its context, as `#[tool]` writes it.
fn stove() -> Tool {
    Tool::new("stove", "Heats.", |_: NoInput, context: ToolContext| async move {
        let kitchen = Session::<Kitchen>::from_tool_context(&context)?;
        Ok(kitchen.update_custom(|kitchen| {
            kitchen.pots += 1;
            kitchen.pots
        }))
    })
    .requiring::<Session<Kitchen>>()
}

#[tokio::test]
async fn a_tool_takes_the_session_as_an_argument() {
    let (registry, _model) = answering([Reply::tool("stove", json!({})), "Hot.".into()]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .tool(stove())
        .define()
        .unwrap();

    let (_, output) = invoke(agent.connect(AgentInit::default()), "heat").await;

    assert_eq!(output.state.unwrap().custom.as_deref(), Some(&json!({"pots": 1})));
}

#[test]
fn a_tool_that_needs_another_state_is_refused_when_the_agent_is_defined() {
    let (registry, _model) = answering([] as [Reply; 0]);
    stove().register(&registry).unwrap();
    PromptDefinition::new("heating")
        .tool("stove")
        .define(&registry)
        .unwrap();

    let refused = [
        agent(&registry, "untyped").tool(stove()).define().unwrap_err(),
        agent(&registry, "counting")
            .custom::<u64>()
            .tool(stove())
            .define()
            .unwrap_err(),
        agent(&registry, "by name").tool("stove").define().unwrap_err(),
        prompt_agent(&registry, "heating").define().unwrap_err(),
    ];

    for error in refused {
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.message().contains("tool 'stove'"), "{error}");
        assert!(
            error.message().contains("Session<") && error.message().contains("Kitchen>"),
            "{error}"
        );
    }
    let fitting = prompt_agent(&registry, "heating").custom::<Kitchen>().define();
    assert!(fitting.is_ok());
    assert!(
        agent(&registry, "untyped").define().is_ok(),
        "a refused agent leaves nothing behind"
    );
}

#[tokio::test]
async fn a_tool_that_needs_a_session_reports_that_outside_an_agent() {
    let error = stove().run(json!({})).await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.message().contains("outside an agent"), "{error}");
}

#[tokio::test]
async fn a_tool_can_read_the_turn_and_the_session_of_any_type() {
    let place = Tool::new("place", "Says where it is.", |_: NoInput, _: ToolContext| async {
        let turn = TurnContext::current().unwrap();
        let session = SessionHandle::current().unwrap();
        let other = Session::<u64>::current().is_some();
        Ok(json!({"row": turn.snapshot_id, "session": session.session_id(), "other": other}))
    });
    let (registry, _model) = answering([Reply::tool("place", json!({})), "There.".into()]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .tool(place)
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let reply = agent.chat().resume("s").run("where?").await.unwrap();

    let snapshot = agent.latest_snapshot("s").await.unwrap();
    let answer = json(&snapshot.state.unwrap().messages.get(2).unwrap().content()[0]);
    let expected = json!({"row": reply.snapshot_id(), "session": "s", "other": false});
    assert_eq!(answer["toolResponse"]["output"], expected);
}

#[tokio::test]
async fn a_tool_outside_an_agent_has_no_session() {
    let look = Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
        Ok(Session::<Kitchen>::current().is_some() || SessionHandle::current().is_some())
    });

    assert_eq!(look.run(()).await.unwrap().output, Some(json!(false)));
}

#[tokio::test]
async fn a_tool_that_fails_fails_the_turn_and_what_it_did_is_undone() {
    let drop_pot = Tool::new("drop", "Drops a pot.", |_: NoInput, _: ToolContext| async {
        Session::<Kitchen>::current()
            .unwrap()
            .update_custom(|kitchen| kitchen.pots += 1);
        Err::<(), _>(everturn_core::Error::data_loss("it broke").into())
    });
    let (registry, _model) = answering(["Hello.".into(), Reply::tool("drop", json!({}))]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .tool(drop_pot)
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();
    chat.run("hello").await.unwrap();

    let failed = chat.run("careful").await.unwrap_err();

    assert!(
        failed.message().contains("tool 'drop' failed: it broke"),
        "{failed}"
    );
    assert_eq!(chat.custom().unwrap(), Kitchen::default());
    assert_eq!(chat.messages().len(), 3);
}

#[tokio::test]
async fn a_message_that_a_tool_leaves_is_kept_before_the_answer() {
    let note = Tool::new("note", "Leaves a note.", |_: NoInput, _: ToolContext| async {
        Session::<Kitchen>::current()
            .unwrap()
            .add_message(Message::user("buy cream"));
        Ok("noted")
    });
    let (registry, _model) = answering([Reply::tool("note", json!({})), "Done.".into(), "Soup.".into()]);
    let agent = agent(&registry, "chef")
        .custom::<Kitchen>()
        .system("sys")
        .tool(note)
        .define()
        .unwrap();
    let mut chat = agent.chat().open().await.unwrap();

    let reply = chat.run("note that").await.unwrap();
    chat.run("and now?").await.unwrap();

    assert_eq!(reply.text(), "Done.");
    assert_eq!(
        said(chat.messages()),
        [
            "user: note that",
            "model: ask(note)",
            "tool: answer(\"noted\")",
            "user: buy cream",
            "model: Done.",
            "user: and now?",
            "model: Soup.",
        ]
    );
}
