//! An answer is valid for its own call: in time, by authorised people, and recorded with their identity.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everturn_agent::archive::Archive;
use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInput, AgentReply, Clock, InlinePrompt, Interrupt,
    SnapshotId, WhileInterrupted, agent,
};
use everturn_ai::builtin_middleware::ToolApproval;
use everturn_ai::{
    Answers, Approval, ApprovalForm, Declined, Message, Part, Repeat, Replay, Tool, ToolContext,
};
use everturn_core::{Principal, Result, SpanListener, SpanRecord, Status, listen_to_spans};
use everturn_testkit::{Reply, ScriptedModel};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::prompt_support::{answering, call, said};

/// A bank with two customers' worth of people, whose one tool asks before it moves money.
struct Bank {
    agent: Agent,
    store: MemoryStore,
    model: ScriptedModel,
    paid: Arc<AtomicUsize>,
    /// Seconds since 1970.
    clock: Arc<AtomicI64>,
}

type Builder = AgentBuilder<Value, InlinePrompt>;

impl Bank {
    fn new(change: impl FnOnce(Tool) -> Tool) -> Self {
        Self::with(change, |builder| builder)
    }

    fn with(change: impl FnOnce(Tool) -> Tool, build: impl FnOnce(Builder) -> Builder) -> Self {
        let replies = [Reply::from(call("pay", "1", json!({"sum": 5})))];
        let (registry, model) = answering(replies);
        let model = model.replies(vec!["done"; 8]);
        let (paid, clock) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI64::new(1_000)));
        let (count, time) = (Arc::clone(&paid), Arc::clone(&clock));
        let pay = Tool::dynamic("pay", "Moves money.", None, move |input, cx: ToolContext| {
            let count = Arc::clone(&count);
            async move {
                let Some(answer) = cx.answer::<Value>()? else {
                    return Err(cx.interrupt(json!({"ask": "pay?"})).into());
                };
                if answer["approved"] == false {
                    return Ok(json!("refused"));
                }
                count.fetch_add(1, Ordering::SeqCst);
                Ok(json!(format!("paid {}", input["sum"])))
            }
        });
        let store = MemoryStore::new();
        let clock_of_agent = Clock::new(move || Timestamp::from_second(time.load(Ordering::SeqCst)).unwrap());
        let builder = agent(&registry, "bank").tool(change(pay)).clock(clock_of_agent);
        Self {
            agent: build(builder).store(store.clone()).define().unwrap(),
            store,
            model,
            paid,
            clock,
        }
    }

    /// The customer's turn, which ends with the question.
    async fn ask(&self) -> AgentReply {
        let asked = self
            .agent
            .chat()
            .resume("s")
            .context(ann())
            .run("pay")
            .await
            .unwrap();
        assert_eq!(asked.finish_reason(), AgentFinishReason::Interrupted);
        asked
    }

    async fn answer(&self, who: &Principal, answer: impl Into<Answers>) -> Result<AgentReply> {
        let input = AgentInput::from(answer.into());
        self.agent.chat().resume("s").context(who).run(input).await
    }

    /// Answers at an earlier snapshot, which begins a branch.
    async fn answer_at(&self, from: &SnapshotId, who: &Principal, answer: Part) -> Result<AgentReply> {
        let input = AgentInput::from(Answers::from(answer));
        self.agent
            .chat()
            .snapshot(from.clone())
            .context(who)
            .run(input)
            .await
    }

    async fn approval(&self) -> Approval {
        let archive = self.archive();
        let state = archive.latest("s").await.unwrap().state.unwrap();
        let found = state.messages.iter().flat_map(Message::approvals).last();
        found.expect("the call was asked about").1
    }

    fn archive(&self) -> Archive {
        Archive::of(self.store.clone(), ann().scope())
    }

    fn paid(&self) -> usize {
        self.paid.load(Ordering::SeqCst)
    }

    fn pass(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }
}

fn ann() -> Principal {
    Principal::new("ann")
}

fn staff(id: &str) -> Principal {
    Principal::new(id).in_tenant("ann")
}

