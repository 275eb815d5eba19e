//! Questions of the agent, and their answers.

use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{Served, call, first, types, user};

async fn asking(server: &Served) -> (Value, Vec<Value>) {
    let run = server.run("r1", json!([user("u1", "go")])).await;
    let outcome = run.end()["outcome"].clone();
    assert_eq!(outcome["type"], "interrupt", "{}", run.body);
    (outcome["interrupts"][0].clone(), server.thread().await)
}

fn answer(interrupt: &Value, status: &str, payload: &Value) -> Value {
    json!({"resume": [{"interruptId": interrupt["id"], "status": status, "payload": payload}]})
}

#[tokio::test]
async fn a_question_has_its_schema_and_accepts_the_answer() {
    let server = Served::answering([call("ask", json!({"q": "how many?"})), Reply::text("Thanks.")]).await;

    let (interrupt, held) = asking(&server).await;
    assert_eq!(interrupt["reason"], "tool_call");
    assert_eq!(interrupt["id"], interrupt["toolCallId"]);
    assert_eq!(interrupt["metadata"]["everturn"]["tool"], "ask");
    assert_eq!(
        interrupt["metadata"]["everturn"]["input"],
        json!({"q": "how many?"})
    );
    assert!(interrupt["responseSchema"]["properties"]["counter"].is_object());
    let more = answer(&interrupt, "resolved", &json!({"counter": 3}));
    let run = server.run_of("keeper", "r2", json!(held), more).await;

    let events = run.events();
    assert_eq!(first(&events, "TOOL_CALL_RESULT")["toolCallId"], interrupt["id"]);
    assert!(!types(&events).contains(&"TOOL_CALL_START"));
    assert_eq!(run.text(), "Thanks.");
    assert_eq!(server.asked()[3], "tool: [result {\"counter\":3}]");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_and_the_question_stays() {
    let server = Served::answering([call("ask", json!({})), Reply::text("Thanks.")]).await;
    let (interrupt, held) = asking(&server).await;

    let wrong = answer(&interrupt, "resolved", &json!({"counter": "many"}));
    let wrong = server.run_of("keeper", "r2", json!(held), wrong).await;
    assert_eq!(wrong.error().0, 400);
    let cancelled = answer(&interrupt, "cancelled", &json!(null));
    let cancelled = server.run_of("keeper", "r3", json!(held), cancelled).await;

    assert_eq!(cancelled.text(), "Thanks.");
    assert_eq!(server.asked()[3], "tool: [result {\"cancelled\":true}]");
}

#[tokio::test]
async fn an_approval_runs_the_tool_and_a_denial_does_not() {
    for (payload, result) in [
        (json!({"approved": true}), "\"paid\""),
        (
            json!({"approved": false, "reason": "dear"}),
            "{\"denied\":true,\"reason\":\"dear\"}",
        ),
    ] {
        let server = Served::answering([call("pay", json!({"sum": 5})), Reply::text("Well.")]).await;
        let (interrupt, held) = asking(&server).await;
        assert_eq!(
            interrupt["metadata"]["everturn"]["payload"],
            json!({"confirm": {"sum": 5}})
        );
        assert!(interrupt["responseSchema"]["properties"]["approved"].is_object());

        let run = server
            .run_of(
                "keeper",
                "r2",
                json!(held),
                answer(&interrupt, "resolved", &payload),
            )
            .await;

        assert_eq!(run.text(), "Well.", "{}", run.body);
        assert_eq!(server.asked()[3], format!("tool: [result {result}]"));
        assert_eq!(
            first(&run.events(), "TOOL_CALL_RESULT")["toolCallId"],
            interrupt["id"]
        );
    }
}

#[tokio::test]
async fn an_approval_is_for_the_requested_arguments() {
    let server = Served::answering([call("pay", json!({"sum": 5})), Reply::text("never")]).await;
    let (interrupt, held) = asking(&server).await;

    let edited = json!({"approved": true, "editedArgs": {"sum": 500}});
    let run = server
        .run_of(
            "keeper",
            "r2",
            json!(held),
            answer(&interrupt, "resolved", &edited),
        )
        .await;

    assert_eq!(run.error().1, "INVALID_ARGUMENT");
    server.model.assert_calls(1);
}

#[tokio::test]
async fn a_result_of_the_client_answers_too() {
    let server = Served::answering([call("pay", json!({"sum": 5})), Reply::text("Paid.")]).await;
    let (interrupt, mut held) = asking(&server).await;

    held.push(
        json!({"id": "x", "role": "tool", "toolCallId": interrupt["id"], "content": "{\"approved\": true}"}),
    );
    let run = server.run("r2", json!(held)).await;

    assert_eq!(run.text(), "Paid.");
    assert_eq!(server.asked()[3], "tool: [result \"paid\"]");
    // The client shows its answer, and learns what became of the call.
    let result = first(&run.events(), "TOOL_CALL_RESULT").clone();
    assert_eq!(
        (&result["toolCallId"], &result["content"]),
        (&interrupt["id"], &json!("paid"))
    );
}

#[tokio::test]
async fn a_waiting_call_is_sent_once() {
    let look = everturn_ai::ToolRequest::new("look", json!({})).with_reference("1");
    let ask = everturn_ai::ToolRequest::new("ask", json!({})).with_reference("2");
    for reply in [
        Reply::tools([look.clone(), ask.clone()]),
        Reply::tools([look, ask]).streamed(),
    ] {
        let server = Served::answering([reply]).await;

        let events = server.run("r1", json!([user("u1", "go")])).await.events();

        let told = types(&events)
            .into_iter()
            .filter(|kind| *kind == "TOOL_CALL_START");
        assert_eq!(told.count(), 2, "{events:#?}");
        let interrupts = events.last().unwrap()["outcome"]["interrupts"]
            .as_array()
            .unwrap();
        assert_eq!(interrupts.len(), 1);
    }
}

#[tokio::test]
async fn an_open_question_is_not_passed_over() {
    let server = Served::answering([call("ask", json!({})), Reply::text("never")]).await;
    let (interrupt, mut held) = asking(&server).await;
    held.push(user("u2", "never mind"));

    let ignoring = server.run("r2", json!(held)).await;
    let both = answer(&interrupt, "resolved", &json!({"counter": 1}));
    let both = server.run_of("keeper", "r3", json!(held), both).await;

    let (code, status, message) = ignoring.error();
    assert_eq!((code, status.as_str()), (400, "FAILED_PRECONDITION"));
    assert!(message.contains(interrupt["id"].as_str().unwrap()), "{message}");
    assert_eq!(both.error().0, 400);
    server.model.assert_calls(1);
}

#[tokio::test]
async fn an_answer_to_nothing_is_passed_over_if_there_is_something_else() {
    let server = Served::answering(["one", "two"]).await;
    server.run("r1", json!([user("u1", "1")])).await.end();
    let stray = json!({"resume": [{"interruptId": "call_x_1", "status": "resolved", "payload": 1}]});

    let alone = server
        .run_of("keeper", "r2", json!(server.thread().await), stray.clone())
        .await;
    let with_words = server
        .run_of("keeper", "r3", json!([user("u2", "2")]), stray)
        .await;

    assert_eq!(alone.error().0, 400);
    assert_eq!(with_words.text(), "two");
}

#[tokio::test]
async fn a_client_that_connects_sees_the_open_question() {
    let server = Served::answering([call("ask", json!({}))]).await;
    let (interrupt, _) = asking(&server).await;

    let events = server.connect("keeper").await;

    assert_eq!(events.last().unwrap()["outcome"]["interrupts"][0], interrupt);
}
