//! A call of a tool that must not run twice: whatever becomes of it, it is made once and the session has its
//! row.

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::archive::Archive;
use everturn_agent::store::{Journal, MemoryStore, Scope, SessionQuery};
use everturn_agent::{
    Agent, AgentBuilder, AgentFinishReason, AgentInit, AgentInput, AgentOutput, AgentSession, Clock,
    Concurrency, EndedTurn, IdempotencyKey, InlinePrompt, Interrupt, Session, TurnEffect, TurnObserver,
    UnfinishedCall, WhileInterrupted, agent, custom_agent, observe_turns, recover_every,
};
use everturn_ai::{
    Answers, Message, ModelRequest, ModelResponse, Part, Reconciliation, Replay, Role, Tool, ToolContext,
    ToolRequest,
};
use everturn_core::{Context, Error, Registry, Result, Status};
use everturn_testkit::{Gate, elapse};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::journal_support::{interrupt, journals, latest, registry_of, session, status, turn};
use crate::support::{FaultyStore, Fuse, World};

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Trips {
    booked: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Trip {
    to: String,
}

/// How a call ends after the service has booked, or has not.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Booked,
    /// An error of this status, after the service has booked.
    Lost(Status),
    Panic,
    Wondering,
    /// An error that reports that nothing happened, before the service is called.
    Refused,
}

/// A travel agency: the service that books is the world outside.
struct Desk {
    store: MemoryStore,
    world: Arc<World>,
}

/// Books the destination of the user's latest message, and reports it when the tool has answered.
fn answer(request: &ModelRequest) -> ModelResponse {
    let said = |role: Role| request.messages.rposition(|message| message.role() == role);
    let (user, tool) = (said(Role::User), said(Role::Tool));
    let to = request.messages.get(user.unwrap()).unwrap().text().into_owned();
    let answered = tool.filter(|tool| Some(*tool) > user).and_then(|tool| {
        let last = request.messages.get(tool)?.content().last()?;
        last.as_tool_response()?.output.clone()
    });
    // The first answer may be about an earlier trip.
    let is_other = |output: &Value| match output.as_str() {
        Some(text) => text.ends_with(" is booked") && !text.starts_with(&to) && text != "it is booked",
        None => true,
    };
    if answered.is_some_and(|output| !is_other(&output)) {
        return ModelResponse::text_of("Done.");
    }
    let request = ToolRequest::new("book", json!({ "to": to })).with_reference("1");
    ModelResponse::new(Message::model(vec![Part::from(request)]))
}

fn note(to: &str) {
    Session::<Trips>::current().unwrap().update_custom(|trips| {
        if !trips.booked.iter().any(|known| known == to) {
            trips.booked.push(to.to_owned());
        }
    });
}

impl Desk {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            world: Arc::new(World::default()),
        }
    }

    /// Books with steps at which the process may die.
    fn book(&self, fuse: &Fuse, end: impl Fn(usize) -> End + Send + Sync + 'static) -> Tool {
        let (fuse, world, end) = (fuse.clone(), Arc::clone(&self.world), Arc::new(end));
        Tool::new("book", "Books a trip.", move |trip: Trip, cx: ToolContext| {
            let (fuse, world, end) = (fuse.clone(), Arc::clone(&world), Arc::clone(&end));
            async move {
                world.count("runs");
                let end = end(world.counted("runs"));
                fuse.step().await;
                if end == End::Refused {
                    return Err(Error::unavailable("no line").nothing_happened().into());
                }
                world.count(&trip.to);
                fuse.step().await;
                match end {
                    End::Lost(status) => return Err(Error::new(status, "no answer").into()),
                    End::Panic => panic!("lost the line"),
                    End::Wondering => return Err(cx.outcome_unknown().into()),
                    End::Booked | End::Refused => note(&trip.to),
                }
                fuse.step().await;
                Ok(format!("{} is booked", trip.to))
            }
        })
        .with_replay(Replay::Once)
    }

    /// A reconcile function that asks the service and notes the booking.
    fn reconciling(&self, tool: Tool) -> Tool {
        let world = Arc::clone(&self.world);
        tool.with_reconcile(move |trip: Trip, _| {
            let world = Arc::clone(&world);
            async move {
                world.count("reconciled");
                if world.counted(&trip.to) == 0 {
                    return Ok(Reconciliation::NeverHappened);
                }
                note(&trip.to);
                Ok(Reconciliation::Happened(format!("{} is booked", trip.to)))
            }
        })
    }

    fn agent(&self, fuse: &Fuse, book: Tool) -> Agent<Trips> {
        self.agent_in(&registry_of(fuse, &self.world, answer), fuse, book)
    }

    fn agent_in(&self, registry: &Registry, fuse: &Fuse, book: Tool) -> Agent<Trips> {
        self.builder(registry, fuse, book).define().unwrap()
    }

    fn builder(&self, registry: &Registry, fuse: &Fuse, book: Tool) -> AgentBuilder<Trips, InlinePrompt> {
        agent(registry, "desk")
            .custom::<Trips>()
            .tool(book)
            .store(FaultyStore::shared(&self.store, fuse, &self.world))
    }

    fn booked(&self) -> Vec<String> {
        let custom = latest(&self.store).unwrap().state.unwrap().custom;
        let trips: Trips = custom.map_or_else(Trips::default, |trips| {
            serde_json::from_value(trips.as_ref().clone()).unwrap()
        });
        trips.booked
    }
}

