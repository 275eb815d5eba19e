//! Questions that the caller may not answer: a message does not close them, and a refused answer leaves no
//! trace.

use everturn_agent::archive::Archive;
use everturn_agent::store::{MemoryStore, SessionQuery, SessionStore, SnapshotQuery};
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInput, AgentReply, FailedTurns, InlinePrompt, Journaling,
    SnapshotEvent, SnapshotPolicy, WhileInterrupted, agent,
};
use everturn_ai::{AnsweredBy, Answers, Replay, Tool, ToolContext};
use everturn_core::{Context, Error, Principal, Result, Status};
use everturn_testkit::{Reply, ScriptedModel};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::prompt_support::{answering, call};

#[derive(Deserialize, JsonSchema)]
struct Order {
    number: u32,
}

type Builder = AgentBuilder<Value, InlinePrompt>;
type Settings = fn(Builder) -> Builder;

struct Desk {
    agent: Agent,
    store: MemoryStore,
    model: ScriptedModel,
}

/// A tool that asks before it acts.
fn refund() -> Tool {
    Tool::new(
        "refund",
        "Refunds an order.",
        |order: Order, cx: ToolContext| async move {
            match cx.answer_value() {
                None => Err(cx.interrupt(json!({"question": "May it be refunded?"})).into()),
                Some(_) => Ok(format!("order {} is refunded", order.number)),
            }
        },
    )
}

/// A tool whose outcome is unknown.
fn book() -> Tool {
    Tool::new("refund", "Refunds an order.", |_: Order, _: ToolContext| async {
        Err::<String, _>(Error::deadline_exceeded("no answer").into())
    })
    .with_replay(Replay::Once)
}

impl Desk {
    fn new(tool: Tool, build: impl FnOnce(Builder) -> Builder) -> Self {
        let (registry, model) = answering([Reply::from(call("refund", "1", json!({"number": 7})))]);
        let model = model.replies(vec!["done"; 8]);
        let store = MemoryStore::new();
        let builder = build(agent(&registry, "desk").tool(tool));
        Self {
            agent: builder.store(store.clone()).define().unwrap(),
            store,
            model,
        }
    }

    async fn run(&self, who: &Principal, input: impl Into<AgentInput>) -> Result<AgentReply> {
        // As a server calls it.
        let context = Context::from(who).for_client();
        self.agent.chat().resume("s").context(context).run(input).await
    }

    async fn ask(&self) -> AgentReply {
        let asked = self.run(&ann(), "My money back.").await.unwrap();
        assert_eq!(asked.finish_reason(), AgentFinishReason::Interrupted);
        asked
    }

    async fn snapshots(&self) -> usize {
        let query = SnapshotQuery::of("s".into());
        let page = self.store.list(&ann().scope(), &query).await.unwrap();
        page.items.len()
    }
}

fn ann() -> Principal {
    Principal::new("ann")
}

fn carl(role: &str) -> Principal {
    Principal::new("carl").with_role(role).in_tenant("ann")
}

fn yes(asked: &AgentReply) -> Answers {
    Answers::from(asked.interrupts()[0].restart(json!({"approved": true})).unwrap())
}

#[tokio::test]
async fn a_message_does_not_close_a_question_that_is_reserved_for_others() {
    let reserved: [(Tool, &str); 4] = [
        (refund().answered_by(AnsweredBy::role("staff")), "role 'staff'"),
        (
            refund().answered_by(AnsweredBy::when(|caller, _| {
                caller.is_some_and(|caller| caller.id() == "carl")
            })),
            "another person",
        ),
        (refund().with_second_person(), "another person"),
        (book(), "role 'operator'"),
    ];
    for (tool, words) in reserved {
        let desk = Desk::new(tool, |builder| builder);
        let asked = desk.ask().await;
        let before = desk.snapshots().await;

        let refused = desk.run(&ann(), "Forget it, then.").await.unwrap_err();

        assert_eq!(refused.status(), Status::FailedPrecondition, "{words}");
        let public = refused.message();
        assert!(public.contains("refund") && public.contains(words), "{public}");
        desk.model.assert_calls(1);
        assert_eq!(desk.snapshots().await, before, "{words}");
        let answered = if words.contains("operator") {
            let report = asked.interrupts()[0].respond("order 7 is refunded").unwrap();
            desk.run(&carl("operator"), Answers::from(report)).await
        } else {
            desk.run(&carl("staff"), yes(&asked)).await
        };
        assert_eq!(answered.unwrap().text(), "done", "{words}");
    }
}

#[tokio::test]
async fn a_message_closes_a_question_that_its_sender_may_answer() {
    let open: [Tool; 3] = [
        refund(),
        refund().answered_by(AnsweredBy::when(|caller, _| {
            caller.is_some_and(|caller| caller.id() == "ann")
        })),
        book().outcome_by(AnsweredBy::anyone()),
    ];
    for tool in open {
        let desk = Desk::new(tool, |builder| builder);
        desk.ask().await;

        assert_eq!(desk.run(&ann(), "Forget it.").await.unwrap().text(), "done");
    }
    let desk = Desk::new(refund().answered_by(AnsweredBy::role("staff")), |builder| builder);
    desk.ask().await;
    let staff = desk.run(&carl("staff"), "I looked into it.").await.unwrap();
    assert_eq!(staff.text(), "done");
}

