//! The generate loop records every outcome before it is used, and uses recorded outcomes.

use std::sync::{Arc, Mutex};

use everturn_ai::{
    EffectId, EffectJournal, FinishReason, Generate, Message, ModelEffect, ModelResponse, ModelResponseChunk,
    NextTool, Part, Reconciliation, Replay, Tool, ToolCall, ToolContext, ToolEffect, ToolErrors, ToolOutcome,
    ToolRecord, async_trait, interrupt, metadata, model_hook, tool_hook, with_journal,
};
use everturn_core::{Context, Emitter, Error, Result, Status};
use serde_json::{Value, json};

use crate::generate_support::{Step, message, request, says, scripted, step};

/// Records every call, and replays the records that it was created with.
#[derive(Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    reply: Mutex<Option<ModelResponse>>,
    record: Mutex<Option<ToolRecord>>,
    /// The record that it fails to write.
    broken: Option<&'static str>,
}

impl Notes {
    fn note(&self, line: String) -> Result<()> {
        let broken = self.broken.is_some_and(|word| line.starts_with(word));
        self.lines.lock().unwrap().push(line);
        if broken {
            return Err(Error::aborted("another worker has the turn"));
        }
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

#[async_trait]
impl EffectJournal for Notes {
    async fn asking(&self, effect: ModelEffect<'_>) -> Result<(EffectId, Option<ModelResponse>)> {
        let id = EffectId::from(format!("m{}", effect.request.messages.len()));
        self.note(format!("asking {id}"))?;
        Ok((id, self.reply.lock().unwrap().take()))
    }

    async fn replied(&self, id: &EffectId, response: &ModelResponse) -> Result<()> {
        let requests: Vec<_> = response.message.iter().flat_map(Message::tool_requests).collect();
        assert!(requests.iter().all(|request| request.reference.is_some()));
        self.note(format!("replied {id} ({} requests)", requests.len()))
    }

    async fn calling(&self, effect: ToolEffect<'_>) -> Result<(EffectId, ToolRecord)> {
        let reply = effect.asked_by.map_or("restart", EffectId::as_str);
        let id = EffectId::from(format!("{}.{reply}.{}", effect.request.name, effect.position));
        self.note(format!("calling {id} {:?}", effect.replay))?;
        let known = self.record.lock().unwrap().take();
        Ok((id, known.unwrap_or(ToolRecord::Nothing)))
    }

    async fn started(&self, id: &EffectId) -> Result<()> {
        self.note(format!("started {id}"))
    }

    async fn ended(&self, id: &EffectId, outcome: &ToolOutcome) -> Result<()> {
        let how = match outcome {
            ToolOutcome::Finished(response) => json!(response.output),
            ToolOutcome::Interrupted(data) => json!({ "asks": data }),
        };
        self.note(format!("ended {id} {how}"))
    }

    async fn failed(&self, id: &EffectId, error: &Error, had_no_effect: bool) {
        let _ = self.note(format!("failed {id} {} {had_no_effect}", error.status().name()));
    }
}

fn asks(input: Value) -> Step {
    step(message(json!([request("act", "1", input)])))
}

/// A tool that returns its effect id, and on request fails, panics or asks.
fn act(notes: &Arc<Notes>) -> Tool {
    let notes = Arc::clone(notes);
    Tool::dynamic("act", "Acts.", None, move |input: Value, cx: ToolContext| {
        let notes = Arc::clone(&notes);
        async move {
            notes.note(format!("act under {}", cx.effect_id()))?;
            match input["do"].as_str() {
                Some("fail") => Err(Error::unavailable("later").into()),
                Some("excuse") => {
                    let status: Status = serde_json::from_value(input["status"].clone()).unwrap();
                    Err(Error::new(status, "later").for_model().into())
                }
                Some("refuse") => Err(Error::unavailable("later").nothing_happened().into()),
                Some("panic") => panic!("dropped the pan"),
                Some("ask") => Err(cx.interrupt("may I?").into()),
                Some("wonder") => Err(cx.outcome_unknown().into()),
                _ => Ok(json!("acted")),
            }
        }
    })
}

fn beside(notes: &Arc<Notes>, generate: Generate) -> Generate {
    let context = with_journal(Context::new(), Arc::clone(notes) as Arc<dyn EffectJournal>);
    generate.prompt("p").tool(act(notes)).context(context)
}

#[tokio::test]
async fn every_outcome_is_recorded_before_it_is_used() {
    let (_registry, _script, generate) = scripted([asks(json!({})), step(says("done"))]);
    let notes = Arc::new(Notes::default());

    let reply = beside(&notes, generate).await.unwrap();

    assert_eq!(reply.text(), "done");
    let expected = [
        "asking m1",
        "replied m1 (1 requests)",
        "calling act.m1.0 Once",
        "started act.m1.0",
        "act under act.m1.0",
        r#"ended act.m1.0 "acted""#,
        "asking m3",
        "replied m3 (0 requests)",
    ];
    assert_eq!(notes.lines(), expected);
}

#[tokio::test]
async fn a_known_reply_is_streamed_whole_and_the_model_is_not_asked() {
    let (_registry, script, generate) = scripted([]);
    let notes = Arc::new(Notes::default());
    *notes.reply.lock().unwrap() = Some(ModelResponse::text_of("as I said"));
    let (sender, mut chunks) = tokio::sync::mpsc::channel::<ModelResponseChunk>(8);

    let reply = beside(&notes, generate)
        .emitter(Emitter::channel(sender))
        .await
        .unwrap();

    assert_eq!((reply.text().as_ref(), script.calls()), ("as I said", 0));
    let mut texts = Vec::new();
    while let Some(chunk) = chunks.recv().await {
        texts.push((chunk.text().into_owned(), chunk.index));
    }
    assert_eq!(texts, [("as I said".to_owned(), Some(0))]);
    assert_eq!(notes.lines(), ["asking m1"]);
}

#[tokio::test]
async fn a_known_result_is_used_and_the_tool_is_not_run() {
    let (_registry, script, generate) = scripted([asks(json!({})), step(says("done"))]);
    let notes = Arc::new(Notes::default());
    let known =
        serde_json::from_value(json!({"output": "known", "content": [{"text": "and more"}]})).unwrap();
    *notes.record.lock().unwrap() = Some(ToolRecord::Ended(ToolOutcome::Finished(known)));

    beside(&notes, generate).await.unwrap();

    let answer = &script.json_requests()[1]["messages"][2]["content"][0]["toolResponse"];
    assert_eq!(answer["output"], "known");
    assert_eq!(answer["content"], json!([{"text": "and more"}]));
    assert!(!notes.lines().iter().any(|line| line.starts_with("started")));
}

#[tokio::test]
async fn a_call_of_unknown_outcome_interrupts_with_that_mark() {
    let (_registry, _script, generate) = scripted([asks(json!({}))]);
    let notes = Arc::new(Notes::default());
    *notes.record.lock().unwrap() = Some(ToolRecord::Started);

    let reply = beside(&notes, generate).await.unwrap();

    assert_eq!(reply.finish_reason, Some(FinishReason::Interrupted));
    let question = reply.message.as_ref().unwrap().interrupts().next().unwrap();
    let data = question.interrupt().unwrap();
    assert_eq!(data[metadata::OUTCOME_UNKNOWN], true);
    assert_eq!(data["effectId"], "act.m1.0");
    assert_eq!(notes.lines().last().unwrap(), "calling act.m1.0 Once");
}

#[tokio::test]
async fn a_tool_that_can_reconcile_resolves_it() {
    let found = [
        (Reconciliation::Happened(json!("paid")), "paid", 0),
        (Reconciliation::NeverHappened, "acted", 1),
    ];
    for (finding, output, runs) in found {
        let (_registry, script, generate) = scripted([asks(json!({"n": 1})), step(says("done"))]);
        let notes = Arc::new(Notes::default());
        *notes.record.lock().unwrap() = Some(ToolRecord::Started);
        let looked = Arc::clone(&notes);
        let tool = act(&notes).with_reconcile(move |input: Value, cx: ToolContext| {
            let (looked, finding) = (Arc::clone(&looked), finding.clone());
            async move {
                looked.note(format!("looking for {} {input}", cx.effect_id()))?;
                Ok(finding)
            }
        });
        let context = with_journal(Context::new(), Arc::clone(&notes) as Arc<dyn EffectJournal>);

        generate.prompt("p").tool(tool).context(context).await.unwrap();

        let lines = notes.lines();
        assert!(
            lines.contains(&r#"looking for act.m1.0 {"n":1}"#.to_owned()),
            "{lines:?}"
        );
        assert!(
            lines.contains(&format!("ended act.m1.0 \"{output}\"")),
            "{lines:?}"
        );
        let ran = lines.iter().filter(|line| line.starts_with("act under")).count();
        assert_eq!(ran, runs);
        let answer = &script.json_requests()[1]["messages"][2]["content"][0]["toolResponse"];
        assert_eq!(answer["output"], output);
    }
}

#[tokio::test]
async fn a_tool_that_cannot_find_out_now_fails_the_turn_with_its_status() {
    let (_registry, _script, generate) = scripted([asks(json!({}))]);
    let notes = Arc::new(Notes::default());
    *notes.record.lock().unwrap() = Some(ToolRecord::Started);
    let tool = act(&notes).with_reconcile(|_: Value, _| async {
        Ok(Err::<Reconciliation<Value>, _>(Error::unavailable(
            "the bank is closed",
        ))?)
    });
    let context = with_journal(Context::new(), Arc::clone(&notes) as Arc<dyn EffectJournal>);

    let error = generate
        .prompt("p")
        .tool(tool)
        .context(context)
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::Unavailable);
    assert!(!notes.lines().iter().any(|line| line.starts_with("started")));
}

#[tokio::test]
async fn only_a_marked_error_means_that_nothing_happened() {
    let (_registry, _script, generate) = scripted([asks(json!({"do": "refuse"}))]);
    let notes = Arc::new(Notes::default());

    let error = beside(&notes, generate).await.unwrap_err();

    assert!(error.is(everturn_ai::reason::TOOL_FAILED));
    assert_eq!(notes.lines().last().unwrap(), "failed act.m1.0 UNAVAILABLE true");
}

#[tokio::test]
async fn an_error_for_the_model_leaves_the_outcome_open_unless_its_status_refuses_the_call() {
    for (status, is_open) in [
        (Status::DeadlineExceeded, true),
        (Status::Unavailable, true),
        (Status::Cancelled, true),
        (Status::Aborted, true),
        (Status::Internal, true),
        (Status::Unknown, true),
        (Status::NotFound, false),
        (Status::ResourceExhausted, false),
    ] {
        let input = json!({"do": "excuse", "status": status});
        let (_registry, _script, generate) = scripted([asks(input), step(says("done"))]);
        let notes = Arc::new(Notes::default());

        let outcome = beside(&notes, generate.tool_errors(ToolErrors::Fail)).await;

        let reply = outcome.unwrap();
        let mut interrupts = reply.message.iter().flat_map(Message::interrupts);
        let question = interrupts.next();
        assert_eq!(
            question.is_some_and(Part::is_outcome_unknown),
            is_open,
            "{status}"
        );
    }
}

#[tokio::test]
async fn the_outcome_of_a_call_that_fails_otherwise_is_unknown() {
    for what in ["fail", "panic"] {
        let (_registry, _script, generate) = scripted([asks(json!({"do": what}))]);
        let notes = Arc::new(Notes::default());

        let reply = beside(&notes, generate).await.unwrap();

        let question = reply.message.as_ref().unwrap().interrupts().next().unwrap();
        assert!(question.is_outcome_unknown(), "{what}");
        assert!(
            notes.lines().last().unwrap().starts_with("ended act.m1.0"),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_hook_cannot_repeat_a_call_that_may_have_taken_effect() {
    for (what, runs) in [("fail", 1), ("refuse", 3)] {
        let (_registry, _script, generate) = scripted([asks(json!({"do": what}))]);
        let notes = Arc::new(Notes::default());
        let stubborn = tool_hook(|call: ToolCall, next: NextTool| async move {
            for _ in 0..2 {
                let _ = next.clone().run(call.clone()).await;
            }
            next.run(call).await.map_err(Into::into)
        });

        let _ = beside(&notes, generate).use_middleware(stubborn).await;

        let ran = notes
            .lines()
            .iter()
            .filter(|line| line.starts_with("act under"))
            .count();
        assert_eq!(ran, runs, "{what}");
    }
}

#[tokio::test]
async fn a_call_that_was_cut_short_is_not_made() {
    let (_registry, script, generate) = scripted([asks(json!({})), step(says("done"))]);
    let notes = Arc::new(Notes::default());
    *notes.record.lock().unwrap() = Some(ToolRecord::CutShort);
    let tool = act(&notes).with_reconcile(|_: Value, _| async { Ok(Reconciliation::<Value>::NeverHappened) });
    let context = with_journal(Context::new(), Arc::clone(&notes) as Arc<dyn EffectJournal>);

    generate.prompt("p").tool(tool).context(context).await.unwrap();

    assert!(!notes.lines().iter().any(|line| line.starts_with("act under")));
    let answer = &script.json_requests()[1]["messages"][2]["content"][0]["toolResponse"];
    assert_eq!(answer["output"]["error"]["status"], "ABORTED");
}

#[tokio::test]
async fn questions_of_a_tool_are_outcomes() {
    let (_registry, _script, generate) = scripted([asks(json!({"do": "ask"}))]);
    let notes = Arc::new(Notes::default());

    let reply = beside(&notes, generate).await.unwrap();

    assert_eq!(reply.finish_reason, Some(FinishReason::Interrupted));
    assert_eq!(
        notes.lines().last().unwrap(),
        r#"ended act.m1.0 {"asks":"may I?"}"#
    );
}

#[tokio::test]
async fn a_tool_may_say_itself_that_it_does_not_know() {
    let (_registry, _script, generate) = scripted([asks(json!({"do": "wonder"}))]);
    let notes = Arc::new(Notes::default());

    let reply = beside(&notes, generate).await.unwrap();

    let question = reply.message.as_ref().unwrap().interrupts().next().unwrap();
    assert_eq!(question.interrupt().unwrap()["effectId"], "act.m1.0");
}

#[tokio::test]
async fn middleware_is_inside_and_what_it_holds_back_has_not_begun() {
    let (_registry, script, generate) = scripted([asks(json!({}))]);
    let notes = Arc::new(Notes::default());
    let approval = tool_hook(|_call, _next| async { Err(interrupt("approve?").into()) });

    beside(&notes, generate).use_middleware(approval).await.unwrap();

    assert_eq!(script.calls(), 1);
    assert!(!notes.lines().iter().any(|line| line.starts_with("started")));
    assert_eq!(
        notes.lines().last().unwrap(),
        r#"ended act.m1.0 {"asks":"approve?"}"#
    );
}

#[tokio::test]
async fn a_known_reply_asks_no_model_hook() {
    let (_registry, _script, generate) = scripted([]);
    let notes = Arc::new(Notes::default());
    *notes.reply.lock().unwrap() = Some(ModelResponse::text_of("known"));
    let trap = model_hook(|_call, _next| async { Err(Error::internal("was asked").into()) });

    let reply = beside(&notes, generate).use_middleware(trap).await.unwrap();

    assert_eq!(reply.text(), "known");
}

#[tokio::test]
async fn an_outcome_that_cannot_be_recorded_is_not_used() {
    for (word, last) in [
        ("replied", "replied m1 (1 requests)"),
        ("started", "started act.m1.0"),
        ("ended", r#"ended act.m1.0 "acted""#),
    ] {
        let (_registry, script, generate) = scripted([asks(json!({})), step(says("done"))]);
        let notes = Arc::new(Notes {
            broken: Some(word),
            ..Notes::default()
        });

        let error = beside(&notes, generate).await.unwrap_err();

        assert_eq!(error.status(), Status::Aborted, "{word}");
        assert_eq!(
            (notes.lines().last().unwrap().as_str(), script.calls()),
            (last, 1)
        );
    }
}

#[tokio::test]
async fn a_generation_inside_a_tool_is_the_tools_own_business() {
    let (registry, _script, generate) = scripted([
        step(message(json!([request("think", "1", json!({}))]))),
        step(says("inner")),
        step(says("outer")),
    ]);
    let notes = Arc::new(Notes::default());
    let think = Tool::dynamic("think", "Thinks.", None, move |_: Value, _: ToolContext| {
        let inner = Generate::new(&registry).model("programmableModel").prompt("q");
        async move { Ok(json!(inner.await?.text())) }
    })
    .with_replay(Replay::Idempotent);

    let reply = beside(&notes, generate).tool(think).await.unwrap();

    assert_eq!(reply.text(), "outer");
    let asked = notes
        .lines()
        .iter()
        .filter(|line| line.starts_with("asking"))
        .count();
    assert_eq!(asked, 2);
}

#[test]
fn calls_without_a_journal_have_unique_identities() {
    let (one, other) = (ToolContext::new(Context::new()), ToolContext::new(Context::new()));

    assert_eq!(one.effect_id(), one.clone().effect_id());
    assert_ne!(one.effect_id(), other.effect_id());
}
