//! Streams of a generation.

use everturn_ai::{ModelInfo, ModelResponse, Role, Tool, ToolContext, define_model};
use everturn_core::{Context, Error, Status};
use futures::StreamExt;
use serde_json::json;

use crate::generate_support::{Chunks, constant, message, request, says, scripted, step, streaming};

#[tokio::test]
async fn text_accumulates_per_message_when_asked_to() {
    let asks = message(json!([request("t", "1", json!({}))]));
    let (_registry, _script, generate) =
        scripted([streaming(&["a", "b"], asks), streaming(&["c", "d"], says("cd"))]);
    let generate = generate.prompt("p").tool(constant("t", "o"));

    let stream = generate.stream().accumulating();
    let seen: Vec<_> = stream
        .map(|chunk| chunk.unwrap().accumulated_text().unwrap())
        .collect()
        .await;

    assert_eq!(seen, ["a", "ab", "", "c", "cd"]);
}

#[tokio::test]
async fn text_does_not_accumulate_unless_asked_to() {
    let (_registry, _script, generate) = scripted([streaming(&["a"], says("a"))]);

    let chunk = generate.prompt("p").stream().next().await.unwrap().unwrap();

    assert_eq!(chunk.accumulated_text(), None);
}

#[tokio::test]
async fn an_error_is_the_last_item_and_the_answer() {
    let (registry, _script, generate) = scripted([]);
    define_model(
        &registry,
        "half",
        ModelInfo::default(),
        |_request, emitter, _context| async move {
            emitter.send("a".into()).await?;
            Err::<ModelResponse, _>(Error::unavailable("gone").into())
        },
    )
    .unwrap();

    let mut stream = generate.model("half").prompt("p").stream();

    assert_eq!(stream.next().await.unwrap().unwrap().text(), "a");
    assert_eq!(
        stream.next().await.unwrap().unwrap_err().status(),
        Status::Unavailable
    );
    assert!(stream.next().await.is_none());
    assert_eq!(stream.response().await.unwrap_err().message(), "gone");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_callers_context_is_reported() {
    let (registry, _script, generate) = scripted([]);
    define_model(
        &registry,
        "slow",
        ModelInfo::default(),
        |_request, _emitter, _context| std::future::pending(),
    )
    .unwrap();
    let soon = tokio::time::Instant::now() + std::time::Duration::from_secs(1);

    let mut stream = generate
        .model("slow")
        .prompt("p")
        .context(Context::new().with_deadline(soon))
        .stream();

    assert_eq!(
        stream.next().await.unwrap().unwrap_err().status(),
        Status::DeadlineExceeded
    );
}

#[tokio::test]
async fn dropping_the_stream_cancels_the_model() {
    let (registry, _script, generate) = scripted([]);
    let (gone, mut receives) = tokio::sync::mpsc::channel::<()>(1);
    define_model(
        &registry,
        "slow",
        ModelInfo::default(),
        move |_request, emitter, context: Context| {
            let gone = gone.clone();
            tokio::spawn(async move {
                context.cancellation().cancelled().await;
                let _ = gone.send(()).await;
            });
            async move {
                emitter.send("a".into()).await?;
                Ok(std::future::pending::<everturn_core::Result<ModelResponse>>().await?)
            }
        },
    )
    .unwrap();

    let mut stream = generate.model("slow").prompt("p").stream();
    stream.next().await.unwrap().unwrap();
    drop(stream);

    assert_eq!(receives.recv().await, Some(()));
}

#[tokio::test]
async fn a_model_can_detect_a_missing_listener() {
    let (registry, _script, generate) = scripted([]);
    define_model(
        &registry,
        "curious",
        ModelInfo::default(),
        |_request, emitter, _context| async move {
            Ok(ModelResponse::text_of(emitter.is_streaming().to_string()))
        },
    )
    .unwrap();
    let generate = generate.model("curious").prompt("p");

    assert_eq!(generate.clone().await.unwrap().text(), "false");
    assert_eq!(generate.stream().response().await.unwrap().text(), "true");
}

#[tokio::test]
async fn a_tools_progress_is_streamed_and_not_kept() {
    let asks = message(json!([request("t", "1", json!({}))]));
    let (_registry, script, generate) = scripted([streaming(&["a"], asks), step(says("x"))]);
    let tool = Tool::dynamic("t", "d", None, |_input, cx: ToolContext| async move {
        cx.send_partial("half way").await;
        Ok(json!("done"))
    });
    let chunks = Chunks::default();

    generate
        .prompt("p")
        .tool(tool)
        .emitter(chunks.emitter())
        .await
        .unwrap();

    let progress = json!({
        "role": "tool",
        "index": 1,
        "content": [{
            "toolResponse": { "ref": "1", "name": "t", "output": "half way" },
            "metadata": { "partial": true },
        }],
    });
    assert_eq!(chunks.all()[1], progress);
    assert_eq!(chunks.all()[2]["index"], 1);
    assert_eq!(
        script.last_request()["messages"][2]["content"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_receiver_that_fails_stops_the_model() {
    let (_registry, _script, generate) = scripted([streaming(&["a", "b"], says("ab"))]);
    let full = everturn_core::Emitter::new(|_chunk| async { Err(Error::resource_exhausted("full").into()) });

    let error = generate.prompt("p").emitter(full).await.unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
}

#[tokio::test]
async fn requests_without_a_reference_get_one() {
    let asks =
        message(json!([{ "toolRequest": { "name": "t", "input": {} } }, { "toolRequest": { "name": "t" } }]));
    let (_registry, _script, generate) = scripted([step(asks), step(says("x"))]);

    let response = generate.prompt("p").tool(constant("t", "o")).await.unwrap();

    let messages = response.messages();
    let asked: Vec<_> = messages
        .get(1)
        .unwrap()
        .tool_requests()
        .map(|request| request.reference.clone())
        .collect();
    let answers = messages
        .iter()
        .find(|message| message.role() == Role::Tool)
        .unwrap()
        .content();
    let answered: Vec<_> = answers
        .iter()
        .map(|part| part.as_tool_response().unwrap().reference.clone())
        .collect();
    assert!(
        asked.iter().all(Option::is_some) && asked[0] != asked[1],
        "{asked:?}"
    );
    assert_eq!(asked, answered);
}
