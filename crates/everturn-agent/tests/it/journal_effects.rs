//! Effects of a turn's own code take place as often as they declare.

use std::sync::Arc;

use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::{Message, Reconciliation, Replay, reason};
use everturn_core::{Error, Registry, Status};

use crate::journal_support::{Setting, journals, run, status};
use crate::support::Fuse;

/// An agent whose turns reserve a table, and die or fail after it on request.
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
        let dying = waiter(&setting, &fuse, replay, setting.shared(&fuse));
        assert!(run(&fuse, &dying, "a table").is_none());

        let fuse = Fuse::never();
        let alive = waiter(&setting, &fuse, replay, setting.shared(&fuse));
        let output = run(&fuse, &alive, "a table").unwrap().unwrap();

        let said = format!("Table {runs}.");
        assert_eq!(output.message.unwrap().text(), said, "{dies_at} {replay:?}");
        assert_eq!(setting.world.keys("reserve"), 1);
        assert_eq!(journals(&setting.store), 0);
    }
}

#[test]
fn an_effect_of_unknown_outcome_fails_the_turn_until_it_is_reconciled() {
    let setting = Setting::new();
    let fuse = Fuse::burning_at(3);
    let shared = |fuse: &Fuse| setting.shared(fuse);
    assert!(
        run(
            &fuse,
            &waiter(&setting, &fuse, Replay::Once, shared(&fuse)),
            "a table"
        )
        .is_none()
    );

    let fuse = Fuse::never();
    let alive = waiter(&setting, &fuse, Replay::Once, shared(&fuse));
    for _ in 0..2 {
        let output = run(&fuse, &alive, "a table").unwrap().unwrap();
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
                    .run(|_| async { Err(Error::internal("it is not done again").into()) })
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
    let output = run(&fuse, &knowing, "a table").unwrap().unwrap();

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
