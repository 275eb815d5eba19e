//! What is written down in a turn, when it is dropped, and what a turn that is taken up again does with it.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod journal_support;

use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::{MemoryStore, SessionStore};
use everturn_agent::{
    Agent, AgentFinishReason, AgentInput, AgentOutput, AgentSession, Concurrency, Interrupt, Journaling,
    Resume, SnapshotPolicy, agent, custom_agent,
};
use everturn_ai::{
    Message, ModelResponse, Part, Reconciliation, Replay, Tool, ToolContext, ToolRequest, reason,
};
use everturn_core::{Error, Registry, Result, Status};
use everturn_testkit::Gate;
use journal_support::{Fuse, Shared, World, journals, latest, registry, turn};
use serde_json::{Value, json};

fn asks(names: &[&str]) -> ModelResponse {
    let request = |name: &&str| Part::from(ToolRequest::new(*name, json!({})).with_reference(*name));
    ModelResponse::new(Message::model(names.iter().map(request).collect::<Vec<_>>()))
}

/// Asks for these tools once, then is done.
fn once(names: &'static [&'static str]) -> impl Fn(usize) -> ModelResponse + Send + Sync {
    move |rounds| match rounds {
        0 => asks(names),
        _ => ModelResponse::text_of("Done."),
    }
}

/// A tool that is counted, and then does what `then` does with the number of its run.
fn tool<F, Fut>(name: &'static str, world: &Arc<World>, then: F) -> Tool
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value>> + Send + 'static,
{
    let (world, then) = (Arc::clone(world), Arc::new(then));
    Tool::dynamic(name, "Does it.", None, move |_, _: ToolContext| {
        world.count(name);
        let run = world.counted(name);
        let then = Arc::clone(&then);
        async move { then(run).await }
    })
}

fn done(name: &'static str, world: &Arc<World>) -> Tool {
    tool(name, world, move |_| async move {
        Ok(json!(format!("{name} is done")))
    })
}

/// A tool whose first run takes the process with it.
fn deadly(name: &'static str, world: &Arc<World>, fuse: &Fuse) -> Tool {
    let fuse = fuse.clone();
    tool(name, world, move |run| {
        let fuse = fuse.clone();
        async move {
            if run == 1 {
                fuse.die().await;
            }
            Ok(json!(format!("{name} is done")))
        }
    })
}

struct Setting {
    store: MemoryStore,
    world: Arc<World>,
}

impl Setting {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            world: Arc::new(World::default()),
        }
    }

    fn agent(
        &self,
        fuse: &Fuse,
        answer: impl Fn(usize) -> ModelResponse + Send + Sync + 'static,
        tools: impl IntoIterator<Item = Tool>,
    ) -> Agent {
        agent(&registry(fuse, &self.world, answer), "cook")
            .tools(tools)
            .store(Shared::new(&self.store, fuse, &self.world))
            .define()
            .unwrap()
    }

    /// Runs a turn of an agent in a process of its own; `None` if the process died.
    fn run(&self, fuse: &Fuse, agent: &Agent, input: impl Into<AgentInput>) -> Option<Result<AgentOutput>> {
        fuse.process(turn(agent, input))
    }
}

fn interrupt(output: &AgentOutput) -> Interrupt {
    assert_eq!(
        output.finish_reason,
        Some(AgentFinishReason::Interrupted),
        "{output:?}"
    );
    Interrupt::of(output.message.as_ref().unwrap().interrupts().next().unwrap()).unwrap()
}

fn status(output: &AgentOutput) -> Status {
    output.error.as_ref().unwrap().status.unwrap()
}

#[test]
fn a_turn_without_tools_writes_nothing() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, |_| ModelResponse::text_of("Hello."), []);

    setting.run(&fuse, &agent, "hi").unwrap().unwrap();

    assert_eq!(setting.world.counted("records"), 0);
    assert_eq!(setting.world.counted("cleared"), 0);
}