/// The clock of a process that begins after the heartbeats of an earlier one have lapsed.
fn later() -> Clock {
    Clock::new(|| Timestamp::now() + SignedDuration::from_mins(2))
}

/// Returns the calls of dead turns that are listed for operators.
fn unfinished(store: &MemoryStore, clock: Clock) -> Vec<UnfinishedCall> {
    let archive = Archive::of(store.clone(), Scope::default()).with_clock(clock);
    let list = async { archive.interrupted(&SessionQuery::default()).await };
    Fuse::never().process(list).unwrap().unwrap().unfinished
}

/// Runs one input at a snapshot.
async fn turn_at(agent: &Agent<Trips>, init: AgentInit, input: impl Into<AgentInput>) -> Result<AgentOutput> {
    let mut connection = agent.connect(init);
    connection.send(input).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}

fn run(fuse: &Fuse, agent: &Agent<Trips>, input: impl Into<AgentInput>) -> Option<Result<AgentOutput>> {
    fuse.process(turn(agent, input))
}

fn done(fuse: &Fuse, agent: &Agent<Trips>, input: impl Into<AgentInput>) -> AgentOutput {
    run(fuse, agent, input).unwrap().unwrap()
}

/// The errors of a tool that leave its outcome in doubt.
const DOUBTS: [End; 6] = [
    End::Lost(Status::DeadlineExceeded),
    End::Lost(Status::Unavailable),
    End::Lost(Status::Internal),
    // A refusal after the fact: only the tool could say that nothing happened, and it does not.
    End::Lost(Status::NotFound),
    End::Panic,
    End::Wondering,
];

#[test]
fn a_failed_call_is_reconciled_in_its_turn_and_not_made_again() {
    for end in DOUBTS {
        let (desk, fuse) = (Desk::new(), Fuse::never());
        let agent = desk.agent(&fuse, desk.reconciling(desk.book(&fuse, move |_| end)));

        let output = done(&fuse, &agent, "Lisbon");

        assert_eq!(output.message.unwrap().text(), "Done.", "{end:?}");
        assert_eq!(desk.world.counted("Lisbon"), 1, "{end:?}");
        assert_eq!(desk.booked(), ["Lisbon"], "{end:?}");
        assert_eq!(journals(&desk.store), 0);
    }
}

#[test]
fn a_failed_call_without_reconciliation_is_asked_about_and_a_retry_does_not_make_it() {
    for end in DOUBTS {
        let (desk, fuse) = (Desk::new(), Fuse::never());
        let agent = desk.agent(&fuse, desk.book(&fuse, move |_| end));

        let output = done(&fuse, &agent, "Lisbon");

        let question = interrupt(&output);
        assert!(question.is_outcome_unknown(), "{end:?}");
        for retry in [AgentInput::default(), AgentInput::from("Lisbon")] {
            let _ = run(&fuse, &agent, retry);
            assert_eq!(desk.world.counted("runs"), 1, "{end:?}");
        }
        let latest = latest(&desk.store).unwrap();
        let open = latest.state.unwrap().messages.last().cloned().unwrap();
        if end != End::Wondering {
            let data = open.interrupts().next().map(|part| part.interrupt().cloned());
            assert!(data.flatten().is_none_or(|data| data["error"].is_object()));
        }
    }
}

#[test]
fn a_call_that_states_that_nothing_happened_may_be_made_again() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let ends = |run| if run == 1 { End::Refused } else { End::Booked };
    let agent = desk.agent(&fuse, desk.book(&fuse, ends));

    let failed = done(&fuse, &agent, "Lisbon");
    let output = done(&fuse, &agent, "Lisbon");

    assert_eq!(status(&failed), Status::Unavailable);
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(desk.world.counted("Lisbon"), 1);
    assert_eq!(desk.booked(), ["Lisbon"]);
}