fn yes(asked: &AgentReply) -> Part {
    asked.interrupts()[0].restart(json!({"approved": true})).unwrap()
}

fn no(asked: &AgentReply) -> Part {
    asked.interrupts()[0].restart(json!({"approved": false})).unwrap()
}

#[tokio::test]
async fn an_answer_is_recorded_with_its_principal_its_time_and_its_call() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    let question = asked.interrupts()[0].approval().unwrap();
    assert_eq!(question.asked_by.as_deref(), Some("ann"));
    assert_eq!(question.asked_at, Some(Timestamp::from_second(1_000).unwrap()));
    assert!(question.answers.is_empty() && !question.is_answered());
    bank.pass(60);

    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let approval = bank.approval().await;
    assert_eq!((&approval.id, &approval.call), (&question.id, &question.call));
    let [answer] = &approval.answers[..] else {
        panic!("one answer, not {approval:?}");
    };
    assert_eq!(answer.by.as_deref(), Some("carl"));
    assert_eq!(answer.at, Timestamp::from_second(1_060).unwrap());
    assert_eq!(answer.form, ApprovalForm::Restart);
    assert!(!answer.is_edited());
    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn a_response_and_a_refusal_are_recorded_too() {
    for (output, form) in [
        (json!("paid by hand"), ApprovalForm::Respond),
        (Declined::denied("too much").output(), ApprovalForm::Decline),
    ] {
        let bank = Bank::new(|pay| pay);
        let asked = bank.ask().await;

        let answer = asked.interrupts()[0].respond(output).unwrap();
        bank.answer(&staff("carl"), answer).await.unwrap();

        let approval = bank.approval().await;
        assert_eq!(approval.answers[0].form, form);
        assert_eq!(approval.answers[0].by.as_deref(), Some("carl"));
        assert_eq!(bank.paid(), 0);
    }
}

#[tokio::test]
async fn an_export_shows_who_approved_what() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let mut file = Vec::new();
    bank.archive().export("s", &mut file).await.unwrap();

    let text = String::from_utf8(file).unwrap();
    let approval = bank.approval().await;
    for shown in [
        "\"approval\"",
        "\"carl\"",
        approval.call.as_str(),
        approval.id.as_str(),
    ] {
        assert!(text.contains(shown), "{shown} is not in the export");
    }
}

/// Keeps the value of one attribute, of all spans that have it.
#[derive(Default)]
struct Attributes(Mutex<Vec<String>>);

impl SpanListener for Attributes {
    fn started(&self, _span: &SpanRecord) {}

    fn ended(&self, span: &Arc<SpanRecord>) {
        if let Some(value) = span.attributes.get("everturn.approvals") {
            self.0
                .lock()
                .unwrap()
                .push(value.as_str().unwrap_or_default().to_owned());
        }
    }
}

#[tokio::test]
async fn a_span_records_who_approved_what() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    let spans = Arc::new(Attributes::default());
    let listening = listen_to_spans(Arc::clone(&spans) as Arc<dyn SpanListener>);

    bank.answer(&staff("dora-of-the-spans"), yes(&asked))
        .await
        .unwrap();
    drop(listening);

    let approval = bank.approval().await;
    let seen = spans.0.lock().unwrap().clone();
    // Other tests of this process have spans, too.
    let own: Vec<Value> = seen
        .iter()
        .filter(|text| text.contains("dora-of-the-spans"))
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    assert_eq!(own.len(), 1, "{seen:?}");
    assert_eq!(own[0][0]["call"], json!(approval.call));
    assert_eq!(own[0][0]["tool"], "pay");
    assert_eq!(own[0][0]["edited"], false);
}

