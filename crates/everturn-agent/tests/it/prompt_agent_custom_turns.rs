//! Calling the model from a custom turn.

use everturn_agent::{AgentSession, custom_agent};
use everturn_ai::{NoInput, Tool, ToolContext};
use everturn_testkit::Reply;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::prompt_support::{answering, asked, fresh, invoke, json, said};

#[tokio::test]
async fn a_generation_with_the_history_adds_to_it_and_streams() {
    let (registry, model) = answering([
        Reply::tool("look", json!({})),
        Reply::text("Leeks.").chunk("Leeks."),
    ]);
    let look = Tool::new("look", "Looks.", |_: NoInput, _: ToolContext| async {
        Ok("leeks")
    });
    let agent = custom_agent(&registry, "cook", move |session: AgentSession| {
        let look = look.clone();
        async move {
            session
                .run(|turn| {
                    let look = look.clone();
                    async move {
                        let asking = turn.generate().history().stream();
                        let reply = asking.with(|generate| generate.system("sys").tool(look)).await?;
                        Ok(reply.finish_reason())
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .define()
    .unwrap();

    let (chunks, output) = invoke(agent.connect(fresh()), "what is there?").await;

    assert_eq!(chunks.len(), 3);
    assert_eq!(
        json(&chunks[1])["modelChunk"]["content"],
        json!([{"text": "Leeks."}])
    );
    assert_eq!(
        asked(&model.requests()[0]),
        ["system: sys", "user: what is there?"]
    );
    assert_eq!(
        said(&output.state.unwrap().messages),
        [
            "user: what is there?",
            "model: ask(look)",
            "tool: answer(\"leeks\")",
            "model: Leeks."
        ]
    );
}

#[tokio::test]
async fn a_generation_without_the_history_leaves_no_trace() {
    #[derive(Deserialize, JsonSchema)]
    struct Mood {
        mood: String,
    }
    let (registry, _model) = answering([r#"{"mood": "calm"}"#]);
    let agent = custom_agent(&registry, "cook", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let asking = turn
                    .generate()
                    .with(|generate| generate.prompt("how does it sound?").output::<Mood>());
                let mood = asking.await?.output()?.mood;
                turn.set_custom(Value::from(mood));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .define()
    .unwrap();

    let (chunks, output) = invoke(agent.connect(fresh()), "hm").await;

    let state = output.state.unwrap();
    assert_eq!(chunks.len(), 2);
    assert_eq!(said(&state.messages), ["user: hm"]);
    assert_eq!(state.custom.as_deref(), Some(&json!("calm")));
}
