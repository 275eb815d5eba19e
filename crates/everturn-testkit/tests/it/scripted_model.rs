//! A scripted model follows its script, and records its requests.

use std::time::Duration;

use everturn_ai::{Message, Model, ModelInfo, ModelRequest, ModelResponse, Part, ToolRequest};
use everturn_core::{Context, Emitter, Error, Reason, Registry, Result, Status};
use everturn_testkit::{Collector, Gate, Reply, SCRIPT_OVER, ScriptedModel};
use serde_json::json;
use tokio::time::Instant;

async fn ask(model: &ScriptedModel, text: &str) -> Result<ModelResponse> {
    Ok(model
        .generate(
            ModelRequest::new(Message::user(text)),
            Emitter::silent(),
            Context::new(),
        )
        .await?)
}

#[tokio::test]
async fn replies_are_played_in_order() {
    let model = ScriptedModel::new().reply("one").replies(["two", "three"]);

    for expected in ["one", "two", "three"] {
        assert_eq!(ask(&model, "next").await.unwrap().text(), expected);
    }
    model.assert_finished();
}

#[tokio::test]
async fn a_finished_script_is_an_error() {
    let model = ScriptedModel::new().reply("one");
    ask(&model, "first").await.unwrap();

    let error = ask(&model, "what now?").await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.is(SCRIPT_OVER));
    assert!(
        error.message().contains("has 1 replies") && error.message().contains("what now?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_script_can_have_a_fallback_reply() {
    let model = ScriptedModel::new()
        .reply("one")
        .otherwise(|request| format!("message {}", request.messages.len()));

    assert_eq!(ask(&model, "a").await.unwrap().text(), "one");
    assert_eq!(ask(&model, "b").await.unwrap().text(), "message 1");
    assert_eq!(ask(&model, "c").await.unwrap().text(), "message 1");
}

#[tokio::test]
async fn a_reply_can_be_made_from_the_request() {
    let model = ScriptedModel::new().reply_with(|request| {
        let text = request.messages.last().map(Message::text).unwrap_or_default();
        Reply::text(text.to_uppercase())
    });

    assert_eq!(ask(&model, "leeks").await.unwrap().text(), "LEEKS");
}

#[tokio::test(start_paused = true)]
async fn chunks_and_pauses_come_in_the_order_of_the_script() {
    let start = Instant::now();
    let arrivals = Collector::new();
    let emitter = {
        let arrivals = arrivals.emitter();
        Emitter::new(move |chunk: everturn_ai::ModelResponseChunk| {
            let arrivals = arrivals.clone();
            async move {
                Ok(arrivals
                    .send((chunk.text().into_owned(), start.elapsed().as_secs()))
                    .await?)
            }
        })
    };
    let reply = Reply::text("Leek soup")
        .chunk("Leek ")
        .pause(Duration::from_secs(3))
        .chunk("soup");
    let model = ScriptedModel::new().reply(reply);

    let response = model
        .generate(ModelRequest::default(), emitter, Context::new())
        .await
        .unwrap();

    assert_eq!(response.text(), "Leek soup");
    assert_eq!(arrivals.take(), [("Leek ".to_owned(), 0), ("soup".to_owned(), 3)]);
}

#[tokio::test]
async fn an_answer_can_stream_itself() {
    let parts = [
        Part::text("Look: soup"),
        Part::media("data:image/png;base64,AA=="),
    ];
    let model = ScriptedModel::new().reply(Reply::content(parts.clone()).streamed());
    let chunks = Collector::new();

    model
        .generate(ModelRequest::default(), chunks.emitter(), Context::new())
        .await
        .unwrap();

    let sent: Vec<Part> = chunks
        .take()
        .into_iter()
        .flat_map(|chunk| chunk.content)
        .collect();
    assert_eq!(sent, [Part::text("Look: "), Part::text("soup"), parts[1].clone()]);
}

#[tokio::test]
async fn a_failure_may_come_in_the_middle_of_an_answer() {
    let model = ScriptedModel::new().reply(Reply::error(Error::unavailable("overloaded")).chunk("Leek "));
    let chunks = Collector::new();

    let error = model
        .generate(ModelRequest::default(), chunks.emitter(), Context::new())
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert_eq!(chunks.take().len(), 1);
}

#[tokio::test]
async fn a_panic_reaches_callers_as_an_error() {
    let registry = Registry::new();
    let action = ScriptedModel::new()
        .reply(Reply::panic("out of leeks"))
        .register(&registry, "chef")
        .unwrap();

    let error = action.run(ModelRequest::default()).await.unwrap_err();

    assert!(error.is(Reason::PANIC));
    assert!(error.message().contains("out of leeks"), "{error}");
}

#[tokio::test]
async fn an_answer_that_never_comes_ends_with_the_context() {
    let model = ScriptedModel::new().reply(Reply::never());
    let context = Context::new();
    let call = model.generate(ModelRequest::default(), Emitter::silent(), context.clone());

    let (error, ()) = tokio::join!(call, async { context.cancel() });

    assert_eq!(error.unwrap_err().status(), Status::Cancelled);
}

#[tokio::test]
async fn a_gate_holds_the_answer_until_it_is_opened() {
    let gate = Gate::new();
    let model = ScriptedModel::new().reply(Reply::text("Soup.").wait(&gate));
    let call = tokio::spawn(async move { ask(&model, "?").await });

    gate.reached().await;
    tokio::task::yield_now().await;
    assert!(!call.is_finished());
    gate.open();

    assert_eq!(call.await.unwrap().unwrap().text(), "Soup.");
}

#[tokio::test]
async fn tools_are_requested_in_one_message() {
    let calls = [
        ToolRequest::new("a", json!({})).with_reference("1"),
        ToolRequest::new("b", json!({"n": 1})),
    ];
    let model = ScriptedModel::new()
        .reply(Reply::tools(calls.clone()))
        .reply(calls[1].clone());

    let both = ask(&model, "?").await.unwrap().message.unwrap();
    let one = ask(&model, "?").await.unwrap().message.unwrap();

    assert_eq!(both.tool_requests().cloned().collect::<Vec<_>>(), calls);
    assert_eq!(one.tool_requests().collect::<Vec<_>>(), [&calls[1]]);
}

#[tokio::test]
async fn every_call_is_remembered_with_its_circumstances() {
    let registry = Registry::new();
    let model = ScriptedModel::new().replies(["one", "two"]);
    let action = model.register(&registry, "chef").unwrap();
    let context = Context::new().with_value("auth", "the cook");

    action
        .call(ModelRequest::new(Message::user("a")), context, Emitter::silent())
        .await
        .unwrap();
    action
        .stream(ModelRequest::new(Message::user("b")))
        .output()
        .await
        .unwrap();

    let calls = model.calls();
    assert_eq!(calls[0].context.auth(), Some(&json!("the cook")));
    assert_eq!([calls[0].is_streaming, calls[1].is_streaming], [false, true]);
    assert_eq!(model.requests().len(), 2);
    assert_eq!(model.last_request().unwrap().messages.last().unwrap().text(), "b");
    model.assert_calls(2);
    model.assert_asked(
        1,
        &json!({"messages": [{"role": "user", "content": [{"text": "b"}]}]}),
    );
}

#[tokio::test]
#[should_panic(expected = r#"at /messages/0/content/0/text: expected "b", found "a""#)]
async fn a_failed_assertion_names_the_place() {
    let model = ScriptedModel::new().reply("one");
    ask(&model, "a").await.unwrap();

    model.assert_asked(0, &json!({"messages": [{"content": [{"text": "b"}]}]}));
}

#[test]
#[should_panic(expected = "called 0 times, so there is no call 0")]
fn asserting_a_call_that_was_not_made_fails() {
    ScriptedModel::new().assert_asked(0, &json!({}));
}

#[test]
#[should_panic(expected = "1 replies of the script were not used")]
fn asserting_the_end_of_an_unfinished_script_fails() {
    ScriptedModel::new().reply("one").assert_finished();
}

#[test]
#[should_panic(expected = "the model was called 0 times, expected 1")]
fn asserting_another_number_of_calls_fails() {
    ScriptedModel::new().assert_calls(1);
}

#[tokio::test]
async fn the_info_of_the_model_is_registered() {
    let registry = Registry::new();
    let info = ModelInfo {
        label: Some("Chef".to_owned()),
        ..ModelInfo::default()
    };

    let action = ScriptedModel::new()
        .with_info(info)
        .register(&registry, "chef")
        .unwrap();

    assert_eq!(action.descriptor().metadata["model"]["label"], "Chef");
    assert!(ScriptedModel::new().register(&registry, "chef").is_err());
}
