//! The records of a turn, when they are dropped, and their replay when the turn runs again.

use std::time::Duration;

use everturn_agent::{Agent, AgentFinishReason, AgentInput, Journaling, SnapshotPolicy, agent};
use everturn_ai::{Answers, ModelResponse, Reconciliation, Replay};
use everturn_core::{Error, Status};
use serde_json::{Value, json};

use crate::journal_support::{
    Setting, deadly, done, interrupt, journals, latest, once, registry, run, status, tool,
};
use crate::support::Fuse;

/// A process that died in its call of `pay`, and the agent of the next one.
fn died_while_paying() -> (Setting, Fuse, Agent) {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    (setting, fuse, agent)
}

#[test]
fn a_turn_without_tools_writes_nothing() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, |_| ModelResponse::text_of("Hello."), []);

    run(&fuse, &agent, "hi").unwrap().unwrap();

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

        run(&fuse, &agent, "go").unwrap().unwrap();

        let counted = |what: &str| setting.world.counted(what);
        let written = (counted("replied"), counted("started"), counted("ended"));
        assert_eq!(written, (2, started, ended), "{replay:?}");
        assert_eq!(journals(&setting.store), 0, "{replay:?}");
    }
}

#[test]
fn a_call_in_flight_is_asked_about_and_an_answer_settles_it() {
    let (setting, fuse, agent) = died_while_paying();
    let asked = run(&fuse, &agent, "go").unwrap().unwrap();
    let question = interrupt(&asked);
    let answer = Answers::from(question.respond("paid in cash").unwrap());
    let output = run(&fuse, &agent, AgentInput::answers(answer)).unwrap().unwrap();

    assert!(question.is_outcome_unknown());
    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 1);
    assert_eq!(setting.world.counted("model"), 2);
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn a_call_in_flight_is_run_again_if_it_is_known_not_to_have_happened() {
    let (setting, fuse, agent) = died_while_paying();
    let asked = run(&fuse, &agent, "go").unwrap().unwrap();
    let again = Answers::from(interrupt(&asked).restart(()).unwrap());
    let output = run(&fuse, &agent, AgentInput::answers(again)).unwrap().unwrap();

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 2);
}

#[test]
fn a_restarted_call_that_dies_too_is_not_run_a_third_time() {
    let setting = Setting::new();
    let mut fuse = Fuse::never();
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
    assert!(run(&fuse, &dying, "go").is_none());
    fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);
    let asked = run(&fuse, &agent, "go").unwrap().unwrap();
    let again = || AgentInput::answers(Answers::from(interrupt(&asked).restart(()).unwrap()));
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
    assert!(run(&second, &dying, again()).is_none());

    let output = run(&fuse, &agent, again()).unwrap().unwrap();
    assert!(interrupt(&output).is_outcome_unknown());
    // It answers the first question, and now the second one is open.
    let output = run(&fuse, &agent, again()).unwrap().unwrap();
    assert_eq!(status(&output), Status::FailedPrecondition);

    assert_eq!(setting.world.counted("pay"), 2);
}

#[test]
fn a_tool_with_a_reconcile_function_asks_no_person() {
    for (happened, runs) in [(true, 1), (false, 2)] {
        let setting = Setting::new();
        let fuse = Fuse::never();
        let dying = setting.agent(&fuse, once(&["pay"]), [deadly("pay", &setting.world, &fuse)]);
        assert!(run(&fuse, &dying, "go").is_none());

        let fuse = Fuse::never();
        let pay = done("pay", &setting.world).with_reconcile(move |_: Value, _| async move {
            Ok(if happened {
                Reconciliation::Happened("it was paid")
            } else {
                Reconciliation::NeverHappened
            })
        });
        let agent = setting.agent(&fuse, once(&["pay"]), [pay]);
        let output = run(&fuse, &agent, "go").unwrap().unwrap();

        assert_eq!(output.message.unwrap().text(), "Done.");
        assert_eq!(setting.world.counted("pay"), runs, "happened: {happened}");
    }
}

#[test]
fn a_turn_that_failed_for_now_continues_where_it_failed() {
    // Tried again, or followed by another message: what was paid is paid.
    for (again, fetched) in [(AgentInput::default(), 2), ("go".into(), 1)] {
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
            [done("pay", &setting.world), fetch.with_replay(Replay::Idempotent)],
        );

        let failed = run(&fuse, &agent, "go").unwrap().unwrap();
        let output = run(&fuse, &agent, again).unwrap().unwrap();

        assert_eq!(failed.finish_reason, Some(AgentFinishReason::Failed));
        assert_eq!(output.message.unwrap().text(), "Done.");
        let counted = |what: &str| setting.world.counted(what);
        assert_eq!(
            (counted("pay"), counted("fetch"), counted("model")),
            (1, fetched, 2)
        );
    }
}