#[test]
fn a_call_that_is_cancelled_while_it_runs_is_reconciled_by_the_next_turn() {
    for next in ["Lisbon", "Porto"] {
        let (desk, fuse) = (Desk::new(), Fuse::never());
        let world = Arc::clone(&desk.world);
        let hangs = Tool::new("book", "Books a trip.", move |trip: Trip, _: ToolContext| {
            let world = Arc::clone(&world);
            async move {
                world.count(&trip.to);
                if trip.to == "Lisbon" {
                    std::future::pending::<()>().await;
                }
                note(&trip.to);
                Ok(format!("{} is booked", trip.to))
            }
        });
        let agent = desk.agent(&fuse, desk.reconciling(hangs.with_replay(Replay::Once)));
        fuse.process(async {
            let connection = agent.connect(session());
            connection.send("Lisbon").await.unwrap();
            while desk.world.counted("Lisbon") == 0 {
                tokio::task::yield_now().await;
            }
            drop(connection);
            agent.idle().await;
        })
        .unwrap();

        let output = done(&fuse, &agent, next);

        assert_eq!(output.message.unwrap().text(), "Done.", "{next}");
        assert_eq!(desk.world.counted("Lisbon"), 1, "{next}");
        assert_eq!(desk.booked()[0], "Lisbon", "{next}");
    }
}

#[test]
fn a_reconcile_function_that_fails_fails_the_turn_and_is_called_again() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let world = Arc::clone(&desk.world);
    let book = desk
        .book(&fuse, |_| End::Lost(Status::Unavailable))
        .with_reconcile(move |trip: Trip, _| {
            world.count("reconciled");
            let is_down = world.counted("reconciled") == 1;
            async move {
                if is_down {
                    return Err(Error::unavailable("the service is down").into());
                }
                note(&trip.to);
                Ok(Reconciliation::Happened("it is booked"))
            }
        });
    let agent = desk.agent(&fuse, book);

    let failed = done(&fuse, &agent, "Lisbon");
    let output = done(&fuse, &agent, "Lisbon");

    assert_eq!(failed.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!((desk.world.counted("Lisbon"), desk.booked().len()), (1, 1));
}

#[test]
fn killed_at_any_point_and_retried_or_talked_over_nothing_is_booked_twice_or_lost() {
    for (next, reconciles) in [
        ("Lisbon", true),
        ("Porto", true),
        ("Lisbon", false),
        ("Porto", false),
    ] {
        let mut points = 0;
        for point in 0.. {
            let (desk, fuse) = (Desk::new(), Fuse::burning_at(point));
            let book = |fuse: &Fuse| {
                let book = desk.book(fuse, |_| End::Booked);
                if reconciles { desk.reconciling(book) } else { book }
            };
            if run(&fuse, &desk.agent(&fuse, book(&fuse)), "Lisbon").is_some() {
                points = point;
                break;
            }
            let fuse = Fuse::never();
            // A committed turn has ended: the same message requests another booking.
            if latest(&desk.store).is_some() {
                assert_eq!(desk.booked(), ["Lisbon"], "at {point}");
                continue;
            }
            let agent = desk.agent(&fuse, book(&fuse));
            let mut output = done(&fuse, &agent, next);
            while output.finish_reason == Some(AgentFinishReason::Interrupted) {
                assert!(!reconciles, "at {point}");
                let question = interrupt(&output);
                let to = question.input::<Trip>().unwrap().to;
                let given = match desk.world.counted(&to) {
                    0 => question.restart(()).unwrap(),
                    _ => question.respond(format!("{to} is booked")).unwrap(),
                };
                output = done(&fuse, &agent, AgentInput::answers(Answers::from(given)));
            }
            assert_eq!(
                output.finish_reason,
                Some(AgentFinishReason::Stop),
                "{next} at {point}"
            );
            let made = ["Lisbon", "Porto"].map(|to| desk.world.counted(to));
            assert!(made.iter().all(|made| *made <= 1), "{next} at {point}: {made:?}");
            assert_eq!(desk.world.counted(next), 1, "at {point}");
            if reconciles {
                let booked = desk.booked();
                for (to, made) in ["Lisbon", "Porto"].into_iter().zip(made) {
                    let rows = booked.iter().filter(|row| *row == to).count();
                    assert_eq!(rows, made, "{to} then {next} at {point}");
                }
            }
            assert_eq!(journals(&desk.store), 0, "{next} at {point}");
        }
        assert!(points > 10, "only {points} points were looked at");
    }
}