#[tokio::test]
async fn edited_arguments_need_the_tools_word_and_are_recorded() {
    let edited = |asked: &AgentReply| {
        let question = &asked.interrupts()[0];
        question
            .restart_with(json!({"approved": true}), json!({"sum": 3}))
            .unwrap()
    };

    let strict = Bank::new(|pay| pay);
    let asked = strict.ask().await;
    let refused = strict.answer(&staff("carl"), edited(&asked)).await.unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.message().contains("pay#1"), "{refused}");

    let forbidden = Bank::with(|pay| pay.with_editable_input(false), Builder::allow_edited_inputs);
    let asked = forbidden.ask().await;
    forbidden
        .answer(&staff("carl"), edited(&asked))
        .await
        .unwrap_err();
    assert_eq!(strict.paid() + forbidden.paid(), 0);

    let free = Bank::new(|pay| pay.with_editable_input(true));
    let asked = free.ask().await;
    free.answer(&staff("carl"), edited(&asked)).await.unwrap();
    let approval = free.approval().await;
    assert_eq!(approval.answers[0].edited_input, Some(json!({"sum": 3})));
    free.model.assert_asked(
        1,
        &json!({"messages": [{"content": [{"toolResponse": {"output": "paid 3"}}]}]}),
    );

    let silent = Bank::new(|pay| pay.with_editable_input(true));
    let asked = silent.ask().await;
    let forged = Part::from(call("pay", "1", json!({"sum": 500})));
    let refused = silent.answer(&staff("carl"), forged).await.unwrap_err();
    assert_eq!(refused.status(), Status::InvalidArgument);
    assert_eq!(asked.interrupts().len(), 1);
}

#[tokio::test]
async fn an_answer_to_another_question_about_the_same_call_is_refused() {
    let bank = Bank::new(|pay| pay);
    let other = Bank::new(|pay| pay);
    let (_, elsewhere) = (bank.ask().await, other.ask().await);

    let refused = bank.answer(&staff("carl"), yes(&elsewhere)).await.unwrap_err();

    assert_eq!(refused.status(), Status::FailedPrecondition);
    assert!(refused.message().contains("pay#1"), "{refused}");
    assert_eq!(bank.paid(), 0);
}

#[tokio::test]
async fn a_question_expires_and_can_still_be_declined() {
    let bank = Bank::new(|pay| pay.answered_within(Duration::from_mins(1)));
    let asked = bank.ask().await;
    let until = asked.interrupts()[0].approval().unwrap().until;
    assert_eq!(until, Some(Timestamp::from_second(1_060).unwrap()));
    bank.pass(61);

    let late = bank.answer(&staff("carl"), yes(&asked)).await.unwrap_err();
    assert_eq!(late.status(), Status::FailedPrecondition);
    assert_eq!(late.details().unwrap()["reason"], "question-expired");
    assert!(late.message().contains("pay#1"), "{late}");
    assert_eq!(bank.paid(), 0);

    let declined = asked.interrupts()[0]
        .respond(Declined::Cancelled.output())
        .unwrap();
    bank.answer(&staff("carl"), declined).await.unwrap();
}

