//! Recorded: interrupts and resuming.

use everturn_ai::{Answers, JsonObject, Message, Part, Tool, ToolContext, reason};
use serde_json::{Value, json};

use crate::generate_support::{
    Chunks, assert_fails_as_recorded, comparable, constant, message, object_schema, recording, request, says,
    scripted, streaming,
};

/// Interrupts at first, and returns the restart's answer the second time.
fn confirm() -> Tool {
    Tool::dynamic("conf", "d", None, |_input, cx: ToolContext| async move {
        match cx.answer::<Value>()? {
            Some(resumed) => Ok(json!({ "resumed": resumed })),
            None => Err(cx.interrupt(()).into()),
        }
    })
}

fn ask() -> Tool {
    Tool::interrupt_with::<Value, Value, _>("ask", "d", |_input| json!({ "why": "x" }))
        .with_input_schema(object_schema("q", "string"))
        .with_output_schema(object_schema("a", "string"))
}

#[tokio::test]
async fn an_interrupt_its_pending_sibling_and_the_resumption() {
    let Some(recorded) = recording("interrupt_and_pending") else {
        return;
    };
    let asks = message(json!([
        { "text": "thinking" },
        request("ok", "1", json!({})),
        request("ask", "2", json!({ "q": "?" })),
        request("conf", "3", json!({})),
    ]));
    let (_registry, script, generate) =
        scripted([streaming(&["s"], asks), streaming(&["after"], says("end"))]);
    let generate = generate.tools([constant("ok", json!({ "v": 1 })), ask(), confirm()]);
    let (first_chunks, second_chunks) = (Chunks::default(), Chunks::default());

    let first = generate
        .clone()
        .prompt("hi")
        .emitter(first_chunks.emitter())
        .await
        .unwrap();

    assert_eq!(
        comparable(json!(first.clone().into_response())),
        recorded["first"]
    );
    assert_eq!(comparable(first_chunks.all()), recorded["chunks"]);

    let interrupts: Vec<Part> = first.interrupts().cloned().collect();
    let answer = ask().respond(&interrupts[0], json!({ "a": "yes" })).unwrap();
    let again = confirm().restart(&interrupts[1], json!({ "k": 1 })).unwrap();
    let metadata = JsonObject::from_iter([("m".to_owned(), json!(1))]);
    let answers = Answers {
        respond: vec![answer],
        restart: vec![again],
        metadata: Some(metadata),
    };
    let generate = generate.messages(first.messages()).answers(answers);
    let second = generate.emitter(second_chunks.emitter()).await.unwrap();

    assert_eq!(comparable(json!(second.into_response())), recorded["second"]);
    assert_eq!(comparable(second_chunks.all()), recorded["secondChunks"]);
    assert_eq!(comparable(script.last_request()), recorded["secondModelRequest"]);
}

#[tokio::test]
async fn an_interrupt_left_unanswered() {
    let (_registry, script, generate) = scripted([]);
    let waiting = request("ask", "1", json!({ "q": "?" }));
    let waiting: Message = serde_json::from_value(json!({ "role": "model", "content": [waiting] })).unwrap();
    let messages = [Message::user("hi"), waiting];

    let error = generate
        .tool(ask())
        .messages(messages)
        .answers(Answers::default())
        .await
        .unwrap_err();

    assert_fails_as_recorded("resume_unresolved", &error);
    assert!(error.is(reason::UNRESOLVED_TOOL_REQUEST));
    assert!(error.message().contains("'ask#1'"), "{error}");
    assert_eq!(script.calls(), 0);
}

#[tokio::test]
async fn a_resumption_without_an_interrupt() {
    let (_registry, _script, generate) = scripted([]);

    let error = generate
        .tool(ask())
        .messages([Message::user("hi")])
        .answers(Answers::default())
        .await
        .unwrap_err();

    assert_fails_as_recorded("resume_bad_last", &error);
}