/// Books a trip once a person has approved it.
fn book_after_approval(desk: &Desk, fuse: &Fuse) -> Tool {
    let (fuse, world) = (fuse.clone(), Arc::clone(&desk.world));
    let book = Tool::new("book", "Books a trip.", move |trip: Trip, cx: ToolContext| {
        let (fuse, world) = (fuse.clone(), Arc::clone(&world));
        async move {
            match cx.answer::<Value>()? {
                None => return Err(cx.interrupt("May I?").into()),
                Some(decision) if decision["approved"] == false => return Ok("declined".to_owned()),
                Some(_) => {}
            }
            fuse.step().await;
            world.count(&trip.to);
            fuse.step().await;
            note(&trip.to);
            fuse.step().await;
            Ok(format!("{} is booked", trip.to))
        }
    });
    desk.reconciling(book.with_replay(Replay::Once))
}

#[test]
fn an_approval_killed_at_any_point_and_answered_otherwise_loses_no_booking() {
    let answers = [
        |question: &Interrupt| question.restart(json!({"approved": false})),
        |question: &Interrupt| question.restart(json!({"approved": true, "remark": "go on"})),
        |question: &Interrupt| question.respond("not now"),
    ];
    let given = |answer: Part| AgentInput::answers(Answers::from(answer));
    for (number, next, is_talked_over) in [
        (0, answers[0], false),
        (1, answers[1], false),
        (2, answers[2], false),
        (3, answers[0], true),
    ] {
        let mut points = 0;
        for point in 0.. {
            let (desk, fuse, dying) = (Desk::new(), Fuse::never(), Fuse::burning_at(point));
            let agent = |fuse: &Fuse| {
                let registry = registry_of(fuse, &desk.world, answer);
                let agent = desk.builder(&registry, fuse, book_after_approval(&desk, fuse));
                agent.while_interrupted(WhileInterrupted::Ask).define().unwrap()
            };
            let (agent, killed) = (agent(&fuse), agent(&dying));
            let asked = done(&fuse, &agent, "Lisbon");
            let question = interrupt(&asked);
            let approval = question.restart(json!({"approved": true})).unwrap();
            if run(&dying, &killed, given(approval)).is_some() {
                points = point;
                break;
            }
            if Some(latest(&desk.store).unwrap().snapshot_id) == asked.snapshot_id {
                if is_talked_over {
                    done(&fuse, &agent, "Lisbon");
                }
                let mut output = done(&fuse, &agent, given(next(&question).unwrap()));
                while output.finish_reason == Some(AgentFinishReason::Interrupted) {
                    let again = interrupt(&output).restart(json!({"approved": false})).unwrap();
                    output = done(&fuse, &agent, given(again));
                }
                let reason = output.finish_reason;
                assert_eq!(reason, Some(AgentFinishReason::Stop), "{number} at {point}");
            }
            let made = desk.world.counted("Lisbon");
            assert!(made <= 1, "{number} at {point}");
            assert_eq!(desk.booked().len(), made, "{number} at {point}");
        }
        assert!(points > 5, "only {points} points were looked at");
    }
}

#[test]
fn a_finished_call_of_a_round_that_failed_is_kept_when_the_conversation_continues() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let both = |request: &ModelRequest| {
        let said = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::Tool);
        if said.count() > 0 {
            return ModelResponse::text_of("Done.");
        }
        let parts = ["book", "rate"]
            .map(|name| Part::from(ToolRequest::new(name, json!({"to": "Lisbon"})).with_reference(name)));
        ModelResponse::new(Message::model(parts.to_vec()))
    };
    let rate = Tool::dynamic("rate", "Reads a rate.", None, |_, _: ToolContext| async {
        // After the booking.
        elapse(Duration::from_millis(1)).await;
        Err::<Value, _>(Error::unavailable("closed").into())
    })
    .with_replay(Replay::Idempotent);
    let agent = agent(&registry_of(&fuse, &desk.world, both), "desk")
        .custom::<Trips>()
        .tool(desk.book(&fuse, |_| End::Booked))
        .tool(rate)
        .store(FaultyStore::shared(&desk.store, &fuse, &desk.world))
        .define()
        .unwrap();

    let failed = done(&fuse, &agent, "Lisbon, and the rate");
    let output = done(&fuse, &agent, "never mind the rate");

    assert_eq!(failed.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(desk.world.counted("Lisbon"), 1);
    assert_eq!(desk.booked(), ["Lisbon"]);
}

