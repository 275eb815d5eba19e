//! A tool asks, the process ends, another process answers: everything in between is JSON.

use everturn_ai::{FinishReason, Generate, Generated, Message, ModelInfo, Part, Tool, ToolContext};
use everturn_core::{Registry, Result, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::generate_support;
use crate::generate_support::{Script, Step, message, request, says, step};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Transfer {
    euros: u32,
}

/// The question of the tool.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Question {
    limit: u32,
}

/// The answer of a person.
#[derive(Debug, Serialize, Deserialize)]
struct Approval {
    by: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Receipt {
    text: String,
}

fn transfer() -> Tool {
    Tool::new(
        "transfer",
        "Sends money.",
        |order: Transfer, cx: ToolContext| async move {
            let Some(approval) = cx.answer::<Approval>()? else {
                return Err(cx.interrupt(Question { limit: 100 }).into());
            };
            assert_eq!(cx.interrupted_with(), Some(&json!({ "limit": 100 })));
            Ok(Receipt {
                text: format!("{} euros, approved by {}", order.euros, approval.by),
            })
        },
    )
}

fn balance() -> Tool {
    Tool::new(
        "balance",
        "What there is.",
        |(): (), cx: ToolContext| async move {
            cx.attach(Part::text("as of today"));
            Ok(7)
        },
    )
    .with_input_schema(None)
}

/// A process: its own registry, with the same tools and a model that goes on where its script is.
fn process(steps: Vec<Step>) -> (Registry, Script) {
    let registry = Registry::new();
    let script = Script::define(&registry, ModelInfo::default(), steps);
    (registry, script)
}

fn asks() -> Value {
    message(json!([
        request("balance", "1", Value::Null),
        request("transfer", "2", json!({ "euros": 500 }))
    ]))
}

/// Runs until the tool asks, and gives all that is left of the process.
async fn interrupted() -> Result<String> {
    let (registry, _script) = process(vec![step(asks())]);
    let reply = Generate::new(&registry)
        .model("programmableModel")
        .prompt("Send 500 to Ada.")
        .tools([balance(), transfer()])
        .await?;
    assert_eq!(reply.finish_reason(), FinishReason::Interrupted);
    Ok(serde_json::to_string(&reply.messages())?)
}

/// Goes on when Bob has approved of what the tool asked.
async fn approved(registry: &Registry, messages: Vec<Message>, waiting: &Part) -> Result<Generated> {
    let by_bob = Approval { by: "Bob".to_owned() };
    Generate::new(registry)
        .model("programmableModel")
        .messages(messages)
        .tools([balance(), transfer()])
        .restart(transfer().restart(waiting, by_bob)?)
        .await
}

fn reload(stored: &str) -> Result<(Vec<Message>, Part)> {
    let messages: Vec<Message> = serde_json::from_str(stored)?;
    let waiting = messages
        .last()
        .and_then(|message| message.interrupts().next())
        .cloned();
    Ok((messages, waiting.expect("a tool waits")))
}

#[tokio::test]
async fn the_question_is_typed_and_so_is_the_restart() {
    let stored = interrupted().await.unwrap();

    let (messages, waiting) = reload(&stored).unwrap();
    let question: Question = serde_json::from_value(waiting.interrupt().unwrap().clone()).unwrap();
    let (registry, script) = process(vec![step(says("Done."))]);
    let reply = approved(&registry, messages, &waiting).await.unwrap();

    assert_eq!(question, Question { limit: 100 });
    assert_eq!(reply.text(), "Done.");
    let answers = script.last_request()["messages"][2]["content"].clone();
    assert_eq!(
        answers[1]["toolResponse"]["output"],
        json!({ "text": "500 euros, approved by Bob" })
    );
}

#[tokio::test]
async fn a_sibling_that_had_finished_is_not_run_again_and_its_whole_answer_is_kept() {
    let (messages, waiting) = reload(&interrupted().await.unwrap()).unwrap();
    let (registry, script) = process(vec![step(says("Done."))]);
    let must_not_run = Tool::dynamic("balance", "d", None, |_input, _cx: ToolContext| async {
        panic!("ran again")
    });

    Generate::new(&registry)
        .model("programmableModel")
        .messages(messages)
        .tools([must_not_run, transfer()])
        .respond(
            transfer()
                .respond(
                    &waiting,
                    Receipt {
                        text: "by hand".to_owned(),
                    },
                )
                .unwrap(),
        )
        .await
        .unwrap();

    let answers = script.last_request()["messages"][2]["content"].clone();
    assert_eq!(answers[0]["toolResponse"]["output"], 7);
    assert_eq!(
        answers[0]["toolResponse"]["content"],
        json!([{ "text": "as of today" }])
    );
    assert_eq!(answers[1]["toolResponse"]["output"], json!({ "text": "by hand" }));
}

#[tokio::test]
async fn an_input_may_be_replaced_and_the_tool_receives_the_old_one() {
    let (messages, waiting) = reload(&interrupted().await.unwrap()).unwrap();
    let (registry, script) = process(vec![step(says("Done."))]);
    let careful = Tool::new("transfer", "d", |order: Transfer, cx: ToolContext| async move {
        let before = cx.original_input::<Transfer>()?.map(|transfer| transfer.euros);
        Ok(Receipt {
            text: format!("{} instead of {before:?}", order.euros),
        })
    });

    Generate::new(&registry)
        .model("programmableModel")
        .messages(messages)
        .tools([balance(), careful.clone()])
        .restart(
            careful
                .restart_with_input(&waiting, (), Transfer { euros: 5 })
                .unwrap(),
        )
        .await
        .unwrap();

    let answers = script.last_request()["messages"][2]["content"].clone();
    assert_eq!(
        answers[1]["toolResponse"]["output"],
        json!({ "text": "5 instead of Some(500)" })
    );
}

#[tokio::test]
async fn answers_of_the_wrong_shape_are_refused() {
    let (messages, waiting) = reload(&interrupted().await.unwrap()).unwrap();

    let by_the_tool = transfer().respond(&waiting, json!({ "wrong": 1 })).unwrap_err();
    let other_tool = balance().respond(&waiting, 1).unwrap_err();
    let wrong_input = transfer()
        .restart_with_input(&waiting, (), json!({ "euros": "all" }))
        .unwrap_err();
    assert_eq!(by_the_tool.status(), Status::InvalidArgument);
    assert_eq!(other_tool.status(), Status::InvalidArgument);
    assert_eq!(wrong_input.status(), Status::InvalidArgument);

    let (registry, script) = process(vec![]);
    let generate = Generate::new(&registry)
        .model("programmableModel")
        .messages(messages)
        .tools([balance(), transfer()]);
    let forged = waiting.respond(json!({ "wrong": 1 }), None).unwrap();
    let by_the_loop = generate.clone().respond(forged).await.unwrap_err();
    let not_an_answer = generate.respond(waiting).await.unwrap_err();
    assert_eq!(by_the_loop.status(), Status::InvalidArgument);
    assert_eq!(not_an_answer.status(), Status::InvalidArgument);
    assert_eq!(script.calls(), 0);
}

#[tokio::test]
async fn a_tool_that_interrupts_again_when_restarted_fails_the_call() {
    let (messages, waiting) = reload(&interrupted().await.unwrap()).unwrap();
    let (registry, _script) = process(vec![]);
    let stubborn = Tool::new("transfer", "d", |_order: Transfer, cx: ToolContext| async move {
        Err::<Receipt, _>(cx.interrupt(Question { limit: 1 }).into())
    });

    let generate = Generate::new(&registry)
        .model("programmableModel")
        .messages(messages);
    let error = generate
        .tools([balance(), stubborn.clone()])
        .restart(stubborn.restart(&waiting, ()).unwrap())
        .await;

    assert_eq!(error.unwrap_err().status(), Status::FailedPrecondition);
}

#[tokio::test]
async fn falsy_outputs_of_siblings_survive() {
    for output in [Value::Null, json!(0), json!(""), json!(false)] {
        let asks = message(json!([
            request("quiet", "1", json!({})),
            request("ask", "2", json!({}))
        ]));
        let (registry, _script) = process(vec![step(asks)]);
        let tools = || {
            [
                generate_support::constant("quiet", output.clone()),
                Tool::interrupt::<Value, Value>("ask", "d"),
            ]
        };
        let reply = Generate::new(&registry)
            .model("programmableModel")
            .prompt("p")
            .tools(tools())
            .await
            .unwrap();
        let waiting = reply.interrupts().next().cloned().unwrap();

        let (registry, script) = process(vec![step(says("x"))]);
        let generate = Generate::new(&registry)
            .model("programmableModel")
            .messages(reply.messages())
            .tools(tools());
        generate
            .respond(waiting.respond("yes", None).unwrap())
            .await
            .unwrap();

        let answers = script.last_request()["messages"][2]["content"].clone();
        assert_eq!(answers[0]["toolResponse"].get("output"), Some(&output));
    }
}

/// The variable with the conversation of the other process.
const STORED: &str = "EVERTURN_TEST_STORED_CONVERSATION";

/// Not its own test: the process that answers, when it is started by the test below.
#[tokio::test]
async fn the_other_process() {
    let Ok(stored) = std::env::var(STORED) else { return };
    let (messages, waiting) = reload(&stored).unwrap();
    let (registry, _script) = process(vec![step(says("Done in another process."))]);

    let reply = approved(&registry, messages, &waiting).await.unwrap();

    println!("{}", json!(reply.messages()));
}

#[tokio::test]
async fn another_process_answers_the_interrupt_with_a_typed_value() {
    let stored = interrupted().await.unwrap();

    let other = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "interrupt_survives_a_restart::the_other_process",
            "--nocapture",
        ])
        .env(STORED, stored)
        .output()
        .unwrap();

    let output = String::from_utf8(other.stdout).unwrap();
    assert!(other.status.success(), "{output}");
    assert!(output.contains("500 euros, approved by Bob"), "{output}");
    assert!(output.contains("Done in another process."), "{output}");
}