#[tokio::test]
async fn an_answer_in_the_last_second_counts() {
    let bank = Bank::new(|pay| pay.answered_within(Duration::from_mins(1)));
    let asked = bank.ask().await;
    bank.pass(60);

    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn an_expired_question_does_not_hold_the_conversation_up() {
    let bank = Bank::with(
        |pay| pay.answered_within(Duration::from_mins(1)),
        |bank| bank.while_interrupted(WhileInterrupted::Reject),
    );
    bank.ask().await;
    let talk = || bank.agent.chat().resume("s").context(ann()).run("hello?");
    assert_eq!(talk().await.unwrap_err().status(), Status::FailedPrecondition);

    bank.pass(61);
    assert_eq!(talk().await.unwrap().text(), "done");

    let history = bank.archive().latest("s").await.unwrap().state.unwrap().messages;
    assert!(
        said(&history).join("\n").contains("not answered"),
        "{:?}",
        said(&history)
    );
}

#[tokio::test]
async fn the_questions_of_tool_approval_expire() {
    let careful = ToolApproval::new([""; 0]).answered_within(Duration::from_mins(1));
    let plain = |_: Tool| Tool::dynamic("pay", "Moves money.", None, |_, _| async { Ok(json!("paid")) });
    let bank = Bank::with(plain, |bank| bank.use_middleware(careful));
    let asked = bank.ask().await;
    let data: Value = asked.interrupts()[0].data().unwrap();
    assert_eq!(data["answerUntil"], "1970-01-01T00:17:40Z");
    let approve = ToolApproval::approve(asked.interrupts()[0].part()).unwrap();
    bank.pass(61);

    let late = bank.answer(&staff("carl"), approve).await.unwrap_err();

    assert_eq!(late.details().unwrap()["reason"], "question-expired");
}

#[tokio::test]
async fn two_people_approve_before_the_tool_runs() {
    let bank = Bank::new(|pay| pay.with_approvals(2));
    let asked = bank.ask().await;

    let first = bank.answer(&staff("carl"), yes(&asked)).await.unwrap();
    assert_eq!(first.finish_reason(), AgentFinishReason::Interrupted);
    let open = first.interrupts()[0].approval().unwrap();
    assert_eq!(
        open.still_needed.as_deref(),
        Some("1 more person must answer, other than 'carl'")
    );
    assert_eq!(
        first.interrupts()[0].data::<Value>().unwrap(),
        json!({"ask": "pay?"})
    );

    let again = bank.answer(&staff("carl"), yes(&first)).await.unwrap();
    assert_eq!(
        again.finish_reason(),
        AgentFinishReason::Interrupted,
        "one person counts once"
    );
    let anonymous = staff("x").scope();
    let nobody = everturn_core::Context::new().with(anonymous).for_client();
    let input = AgentInput::from(Answers::from(yes(&first)));
    let unknown = bank
        .agent
        .chat()
        .resume("s")
        .context(nobody)
        .run(input)
        .await
        .unwrap_err();
    assert_eq!(unknown.status(), Status::PermissionDenied);
    assert_eq!(bank.paid(), 0);

    let second = bank.answer(&staff("dora"), yes(&again)).await.unwrap();
    assert_eq!(second.text(), "done");
    assert_eq!(bank.paid(), 1);
    let by: Vec<_> = bank
        .approval()
        .await
        .answers
        .into_iter()
        .filter_map(|answer| answer.by)
        .collect();
    assert_eq!(by, ["carl", "dora"]);
    bank.model.assert_calls(2);
}

#[tokio::test]
async fn people_who_disagree_approve_nothing() {
    let bank = Bank::new(|pay| pay.with_approvals(2));
    let asked = bank.ask().await;
    let first = bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let other = bank.answer(&staff("dora"), no(&first)).await.unwrap();

    assert_eq!(other.finish_reason(), AgentFinishReason::Interrupted);
    assert_eq!(other.interrupts()[0].approval().unwrap().answers.len(), 1);
    assert_eq!(bank.paid(), 0);
}

#[tokio::test]
async fn the_one_who_asked_does_not_approve_where_a_second_person_must() {
    let bank = Bank::new(Tool::with_second_person);
    let asked = bank.ask().await;

    let own = bank.answer(&ann(), yes(&asked)).await.unwrap_err();
    assert_eq!(own.status(), Status::PermissionDenied);
    assert!(own.message().contains("pay#1"), "{own}");

    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();
    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn a_message_that_waits_still_waits_after_the_first_of_two_approvals() {
    let bank = Bank::with(
        |pay| pay.with_approvals(2),
        |bank| bank.while_interrupted(WhileInterrupted::Ask),
    );
    let asked = bank.ask().await;
    bank.agent
        .chat()
        .resume("s")
        .context(ann())
        .run("and tea")
        .await
        .unwrap();

    let first = bank.answer(&staff("carl"), yes(&asked)).await.unwrap();
    assert_eq!(first.finish_reason(), AgentFinishReason::Interrupted);
    bank.answer(&staff("dora"), yes(&asked)).await.unwrap();

    let history = bank.archive().latest("s").await.unwrap().state.unwrap().messages;
    assert_eq!(
        said(&history),
        [
            "user: pay",
            "model: ask(pay)",
            "tool: answer(\"paid 5\")",
            "user: and tea",
            "model: done"
        ]
    );
}

#[tokio::test]
async fn resuming_a_snapshot_again_gives_the_recorded_outcome() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    let at = asked.snapshot_id().unwrap().clone();
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    for _ in 0..2 {
        let branch = bank.answer_at(&at, &staff("dora"), yes(&asked)).await.unwrap();
        assert_eq!(branch.text(), "done");
        let snapshot = bank
            .archive()
            .get(branch.snapshot_id().unwrap().clone())
            .await
            .unwrap();
        let history = &snapshot.state.unwrap().messages;
        assert!(
            said(history).contains(&"tool: answer(\"paid 5\")".to_owned()),
            "{:?}",
            said(history)
        );
    }

    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn another_decision_on_a_branch_is_asked_for_again() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    let at = asked.snapshot_id().unwrap().clone();
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let other = asked.interrupts()[0]
        .restart(json!({"approved": true, "note": "now"}))
        .unwrap();
    let again = bank.answer_at(&at, &staff("dora"), other).await.unwrap();
    assert_eq!(again.finish_reason(), AgentFinishReason::Interrupted);
    assert_eq!(bank.paid(), 1);
    let question = &again.interrupts()[0];
    assert!(question.approval().unwrap().already_made);
    assert_eq!(question.data::<Value>().unwrap(), json!({"ask": "pay?"}));

    let at = again.snapshot_id().unwrap().clone();
    let knowingly = question.restart(json!({"approved": true})).unwrap();
    bank.answer_at(&at, &staff("dora"), knowingly).await.unwrap();
    assert_eq!(bank.paid(), 2);
}

#[tokio::test]
async fn a_call_that_was_refused_can_be_approved_on_a_branch() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    let at = asked.snapshot_id().unwrap().clone();
    bank.answer(&staff("carl"), no(&asked)).await.unwrap();
    assert!(bank.approval().await.answers[0].refuses);

    bank.answer_at(&at, &staff("dora"), yes(&asked)).await.unwrap();

    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn a_tool_may_ask_again_instead_of_giving_the_recorded_outcome() {
    let bank = Bank::new(|pay| pay.with_repeat(Repeat::Ask));
    let asked = bank.ask().await;
    let at = asked.snapshot_id().unwrap().clone();
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let again = bank.answer_at(&at, &staff("carl"), yes(&asked)).await.unwrap();

    assert_eq!(again.finish_reason(), AgentFinishReason::Interrupted);
    assert!(again.interrupts()[0].approval().unwrap().already_made);
    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn a_copy_of_the_session_finds_the_outcome_too() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    bank.archive()
        .fork(asked.snapshot_id().unwrap().clone(), "copy")
        .await
        .unwrap();
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    let input = AgentInput::from(Answers::from(yes(&asked)));
    let copy = bank
        .agent
        .chat()
        .resume("copy")
        .context(ann())
        .run(input)
        .await
        .unwrap();

    assert_eq!(copy.text(), "done");
    assert_eq!(bank.paid(), 1);
}

#[tokio::test]
async fn tools_that_may_run_again_do_so_on_a_branch() {
    let bank = Bank::new(|pay| pay.with_replay(Replay::Idempotent));
    let asked = bank.ask().await;
    let at = asked.snapshot_id().unwrap().clone();
    bank.answer(&staff("carl"), yes(&asked)).await.unwrap();

    bank.answer_at(&at, &staff("carl"), yes(&asked)).await.unwrap();

    assert_eq!(bank.paid(), 2);
}

#[tokio::test]
async fn a_question_without_a_record_can_still_be_answered() {
    let bank = Bank::new(|pay| pay);
    let asked = bank.ask().await;
    // As sessions of earlier versions have it.
    let part = asked.interrupts()[0]
        .part()
        .clone()
        .without_metadata_entry("approval");
    let interrupt = Interrupt::of(&part).unwrap();

    bank.answer(
        &staff("carl"),
        interrupt.restart(json!({"approved": true})).unwrap(),
    )
    .await
    .unwrap();

    assert_eq!(bank.paid(), 1);
}