#[test]
fn a_turn_that_came_to_a_dead_end_starts_over_and_still_pays_once() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let wrong = tool("cook", &setting.world, |run| async move {
        match run {
            1 => Err(Error::internal("no such dish")),
            _ => Ok(json!("soup")),
        }
    });
    let agent = setting.agent(
        &fuse,
        once(&["pay", "read", "cook"]),
        [
            done("pay", &setting.world),
            done("read", &setting.world).with_replay(Replay::Idempotent),
            wrong.with_replay(Replay::Idempotent),
        ],
    );

    let failed = run(&fuse, &agent, "go").unwrap().unwrap();
    let output = run(&fuse, &agent, AgentInput::default()).unwrap().unwrap();

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
        Err(Error::internal("no such dish"))
    });
    let agent = setting.agent(
        &fuse,
        once(&["read", "cook"]),
        [
            done("read", &setting.world).with_replay(Replay::Idempotent),
            wrong.with_replay(Replay::Idempotent),
        ],
    );

    run(&fuse, &agent, "go").unwrap().unwrap();

    assert!(setting.world.counted("records") > 0);
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn a_different_input_starts_a_different_turn_that_finds_the_call_in_flight() {
    let (setting, fuse, agent) = died_while_paying();
    let output = run(&fuse, &agent, "go on").unwrap().unwrap();

    assert!(interrupt(&output).is_outcome_unknown());
    let answer = Answers::from(interrupt(&output).respond("paid in cash").unwrap());
    let output = run(&fuse, &agent, AgentInput::answers(answer)).unwrap().unwrap();
    assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop));
    assert_eq!(setting.world.counted("pay"), 1);
    let state = latest(&setting.store).unwrap().state.unwrap();
    assert_eq!(
        state.messages.get(0).unwrap().text(),
        "go on",
        "the message was kept"
    );
    assert_eq!(journals(&setting.store), 0);
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
    assert!(run(&fuse, &dying, "go").is_none());

    let fuse = Fuse::never();
    let changed = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .system("Be quick.")
        .tools([done("pay", &setting.world)])
        .store(setting.shared(&fuse))
        .define()
        .unwrap();
    let output = run(&fuse, &changed, "go").unwrap().unwrap();

    assert_eq!(output.message.unwrap().text(), "Done.");
    assert_eq!(setting.world.counted("pay"), 1);
}

#[test]
fn an_agent_with_its_journal_disabled_writes_no_record() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .journaling(Journaling::Off)
        .store(setting.shared(&fuse))
        .define()
        .unwrap();

    run(&fuse, &agent, "go").unwrap().unwrap();

    assert_eq!(setting.world.counted("records"), 0);
}

#[test]
fn a_turn_that_gets_no_snapshot_leaves_no_journal() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .snapshots(SnapshotPolicy::never())
        .store(setting.shared(&fuse))
        .define()
        .unwrap();

    run(&fuse, &agent, "go").unwrap().unwrap();

    assert!(setting.world.counted("records") > 0);
    assert!(latest(&setting.store).unwrap().is_head());
    assert_eq!(journals(&setting.store), 0);
}

#[test]
fn journals_that_nobody_came_back_for_are_dropped() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    // A journal with an unknown outcome would stay.
    let deadly = deadly("pay", &setting.world, &fuse).with_replay(Replay::Idempotent);
    let dying = setting.agent(&fuse, once(&["pay"]), [deadly]);
    assert!(run(&fuse, &dying, "go").is_none());
    assert_eq!(journals(&setting.store), 1);

    let fuse = Fuse::never();
    let forgetful = agent(&registry(&fuse, &setting.world, once(&["pay"])), "cook")
        .tools([done("pay", &setting.world)])
        .journaling(Journaling::Keep(Duration::ZERO))
        .store(setting.shared(&fuse))
        .define()
        .unwrap();
    fuse.process(forgetful.chat().resume("another session").run("go"))
        .unwrap()
        .unwrap();

    assert_eq!(journals(&setting.store), 0);
    assert_eq!(setting.world.counted("swept"), 2, "once by each agent");
}

#[test]
fn a_background_run_keeps_its_journals_until_its_end() {
    let setting = Setting::new();
    let fuse = Fuse::never();
    let agent = setting.agent(&fuse, once(&["pay"]), [done("pay", &setting.world)]);

    let snapshot = fuse.process(async {
        let mut chat = agent.chat().open().await.unwrap();
        let task = chat.detach("go").await.unwrap();
        task.wait().await.unwrap();
        task.poll().await.unwrap()
    });

    assert_eq!(snapshot.unwrap().finish_reason, Some(AgentFinishReason::Stop));
    assert!(setting.world.counted("records") > 0);
    assert_eq!(journals(&setting.store), 0);
}