#[test]
fn a_person_who_reports_the_outcome_gets_the_row_from_the_reconcile_function() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let world = Arc::clone(&desk.world);
    let book = desk
        .book(&fuse, |_| End::Wondering)
        .with_reconcile(move |trip: Trip, _| {
            world.count("reconciled");
            let is_first = world.counted("reconciled") == 1;
            async move {
                if is_first {
                    return Ok(Reconciliation::Unknown);
                }
                note(&trip.to);
                Ok(Reconciliation::Happened("booked as 17".to_owned()))
            }
        });
    let agent = desk.agent(&fuse, book);
    let asked = done(&fuse, &agent, "Lisbon");

    let report = Answers::from(interrupt(&asked).respond("booked, says the hotel").unwrap());
    let output = done(&fuse, &agent, AgentInput::answers(report));

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(desk.booked(), ["Lisbon"]);
    assert_eq!(desk.world.counted("runs"), 1);
}

#[test]
fn a_restart_of_a_call_that_has_happened_does_not_make_it() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let world = Arc::clone(&desk.world);
    let book = desk
        .book(&fuse, |_| End::Wondering)
        .with_reconcile(move |_: Trip, _| {
            world.count("reconciled");
            let is_first = world.counted("reconciled") == 1;
            async move {
                Ok(if is_first {
                    Reconciliation::Unknown
                } else {
                    Reconciliation::Happened("booked as 17")
                })
            }
        });
    let agent = desk.agent(&fuse, book);
    let asked = done(&fuse, &agent, "Lisbon");

    let again = Answers::from(interrupt(&asked).restart(()).unwrap());
    done(&fuse, &agent, AgentInput::answers(again));

    assert_eq!(desk.world.counted("runs"), 1);
}

/// Counts unknown outcomes.
struct Observer(Arc<World>);

impl TurnObserver for Observer {
    fn turn_ended(&self, turn: &EndedTurn<'_>) {
        (0..turn.unknown_outcomes).for_each(|_| self.0.count("unknown"));
    }

    fn call_found(&self, call: &UnfinishedCall) {
        self.0.count(&format!("found {} of {}", call.tool, call.agent));
    }
}

#[test]
fn an_unknown_outcome_is_counted() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let registry = registry_of(&fuse, &desk.world, answer);
    let observer: Arc<dyn TurnObserver> = Arc::new(Observer(Arc::clone(&desk.world)));
    observe_turns(&registry, &observer);
    let agent = desk.agent_in(&registry, &fuse, desk.book(&fuse, |_| End::Wondering));

    done(&fuse, &agent, "Lisbon");

    assert_eq!(desk.world.counted("unknown"), 1);
}

#[test]
fn the_effects_of_a_call_that_was_cut_short_are_known_when_it_is_reconciled() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let order = |cx: &ToolContext, world: Arc<World>| {
        let name = format!("order of {}", cx.effect_id());
        TurnEffect::within(cx.context(), name, Replay::Idempotent).run(move |_| async move {
            world.count("order");
            Ok(17)
        })
    };
    let (dies, world) = (fuse.clone(), Arc::clone(&desk.world));
    let (placing, asking) = (Arc::clone(&world), world);
    let book = Tool::new("book", "Books a trip.", move |trip: Trip, cx: ToolContext| {
        let (dies, world) = (dies.clone(), Arc::clone(&placing));
        async move {
            let number: u32 = order(&cx, world).await?;
            if trip.to == "Lisbon" {
                dies.die().await;
            }
            Ok(format!("{} is booked as {number}", trip.to))
        }
    })
    .with_reconcile(move |trip: Trip, cx: ToolContext| {
        let world = Arc::clone(&asking);
        async move {
            let number: u32 = order(&cx, world).await?;
            note(&format!("{} {number}", trip.to));
            Ok(Reconciliation::Happened(format!("{} is booked", trip.to)))
        }
    });
    assert!(run(&fuse, &desk.agent(&fuse, book.clone()), "Lisbon").is_none());

    let fuse = Fuse::never();
    let output = done(&fuse, &desk.agent(&fuse, book), "Porto");

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(desk.booked(), ["Lisbon 17"]);
    assert_eq!(desk.world.counted("order"), 2, "one for each trip");
}

/// Sends a message under a key, as a client does that repeats its request.
async fn say_as(agent: &Agent<Trips>, key: &str, text: &str) -> Result<AgentOutput> {
    let context = Context::new().with_extension(Arc::new(IdempotencyKey::new(key)));
    let mut connection = agent.connect_in(session(), &context);
    connection.send(text).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}