#[test]
fn each_kind_of_tool_costs_what_it_says() {
    for (replay, started, ended) in [
        (Replay::Pure, 0, 0),
        (Replay::Idempotent, 0, 1),
        (Replay::Keyed, 0, 1),
        (Replay::Once, 1, 1),
    ] {
        let setting = Setting::new();
        let fuse = Fuse::never();
        let tool = done("act", &setting.world).with_replay(replay);
        let agent = setting.agent(&fuse, once(&["act"]), [tool]);

        setting.run(&fuse, &agent, "go").unwrap().unwrap();

        let counted = |what: &str| setting.world.counted(what);
        let written = (counted("replied"), counted("started"), counted("ended"));
        assert_eq!(written, (2, started, ended), "{replay:?}");
        assert_eq!(journals(&setting.store), 0, "{replay:?}");
    }
}

#[test]
fn a_call_in_flight_is_asked_about_and_an_answer_settles_it() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(setting.run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    let asked = setting.run(&fuse, &agent, "go").unwrap().unwrap();
    let question = interrupt(&asked);
    let answer = Resume::from(question.respond("paid in cash").unwrap());
    let output = setting
        .run(&fuse, &agent, AgentInput::resume(answer))
        .unwrap()
        .unwrap();

    assert!(question.is_outcome_unknown());
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 1);
    assert_eq!(setting.world.counted("model"), 2);
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn a_call_in_flight_is_run_again_by_whoever_knows_that_it_did_not_happen() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(setting.run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    let asked = setting.run(&fuse, &agent, "go").unwrap().unwrap();
    let again = Resume::from(interrupt(&asked).restart(()).unwrap());
    let output = setting
        .run(&fuse, &agent, AgentInput::resume(again))
        .unwrap()
        .unwrap();

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 2);
}

#[test]
fn a_restarted_call_that_dies_too_is_not_run_a_third_time() {
    let setting = Setting::new();
    let mut fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(setting.run(&fuse, &dying, "go").is_none());
    fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    let asked = setting.run(&fuse, &agent, "go").unwrap().unwrap();
    let again = || AgentInput::resume(Resume::from(interrupt(&asked).restart(()).unwrap()));
    let second = Fuse::never();
    let dies = second.clone();
    let dying = tool("pay", &setting.world, move |_| {
        let dies = dies.clone();
        async move {
            dies.die().await;
            Ok(Value::Null)
        }
    });
    let dying = setting.agent(&second, once(&["pay"]), [dying]);
    assert!(setting.run(&second, &dying, again()).is_none());

    for _ in 0..2 {
        let output = setting.run(&fuse, &agent, again()).unwrap().unwrap();
        assert_eq!(status(&output), Status::FailedPrecondition);
    }

    assert_eq!(setting.world.counted("pay"), 2);
}

#[test]
fn a_tool_that_can_find_out_asks_nobody() {
    for (happened, runs) in [(true, 1), (false, 2)] {
        let setting = Setting::new();
        let fuse = Fuse::never();
        let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
        assert!(setting.run(&fuse, &dying, "go").is_none());

        let fuse = Fuse::never();
        let pay = done("pay", &setting.world).with_reconcile(move |_: Value, _| async move {
            Ok(match happened {
                true => Reconciliation::Happened("it was paid"),
                false => Reconciliation::NeverHappened,
            })
        });
        let agent = setting.agent(&fuse, once(&["pay"]), [pay]);
        let output = setting.run(&fuse, &agent, "go").unwrap().unwrap();

        assert_eq!(output.message.unwrap().text(), "Done.");
        assert_eq!(setting.world.counted("pay"), runs, "happened: {happened}");
    }
}

#[test]
fn a_turn_that_failed_for_now_goes_on_where_it_failed() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let fetch = tool("fetch", &setting.world, |run| async move {
        match run {
            1 => Err(Error::unavailable("the shop is closed")),
            _ => Ok(json!("leeks")),
        }
    });
    let agent = setting.agent(
        &fuse,
        once(&["pay", "fetch"]),
        [done("pay", &setting.world), fetch],
    );

    let failed = setting.run(&fuse, &agent, "go").unwrap().unwrap();
    let output = setting.run(&fuse, &agent, "go").unwrap().unwrap();

    assert_eq!(failed.finish_reason, Some(AgentFinishReason::Failed));
    assert_eq!(output.message.unwrap().text(), "Done.");
    let counted = |what: &str| setting.world.counted(what);
    assert_eq!((counted("pay"), counted("fetch"), counted("model")), (1, 2, 2));
}

