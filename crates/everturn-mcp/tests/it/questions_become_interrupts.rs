//! Questions of a server interrupt the client's generation, and are answered later.

use everturn_agent::AgentInput;
use everturn_agent::store::MemoryStore;
use everturn_ai::{AnsweredBy, Answers, FinishReason, Generate, Part, Tool, ToolContext};
use everturn_core::{Principal, Registry};
use everturn_mcp::McpServer;
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{Total, Wanted, client_of, kitchen_client, script};

async fn asked(registry: &Registry) -> (everturn_ai::Generated, Part) {
    let model = script(registry);
    model.push(Reply::tool("pay", json!({ "euros": 7 })));
    model.push("It is done.");
    let reply = Generate::new(registry)
        .prompt("Pay.")
        .tool("s/pay")
        .await
        .unwrap();
    let part = reply
        .message
        .as_ref()
        .unwrap()
        .interrupts()
        .next()
        .unwrap()
        .clone();
    (reply, part)
}

async fn output_after(registry: &Registry, reply: &everturn_ai::Generated, restart: Part) -> Value {
    let generate = Generate::new(registry).messages(reply.messages()).tool("s/pay");
    let reply = generate.restart(restart).await.unwrap();
    let answers: Vec<_> = reply
        .messages()
        .iter()
        .flat_map(|message| message.content().to_vec())
        .filter_map(|part| part.as_tool_response().cloned())
        .collect();
    answers[0].output.clone().unwrap()
}

#[tokio::test]
async fn the_question_is_in_the_interrupts_data() {
    let (registry, _connections) = kitchen_client().await;

    let (reply, part) = asked(&registry).await;

    assert_eq!(reply.finish_reason(), FinishReason::Interrupted);
    let question = &part.interrupt().unwrap()["mcp"];
    assert_eq!(question["server"], "s");
    assert_eq!(
        question["inputRequests"]["answer"]["method"],
        "elicitation/create"
    );
    assert_eq!(question["inputRequests"]["answer"]["params"]["message"], "Pay 7?");
    assert!(question["requestState"].is_string());
}

#[tokio::test]
async fn the_answer_goes_to_the_server_with_its_state() {
    let (registry, _connections) = kitchen_client().await;
    let (reply, part) = asked(&registry).await;

    let answer = json!({ "answer": { "action": "accept", "content": { "by": "Ada" } } });
    let output = output_after(&registry, &reply, part.restart(Some(answer), None).unwrap()).await;

    assert_eq!(output, "7 paid, allowed by \"Ada\"");
}

#[tokio::test]
async fn a_single_question_is_answered_with_what_is_filled_in() {
    let (registry, _connections) = kitchen_client().await;
    let (reply, part) = asked(&registry).await;

    let restart = part.restart(Some(json!({ "by": "Ada" })), None).unwrap();
    let output = output_after(&registry, &reply, restart).await;

    assert_eq!(output, "7 paid, allowed by \"Ada\"");
}

#[tokio::test]
async fn who_declines_gets_the_tools_refusal() {
    let (registry, _connections) = kitchen_client().await;
    let (reply, part) = asked(&registry).await;

    let restart = part.restart(Some(json!(false)), None).unwrap();
    let output = output_after(&registry, &reply, restart).await;

    assert_eq!(output, json!({ "error": "The user declined: Pay 7?" }));
}

#[tokio::test]
async fn an_agent_is_interrupted_and_continues_over_another_connection() {
    let (registry, connections) = kitchen_client().await;
    let model = script(&registry);
    model.push(Reply::tool("pay", json!({ "euros": 7 })));
    model.push("It is done.");
    let cashier = everturn_agent::agent(&registry, "cashier")
        .system("You pay.")
        .tool("s/*")
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let asked = cashier.run_text("Pay.").await.unwrap();
    let part = asked.message().unwrap().interrupts().next().unwrap().clone();
    connections.disconnect().await;
    let mut chat = cashier.chat().resume(asked.session_id()).open().await.unwrap();
    let answers = Answers {
        restart: vec![part.restart(Some(json!({ "by": "Ada" })), None).unwrap()],
        ..Answers::default()
    };
    let reply = chat
        .send(AgentInput::answers(answers))
        .await
        .unwrap()
        .output()
        .await
        .unwrap();

    assert_eq!(reply.text(), "It is done.");
    let answered = json!({ "content": [{ "toolResponse": { "output": "7 paid, allowed by \"Ada\"" } }] });
    model.assert_asked(1, &json!({ "messages": [{}, {}, {}, answered] }));
}

#[tokio::test]
async fn a_tool_is_answered_by_those_whom_it_allows() {
    let alice = Principal::new("alice");
    let bob = Principal::new("bob").with_role("staff").in_tenant("alice");
    for (caller, is_allowed) in [(alice, false), (bob, true)] {
        let kitchen = Registry::new();
        let count = |_: Wanted, cx: ToolContext| async move {
            match cx.answer_value() {
                None => Err(cx.interrupt("Count?").into()),
                Some(_) => Ok(Total { total: 7 }),
            }
        };
        let count = Tool::new("count", "Counts.", count).answered_by(AnsweredBy::role("staff"));
        count.register(&kitchen).unwrap();
        let server = McpServer::new(&kitchen).context(caller.context());
        let (registry, _connections) = client_of(server).await;
        let model = script(&registry);
        model.push(Reply::tool("count", json!({})));
        model.push("It is done.");
        let asked = Generate::new(&registry).prompt("Count.").tool("s/count");
        let asked = asked.await.unwrap();
        let part = asked.message.as_ref().unwrap().interrupts().next().unwrap();

        let restart = part.restart(Some(json!({ "approved": true })), None).unwrap();
        let again = Generate::new(&registry)
            .messages(asked.messages())
            .tool("s/count");
        let answered = again
            .restart(restart)
            .await
            .map(|reply| format!("{:?}", reply.messages()));

        let shown = answered.unwrap_or_else(|error| error.to_string());
        assert_eq!(shown.contains("the role 'staff'"), !is_allowed, "{shown}");
        assert_eq!(shown.contains("It is done."), is_allowed, "{shown}");
    }
}