#[test]
fn a_forking_agent_makes_the_calls_of_a_repeated_request_once() {
    for moves_on in [false, true] {
        let mut points = 0;
        for point in 0.. {
            let (desk, fuse) = (Desk::new(), Fuse::burning_at(point));
            let forking = |fuse: &Fuse| {
                let book = desk.reconciling(desk.book(fuse, |_| End::Booked));
                desk.builder(&registry_of(fuse, &desk.world, answer), fuse, book)
                    .concurrency(Concurrency::Fork)
                    .define()
                    .unwrap()
            };
            if fuse.process(say_as(&forking(&fuse), "a", "Lisbon")).is_some() {
                points = point;
                break;
            }
            let fuse = Fuse::never();
            let agent = forking(&fuse);
            if moves_on {
                fuse.process(say_as(&agent, "b", "Porto")).unwrap().unwrap();
            }
            let output = fuse.process(say_as(&agent, "a", "Lisbon")).unwrap().unwrap();

            assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop), "at {point}");
            assert_eq!(desk.world.counted("Lisbon"), 1, "at {point}");
            let rows = desk.booked().iter().filter(|row| *row == "Lisbon").count();
            assert_eq!(rows, 1, "at {point}");
            assert_eq!(journals(&desk.store), 0, "at {point}");
        }
        assert!(points > 10, "only {points} points were looked at");
    }
}

#[test]
fn a_forking_agent_continues_a_failed_turn_when_its_request_is_repeated() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let one_by_one = |request: &ModelRequest| {
        let answers = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::Tool);
        match answers.count() {
            2 => ModelResponse::text_of("Done."),
            answered => {
                let name = ["book", "rate"][answered];
                let request = ToolRequest::new(name, json!({"to": "Lisbon"})).with_reference(name);
                ModelResponse::new(Message::model(vec![Part::from(request)]))
            }
        }
    };
    let world = Arc::clone(&desk.world);
    let rate = Tool::dynamic("rate", "Reads a rate.", None, move |_, _: ToolContext| {
        world.count("rates");
        let is_first = world.counted("rates") == 1;
        async move {
            if is_first {
                return Err(Error::unavailable("closed").into());
            }
            Ok(json!("0.9"))
        }
    })
    .with_replay(Replay::Idempotent);
    let agent = desk
        .builder(
            &registry_of(&fuse, &desk.world, one_by_one),
            &fuse,
            desk.book(&fuse, |_| End::Booked),
        )
        .tool(rate)
        .concurrency(Concurrency::Fork)
        .define()
        .unwrap();

    let failed = fuse.process(say_as(&agent, "a", "Lisbon")).unwrap().unwrap();
    let output = fuse.process(say_as(&agent, "a", "Lisbon")).unwrap().unwrap();

    assert_eq!(failed.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!((desk.world.counted("Lisbon"), desk.booked().len()), (1, 1));
    assert_eq!(journals(&desk.store), 0);
}

impl Desk {
    /// Runs one input at a snapshot, and answers every question for an outcome truthfully.
    fn settled_at(&self, agent: &Agent<Trips>, init: AgentInit, text: &str) -> AgentOutput {
        let at = |init: AgentInit, input: AgentInput| {
            Fuse::never()
                .process(turn_at(agent, init, input))
                .unwrap()
                .unwrap()
        };
        let mut output = at(init, text.into());
        while output.finish_reason == Some(AgentFinishReason::Interrupted) {
            let question = interrupt(&output);
            assert!(question.is_outcome_unknown());
            let to = question.input::<Trip>().unwrap().to;
            let given = match self.world.counted(&to) {
                0 => question.restart(()).unwrap(),
                _ => question.respond(format!("{to} is booked")).unwrap(),
            };
            let open = AgentInit::snapshot(output.snapshot_id.unwrap());
            output = at(open, AgentInput::answers(Answers::from(given)));
        }
        assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop));
        output
    }
}