#[tokio::test]
async fn an_agent_may_choose_to_close_questions_but_not_unknown_outcomes() {
    let close_all = |builder: Builder| builder.while_interrupted(WhileInterrupted::CloseAll);
    let question = Desk::new(refund().answered_by(AnsweredBy::role("staff")), close_all);
    question.ask().await;
    let outcome = Desk::new(book(), close_all);
    outcome.ask().await;

    assert_eq!(question.run(&ann(), "Forget it.").await.unwrap().text(), "done");
    let refused = outcome.run(&ann(), "Forget it.").await.unwrap_err();
    assert_eq!(refused.status(), Status::FailedPrecondition);
}

#[tokio::test]
async fn a_refused_answer_leaves_no_trace_with_every_setting() {
    let tool = || {
        refund()
            .answered_by(AnsweredBy::role("staff"))
            .with_editable_input(true)
    };
    // Each with the number of rounds that are kept of the turn that answers.
    let settings: [(Settings, usize); 4] = [
        (|builder| builder, 0),
        (|builder| builder.failed_turns(FailedTurns::Discard), 0),
        (|builder| builder.snapshots(with_rounds()), 1),
        (|builder| builder.journaling(Journaling::Off), 0),
    ];
    for (settings, rounds) in settings {
        let desk = Desk::new(tool(), settings);
        let asked = desk.ask().await;
        let before = desk.snapshots().await;
        let question = &asked.interrupts()[0];
        let edited = question.restart_with(json!({"approved": true}), json!({"number": "eight"}));

        for (who, answer, status) in [
            (ann(), yes(&asked), Status::PermissionDenied),
            (
                carl("staff"),
                Answers::from(edited.unwrap()),
                Status::InvalidArgument,
            ),
            (carl("staff"), other(&asked), Status::InvalidArgument),
        ] {
            let refused = desk.run(&who, answer).await.unwrap_err();
            assert_eq!(refused.status(), status, "{refused}");
            assert_eq!(desk.snapshots().await, before, "{refused}");
        }
        let answered = desk.run(&carl("staff"), yes(&asked)).await.unwrap();
        assert_eq!(answered.text(), "done");
        let archive = Archive::of(desk.store.clone(), ann().scope());
        let mut first = archive.latest("s").await.unwrap();
        for _ in 0..rounds {
            first = archive.get(first.parent_id.unwrap()).await.unwrap();
        }
        assert_eq!(first.parent_id, asked.snapshot_id().cloned());
    }
}

fn with_rounds() -> SnapshotPolicy {
    SnapshotPolicy::on([SnapshotEvent::RoundEnd, SnapshotEvent::TurnEnd])
}

/// An answer to a request that was never made.
fn other(asked: &AgentReply) -> Answers {
    let mut part = serde_json::to_value(asked.interrupts()[0].restart(json!(true)).unwrap()).unwrap();
    part["toolRequest"]["ref"] = "2".into();
    Answers::from(serde_json::from_value::<everturn_ai::Part>(part).unwrap())
}

#[tokio::test]
async fn an_edit_of_the_wrong_type_does_not_consume_the_question() {
    let desk = Desk::new(refund().with_editable_input(true), |builder| builder);
    let asked = desk.ask().await;
    let edit = |number: Value| {
        let edited = asked.interrupts()[0].restart_with(json!(true), json!({ "number": number }));
        Answers::from(edited.unwrap())
    };

    let refused = desk.run(&ann(), edit(json!("eight"))).await.unwrap_err();
    let answered = desk.run(&ann(), edit(json!(8))).await.unwrap();

    assert_eq!(refused.status(), Status::InvalidArgument);
    assert!(refused.message().contains("/number"), "{refused}");
    assert_eq!(answered.text(), "done");
    desk.model.assert_asked(
        1,
        &json!({"messages": [{"content": [{"toolResponse": {"output": "order 8 is refunded"}}]}]}),
    );
}

#[tokio::test]
async fn sessions_that_wait_are_listed_with_their_questions() {
    let desk = Desk::new(book(), |builder| builder);
    desk.ask().await;
    let archive = Archive::of(desk.store.clone(), ann().scope());

    let open = archive.interrupted(&SessionQuery::default()).await.unwrap();

    assert_eq!(open.sessions.len(), 1);
    assert_eq!(open.questions[0].session_id.as_str(), "s");
    assert!(open.questions[0].outcome_unknown);
    let approval = open.questions[0].request.approval().unwrap();
    assert_eq!(
        serde_json::to_value(approval.answered_by).unwrap(),
        json!({"role": "operator"})
    );

    let report = desk.ask_again().await;
    desk.run(&carl("operator"), report).await.unwrap();
    let open = archive.interrupted(&SessionQuery::default()).await.unwrap();
    assert!(open.sessions.is_empty() && open.questions.is_empty());
}

impl Desk {
    /// The report of an operator, from what is stored.
    async fn ask_again(&self) -> Answers {
        let archive = Archive::of(self.store.clone(), ann().scope());
        let open = archive.interrupted(&SessionQuery::default()).await.unwrap();
        Answers::from(
            open.questions[0]
                .request
                .respond(json!("order 7 is refunded"), None)
                .unwrap(),
        )
    }
}