#[test]
fn a_turn_that_came_to_a_dead_end_begins_anew_and_still_pays_once() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let wrong = tool("cook", &setting.world, |run| async move {
        match run {
            1 => Err(Error::invalid_argument("no such dish")),
            _ => Ok(json!("soup")),
        }
    });
    let agent = setting.agent(
        &fuse,
        once(&["pay", "read", "cook"]),
        [
            done("pay", &setting.world),
            done("read", &setting.world).with_replay(Replay::Idempotent),
            wrong,
        ],
    );

    let failed = setting.run(&fuse, &agent, "go").unwrap().unwrap();
    let output = setting.run(&fuse, &agent, "go").unwrap().unwrap();

    assert_eq!(status(&failed), Status::Internal);
    assert_eq!(output.message.unwrap().text(), "Done.");
    let counted = |what: &str| setting.world.counted(what);
    assert_eq!(
        counted("model"),
        3,
        "the reply that led nowhere is not used again"
    );
    assert_eq!((counted("pay"), counted("read")), (1, 2));
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn a_dead_end_without_anything_to_protect_leaves_nothing() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let wrong = tool("cook", &setting.world, |_| async {
        Err(Error::invalid_argument("no such dish"))
    });
    let agent = setting.agent(
        &fuse,
        once(&["read", "cook"]),
        [
            done("read", &setting.world).with_replay(Replay::Idempotent),
            wrong.with_replay(Replay::Idempotent),
        ],
    );

    setting.run(&fuse, &agent, "go").unwrap().unwrap();

    assert!(setting.world.counted("records") > 0);
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn another_input_is_another_turn() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(setting.run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    let output = setting.run(&fuse, &agent, "go on").unwrap().unwrap();

    assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop));
    assert_eq!(setting.world.counted("pay"), 2);
}

#[test]
fn a_changed_prompt_asks_the_model_again_and_pays_once() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(
        &fuse,
        once(&["pay", "fall"]),
        [done("pay", &setting.world), deadly("fall", &setting.world, &fuse)],
    );
    assert!(setting.run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let changed = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .system("Be quick.")
        .tools([done("pay", &setting.world)])
        .store(Shared::new(&setting.store, &fuse, &setting.world))
        .define()
        .unwrap();
    let output = setting.run(&fuse, &changed, "go").unwrap().unwrap();

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 1);
}

#[tokio::test]
async fn a_worker_that_was_only_asleep_is_stopped_before_it_acts() {
    let setting = Setting::new();
    let (fuse, gate) = (Fuse::never(), Gate::new());
    let (asleep, at) = (gate.clone(), Arc::clone(&setting.world));
    let slow = Tool::dynamic("look", "Looks.", None, move |_, _: ToolContext| {
        let (asleep, at) = (asleep.clone(), Arc::clone(&at));
        async move {
            at.count("look");
            asleep.pass().await;
            Ok(json!("seen"))
        }
    })
    .with_replay(Replay::Idempotent);
    let script = |rounds| match rounds {
        0 => asks(&["look"]),
        1 => asks(&["pay"]),
        _ => ModelResponse::text_of("Done."),
    };
    let sleeper = setting.agent(&fuse, script, [slow, done("pay", &setting.world)]);
    let quick = done("look", &setting.world).with_replay(Replay::Idempotent);
    let worker = setting.agent(&fuse, script, [quick, done("pay", &setting.world)]);

    let (first, second) = tokio::join!(turn(&sleeper, "go"), async {
        gate.reached().await;
        let output = turn(&worker, "go").await.unwrap();
        gate.open();
        output
    });

    assert_eq!(second.message.unwrap().text(), "Done.");
    assert_eq!(status(&first.unwrap()), Status::Aborted);
    assert_eq!(setting.world.counted("pay"), 1);
}

