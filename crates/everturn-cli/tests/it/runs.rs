//! Background runs are started, listed, watched and aborted.

use everturn::prelude::*;

use crate::support::{Kitchen, Program};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_begun_listed_and_watched_to_its_end() {
    let kitchen = Kitchen::on_a_server().await;
    let runs = |arguments: &[&str]| {
        let mut all = vec!["runs", "--agent", "planner"];
        all.extend(arguments);
        kitchen.program(&all)
    };

    let begun = kitchen
        .program(&["chat", "planner", "--detach", "plan", "--json"])
        .run()
        .exits(0)
        .json();
    let id = begun["snapshotId"].as_str().unwrap();
    let list = runs(&["list", "--json"]).run().exits(0).json();
    let stored = Program::new(&["runs", "list", "--json", "--store", &kitchen.store])
        .run()
        .exits(0)
        .json();
    kitchen.gate.add_permits(1);
    let watched = runs(&["watch", id]).run().exits(0);
    let over = runs(&["list", "--json"]).run().exits(0).json();

    for found in [list, stored] {
        assert_eq!(found["runs"][0]["snapshotId"], id);
        assert_eq!(found["runs"][0]["status"], "pending");
    }
    assert!(
        watched.out.contains("[planning Monday]") && watched.out.ends_with("Planned.\ncompleted\n"),
        "{}",
        watched.out
    );
    assert_eq!(over, json!({ "runs": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_aborted_on_its_server_and_through_its_store() {
    let kitchen = Kitchen::on_a_server().await;
    let (one, other) = (kitchen.plan().await, kitchen.plan().await);
    let stored = |arguments: &[&str]| {
        let mut all = vec!["runs", "--store", &kitchen.store];
        all.extend(arguments);
        Program::new(&all)
    };

    let there = kitchen
        .program(&["runs", "--agent", "planner", "abort", &one, "--json"])
        .run()
        .exits(0)
        .json();
    let here = stored(&["abort", &other]).run().exits(0);
    let watched = kitchen
        .program(&["runs", "--agent", "planner", "watch", &one])
        .run()
        .exits(7);
    let statuses = stored(&["watch", &other, "--json"]).run().exits(7).json_lines();

    assert_eq!(there["status"], "aborted");
    assert_eq!(here.out, "aborted\n");
    assert!(watched.err.contains("aborted"), "{}", watched.err);
    assert_eq!(statuses.last().unwrap()["status"], "aborted");
    // Wait until the workers in this process have seen the abort.
    kitchen.planner.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_failed_run_shows_what_it_used() {
    let kitchen = Kitchen::on_a_server().await;
    let begun = kitchen
        .program(&["chat", "waiter", "--detach", "how many?", "--json"])
        .run()
        .exits(0)
        .json();
    let id = begun["snapshotId"].as_str().unwrap();

    let served = kitchen.program(&["runs", "--agent", "waiter", "watch", id]).run();
    let stored = Program::new(&["runs", "watch", id, "--store", &kitchen.store]).run();

    for watched in [served.exits(7), stored.exits(7)] {
        let remark = "The run failed. It used ";
        assert!(watched.err.contains(remark), "{}", watched.err);
        assert!(
            watched.err.contains("2 model calls, 1 tool call"),
            "{}",
            watched.err
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_or_unknown_run_is_not_aborted() {
    let kitchen = Kitchen::on_a_server().await;
    kitchen.gate.add_permits(1);
    let id = kitchen.plan().await;
    kitchen.planner.task(id.as_str()).wait().await.unwrap();
    let stored = ["--store".to_owned(), kitchen.store.clone()];

    let over = Program::new(&["runs", "abort", &id]).with(&stored).run().exits(5);
    let there = kitchen
        .program(&["runs", "--agent", "planner", "abort", &id])
        .run()
        .exits(5);

    assert!(over.err.contains("completed"), "{}", over.err);
    assert!(there.err.contains("completed"), "{}", there.err);
    Program::new(&["runs", "abort", "nowhere"])
        .with(&stored)
        .run()
        .exits(3);
    Program::new(&["runs", "watch", "nowhere"])
        .with(&stored)
        .run()
        .exits(3);
    kitchen
        .program(&["runs", "--agent", "planner", "watch", "nowhere"])
        .run()
        .exits(3);
    Program::new(&["runs", "watch", &id]).with(&stored).run().exits(0);
}