#[test]
fn a_call_whose_turn_died_elsewhere_in_the_session_is_neither_repeated_nor_forgotten() {
    // Whether the agent forks; at which of two snapshots the turn died, and at which the next one begins.
    let places = [
        (false, 0, 1),
        (false, 1, 0),
        (true, 1, 1),
        (true, 0, 1),
        (true, 1, 0),
    ];
    for (reconciles, (forks, dies_at, next_at)) in [true, false]
        .into_iter()
        .flat_map(|reconciles| places.map(|place| (reconciles, place)))
    {
        let (mut points, mut taken_over) = (0, 0);
        for point in 0.. {
            let desk = Desk::new();
            let place = format!("{reconciles} {forks} {dies_at} {next_at} at {point}");
            let agent = |fuse: &Fuse, clock: Clock| {
                let book = desk.book(fuse, |_| End::Booked);
                let book = if reconciles { desk.reconciling(book) } else { book };
                let registry = registry_of(fuse, &desk.world, answer);
                let builder = desk.builder(&registry, fuse, book).clock(clock);
                let policy = if forks {
                    Concurrency::Fork
                } else {
                    Concurrency::Reject
                };
                builder.concurrency(policy).define().unwrap()
            };
            let never = Fuse::never();
            let before = agent(&never, Clock::system());
            let snapshots = ["Porto", "Rome"].map(|to| done(&never, &before, to).snapshot_id.unwrap());
            let at = |index: usize| AgentInit::snapshot(snapshots[index].clone());
            let fuse = Fuse::burning_at(point);
            let died = fuse.process(turn_at(&agent(&fuse, Clock::system()), at(dies_at), "Lisbon"));
            if died.is_some() {
                points = point;
                break;
            }
            if latest(&desk.store).unwrap().snapshot_id != snapshots[1] {
                continue;
            }
            let made = desk.world.counted("Lisbon");
            let open = unfinished(&desk.store, later());
            assert!(unfinished(&desk.store, Clock::system()).is_empty(), "{place}");

            let next = agent(&never, later());
            desk.settled_at(&next, at(next_at), "Oslo");

            assert_eq!(desk.world.counted("Oslo"), 1, "{place}");
            if let [call] = open.as_slice() {
                taken_over += 1;
                assert_eq!(
                    (call.tool.as_str(), call.session_id.as_str()),
                    ("book", "s"),
                    "{place}"
                );
                if reconciles {
                    assert_eq!(desk.world.counted("Lisbon"), made, "{place}");
                    let rows = desk.booked().iter().filter(|row| *row == "Lisbon").count();
                    assert_eq!(rows, made, "{place}");
                }
            } else {
                assert!(open.is_empty(), "{place}: {open:?}");
            }
            assert!(unfinished(&desk.store, later()).is_empty(), "{place}");
            if !forks {
                desk.settled_at(&next, at(dies_at), "Lisbon");
                assert_eq!(desk.world.counted("Lisbon"), 1, "{place}");
            }
        }
        assert!(points > 10, "only {points} points were looked at");
        assert!(taken_over > 2, "calls of {taken_over} dead turns were taken over");
    }
}

#[test]
fn a_call_whose_turn_is_in_progress_elsewhere_is_left_alone() {
    let (desk, fuse, gate) = (Desk::new(), Fuse::never(), Gate::new());
    let (world, at) = (Arc::clone(&desk.world), gate.clone());
    let slow = Tool::new("book", "Books a trip.", move |trip: Trip, _: ToolContext| {
        let (world, at) = (Arc::clone(&world), at.clone());
        async move {
            if trip.to == "Lisbon" {
                at.pass().await;
            }
            world.count(&trip.to);
            note(&trip.to);
            Ok(format!("{} is booked", trip.to))
        }
    });
    let agent = desk.agent(&fuse, desk.reconciling(slow.with_replay(Replay::Once)));
    let first = done(&fuse, &agent, "Porto").snapshot_id.unwrap();
    done(&fuse, &agent, "Rome");
    let work = async {
        let (busy, other) = tokio::join!(turn_at(&agent, session(), "Lisbon"), async {
            gate.reached().await;
            let before = desk.world.counted("records");
            elapse(Duration::from_secs(100)).await;
            let added = desk.world.counted("records") - before;
            // Every 30 seconds.
            assert_eq!(added, 3, "the turn shows that it is in progress");
            let other = turn_at(&agent, AgentInit::snapshot(first), "Oslo").await;
            gate.open();
            other
        });
        (busy.unwrap(), other.unwrap())
    };
    let (busy, other) = fuse.process(work).unwrap();

    assert_eq!(busy.finish_reason, Some(AgentFinishReason::Stop), "{busy:?}");
    assert_eq!(other.finish_reason, Some(AgentFinishReason::Stop));
    let counted = ["reconciled", "Lisbon", "Oslo"].map(|what| desk.world.counted(what));
    assert_eq!(counted, [0, 1, 1]);
    assert_eq!(journals(&desk.store), 0);
}

/// A tool whose call takes the process with it.
fn deadly(desk: &Desk, fuse: &Fuse) -> Tool {
    let (fuse, world) = (fuse.clone(), Arc::clone(&desk.world));
    Tool::new("book", "Books a trip.", move |trip: Trip, _: ToolContext| {
        let (fuse, world) = (fuse.clone(), Arc::clone(&world));
        async move {
            world.count(&trip.to);
            if trip.to == "Lisbon" {
                fuse.die().await;
            }
            Ok(format!("{} is booked", trip.to))
        }
    })
}