#[tokio::test]
async fn a_worker_that_lost_the_turn_to_one_still_running_is_stopped_too() {
    let setting = Setting::new();
    let (fuse, first_gate, second_gate) = (Fuse::never(), Gate::new(), Gate::new());
    let gated = |gate: &Gate| {
        let gate = gate.clone();
        tool("look", &setting.world, move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(json!("seen"))
            }
        })
        .with_replay(Replay::Idempotent)
    };
    let sleeper = setting.agent(&fuse, once(&["look"]), [gated(&first_gate)]);
    let worker = setting.agent(&fuse, once(&["look"]), [gated(&second_gate)]);

    let (first, second) = tokio::join!(
        async {
            let output = turn(&sleeper, "go").await.unwrap();
            second_gate.open();
            output
        },
        async {
            first_gate.reached().await;
            let (output, ()) = tokio::join!(turn(&worker, "go"), async {
                second_gate.reached().await;
                first_gate.open();
            });
            output.unwrap()
        }
    );

    assert_eq!(status(&first), Status::Aborted);
    assert_eq!(second.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("model"), 2);
}

#[tokio::test]
async fn identical_turns_of_a_forking_agent_do_not_meet() {
    let setting = Setting::new();
    let (fuse, gate) = (Fuse::never(), Gate::new());
    let waiting = gate.clone();
    let look = tool("look", &setting.world, move |run| {
        let waiting = waiting.clone();
        async move {
            if run == 1 {
                waiting.pass().await;
            }
            Ok(json!("seen"))
        }
    });
    let agent = agent(&registry(&fuse, &setting.world, once(&["look"])), "cook")
        .tools([look])
        .concurrency(Concurrency::Fork)
        .store(Shared::new(&setting.store, &fuse, &setting.world))
        .define()
        .unwrap();

    let (first, second) = tokio::join!(turn(&agent, "go"), async {
        gate.reached().await;
        let output = turn(&agent, "go").await;
        gate.open();
        output
    });

    for output in [first.unwrap(), second.unwrap()] {
        assert_eq!(output.message.unwrap().text(), "Done.");
    }
    assert_eq!(setting.world.counted("look"), 2);
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn an_agent_that_is_told_so_writes_nothing() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .journaling(Journaling::Off)
        .store(Shared::new(&setting.store, &fuse, &setting.world))
        .define()
        .unwrap();

    setting.run(&fuse, &agent, "go").unwrap().unwrap();

    assert_eq!(setting.world.counted("records"), 0);
}

#[test]
fn a_turn_that_gets_no_row_leaves_no_journal() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .snapshots(SnapshotPolicy::never())
        .store(Shared::new(&setting.store, &fuse, &setting.world))
        .define()
        .unwrap();

    setting.run(&fuse, &agent, "go").unwrap().unwrap();

    assert!(setting.world.counted("records") > 0);
    assert!(latest(&setting.store).is_none());
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn journals_that_nobody_came_back_for_are_dropped() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(setting.run(&fuse, &dying, "go").is_none());
    assert_eq!(journals(&setting.store), 1);

    let fuse = Fuse::never();
    let forgetful = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .journaling(Journaling::Keep(Duration::ZERO))
        .store(Shared::new(&setting.store, &fuse, &setting.world))
        .define()
        .unwrap();
    let other = AgentInput::message("something else");
    setting.run(&fuse, &forgetful, other).unwrap().unwrap();

    assert_eq!(journals(&setting.store), 0);
    assert_eq!(setting.world.counted("swept"), 2, "once by each agent");
}

#[test]
fn a_background_run_keeps_its_journals_until_its_end() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);

    let row = fuse.process(async {
        let mut chat = agent.chat().open().await.unwrap();
        let task = chat.detach("go").await.unwrap();
        task.wait().await.unwrap();
        task.poll().await.unwrap()
    });

    assert_eq!(row.unwrap().finish_reason, Some(AgentFinishReason::Stop));
    assert!(setting.world.counted("records") > 0);
    assert_eq!(journals(&setting.store), 0);
}

