//! Declining the question of a tool, independent of its output schema.

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInput, agent};
use everturn_ai::{Declined, Tool};
use everturn_core::Status;
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::{answering, asked, call};

#[tokio::test]
async fn a_person_can_decline_a_call_whose_schema_has_no_word_for_it() {
    for declined in [Declined::Cancelled, Declined::denied("too dear")] {
        let (registry, model) = answering([
            Reply::from(call("ask", "1", json!({}))),
            Reply::from("As you wish."),
        ]);
        let ask = Tool::interrupt::<Value, u32>("ask", "Asks for a number.");
        let agent = agent(&registry, "clerk")
            .tool(ask)
            .store(MemoryStore::new())
            .define()
            .unwrap();
        let asking = agent.chat().resume("s").run("go").await.unwrap();
        let part = asking.interrupts()[0].part().clone();

        // Anything else has to fit.
        let unfit = part.respond(json!({"cancelled": true, "sum": 1}), None).unwrap();
        let error = agent
            .chat()
            .resume("s")
            .run(AgentInput::answers(unfit))
            .await
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");

        let answer = part.respond(declined.output(), None).unwrap();
        let reply = agent
            .chat()
            .resume("s")
            .run(AgentInput::answers(answer))
            .await
            .unwrap();

        assert_eq!(reply.text(), "As you wish.");
        let told = asked(&model.requests()[1]).pop().unwrap();
        assert_eq!(told, format!("tool: answer({})", declined.output()));
    }
}