#[test]
fn an_unknown_outcome_is_listed_found_and_kept_until_a_turn_settles_it() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    assert!(run(&fuse, &desk.agent(&fuse, deadly(&desk, &fuse)), "Lisbon").is_none());
    let begun = Timestamp::now();

    let never = Fuse::never();
    let book = desk.reconciling(deadly(&desk, &never));
    let registry = registry_of(&never, &desk.world, answer);
    let agent = desk
        .builder(&registry, &never, book)
        .clock(later())
        .define()
        .unwrap();
    let found = |agent: &Agent<Trips>| {
        let recovery = never.process(async { agent.recover().await }).unwrap();
        assert!(recovery.failures.is_empty(), "{recovery:?}");
        recovery.unfinished
    };
    let swept = never.process(async { desk.store.sweep(Timestamp::MAX).await });
    let listed = unfinished(&desk.store, later());
    let (first, second) = (found(&agent), found(&agent));

    assert_eq!(swept.unwrap().unwrap(), 0);
    let [call] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!((call.tool.as_str(), call.session_id.as_str()), ("book", "s"));
    assert!(call.began_at <= begun && !call.effect_id.is_empty());
    assert_eq!(first, [(Scope::default(), call.clone())]);
    assert!(second.is_empty(), "{second:?}");
    // Its turn may still be in progress.
    assert!(unfinished(&desk.store, Clock::system()).is_empty());

    done(&never, &agent, "Porto");
    assert!(unfinished(&desk.store, later()).is_empty());
    assert_eq!(desk.booked()[0], "Lisbon");
}

#[test]
fn the_poll_for_lost_runs_reports_an_unknown_outcome_once() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    assert!(run(&fuse, &desk.agent(&fuse, deadly(&desk, &fuse)), "Lisbon").is_none());
    let never = Fuse::never();
    let registry = registry_of(&never, &desk.world, answer);
    let observer: Arc<dyn TurnObserver> = Arc::new(Observer(Arc::clone(&desk.world)));
    observe_turns(&registry, &observer);
    // Two agents share the store.
    let _agents = ["desk", "counter"].map(|name| {
        let store = FaultyStore::shared(&desk.store, &never, &desk.world);
        agent(&registry, name)
            .store(store)
            .clock(later())
            .define()
            .unwrap()
    });

    let polled = async {
        let polling = recover_every(&registry, Duration::from_secs(1));
        elapse(Duration::from_secs(5)).await;
        polling.stop().await;
    };
    never.process(polled).unwrap();

    assert_eq!(desk.world.counted("found book of desk"), 1);
}

#[test]
fn an_agent_without_the_tool_leaves_the_call_to_others() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let porto = done(&fuse, &desk.agent(&fuse, deadly(&desk, &fuse)), "Porto");
    assert!(run(&fuse, &desk.agent(&fuse, deadly(&desk, &fuse)), "Lisbon").is_none());
    let never = Fuse::never();
    let registry = registry_of(&never, &desk.world, |_| ModelResponse::text_of("Hello."));
    let clerk = agent(&registry, "clerk")
        .custom::<Trips>()
        .store(FaultyStore::shared(&desk.store, &never, &desk.world))
        .clock(later())
        .concurrency(Concurrency::Fork)
        .define()
        .unwrap();

    let at = AgentInit::snapshot(porto.snapshot_id.unwrap());
    let output = never.process(turn_at(&clerk, at, "Hi")).unwrap().unwrap();

    assert_eq!(output.message.unwrap().text(), "Hello.");
    assert_eq!(unfinished(&desk.store, later()).len(), 1);
}

#[test]
fn an_effect_of_a_turns_own_is_listed_by_its_name() {
    let (desk, fuse) = (Desk::new(), Fuse::never());
    let dies = fuse.clone();
    let agent = custom_agent(&Registry::new(), "waiter", move |session: AgentSession| {
        let dies = dies.clone();
        async move {
            let reserve = |turn: everturn_agent::Turn| {
                let dies = dies.clone();
                async move {
                    let work = |_| async move {
                        dies.die().await;
                        Ok(7)
                    };
                    turn.effect("reserve", Replay::Once).run(work).await?;
                    Ok(())
                }
            };
            session.run(reserve).await?;
            Ok(session.result())
        }
    })
    .store(desk.store.clone())
    .define()
    .unwrap();

    assert!(fuse.process(turn(&agent, "for two")).is_none());

    let listed = unfinished(&desk.store, later());
    let names: Vec<_> = listed.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!(names, ["reserve"]);
}