/// An agent whose turns reserve a table, and die or fail after it as they are told.
fn waiter(setting: &Setting, fuse: &Fuse, replay: Replay, store: impl SessionStore) -> Agent {
    let (world, fuse) = (Arc::clone(&setting.world), fuse.clone());
    custom_agent(&Registry::new(), "waiter", move |session: AgentSession| {
        let (world, fuse) = (Arc::clone(&world), fuse.clone());
        async move {
            session
                .run(|turn| {
                    let (world, fuse) = (Arc::clone(&world), fuse.clone());
                    async move {
                        let (inside, dies) = (Arc::clone(&world), fuse.clone());
                        let table: usize = turn
                            .effect("reserve", replay)
                            .run(|key| async move {
                                inside.count("reserve");
                                inside.saw_key("reserve", key.as_str());
                                dies.step().await;
                                Ok(inside.counted("reserve"))
                            })
                            .await?;
                        fuse.step().await;
                        turn.add_message(Message::model(format!("Table {table}.")));
                        Ok(())
                    }
                })
                .await?;
            Ok(session.result())
        }
    })
    .store(store)
    .define()
    .unwrap()
}

#[test]
fn an_effect_of_a_turns_own_takes_place_once() {
    // Steps are reading, before and after each record, inside the effect, and after it.
    for (dies_at, replay, runs) in [
        (6, Replay::Once, 1),
        (4, Replay::Idempotent, 1),
        (4, Replay::Keyed, 1),
        (1, Replay::Keyed, 2),
    ] {
        let setting = Setting::new();
        let fuse = Fuse::burning_at(dies_at);
        let dying = waiter(
            &setting,
            &fuse,
            replay,
            Shared::new(&setting.store, &fuse, &setting.world),
        );
        assert!(setting.run(&fuse, &dying, "a table").is_none());

        let fuse = Fuse::never();
        let alive = waiter(
            &setting,
            &fuse,
            replay,
            Shared::new(&setting.store, &fuse, &setting.world),
        );
        let output = setting.run(&fuse, &alive, "a table").unwrap().unwrap();

        let said = format!("Table {runs}.");
        assert_eq!(output.message.unwrap().text(), said, "{dies_at} {replay:?}");
        assert_eq!(setting.world.keys("reserve"), 1);
        assert_eq!(journals(&setting.store), 0);
    }
}

#[test]
fn an_effect_of_unknown_outcome_fails_the_turn_until_somebody_finds_out() {
    let setting = Setting::new();
    let fuse = Fuse::burning_at(3);
    let shared = |fuse: &Fuse| Shared::new(&setting.store, fuse, &setting.world);
    assert!(
        setting
            .run(
                &fuse,
                &waiter(&setting, &fuse, Replay::Once, shared(&fuse)),
                "a table"
            )
            .is_none()
    );

    let fuse = Fuse::never();
    let alive = waiter(&setting, &fuse, Replay::Once, shared(&fuse));
    for _ in 0..2 {
        let output = setting.run(&fuse, &alive, "a table").unwrap().unwrap();
        assert_eq!(status(&output), Status::FailedPrecondition);
        let details = output.error.unwrap().details.unwrap();
        assert_eq!(details["effect"], "reserve");
    }
    assert_eq!(setting.world.counted("reserve"), 1);
    assert_eq!(reason::OUTCOME_UNKNOWN.name(), "outcome-unknown");

    let knowing = custom_agent(&Registry::new(), "waiter", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let table: usize = turn
                    .effect("reserve", Replay::Once)
                    .reconcile(|_| async { Ok(Reconciliation::Happened(9)) })
                    .run(|_| async { Err(Error::internal("it is not done again")) })
                    .await?;
                turn.add_message(Message::model(format!("Table {table}.")));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(shared(&fuse))
    .define()
    .unwrap();
    let output = setting.run(&fuse, &knowing, "a table").unwrap().unwrap();

    assert_eq!(output.message.unwrap().text(), "Table 9.");
}

#[tokio::test]
async fn an_agent_without_a_store_has_effects_too() {
    let agent = custom_agent(&Registry::new(), "waiter", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                let table: u32 = turn
                    .effect("reserve", Replay::Once)
                    .run(|_| async { Ok(3) })
                    .await?;
                turn.add_message(Message::model(format!("Table {table}.")));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .define()
    .unwrap();

    assert_eq!(agent.run_text("a table").await.unwrap().text(), "Table 3.");
}
