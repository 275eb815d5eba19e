//! Errors have exit codes for scripts, and suggest the next step.

use std::net::TcpListener;

use everturn_server::{ArchiveAccess, BearerTokens, Server};

use crate::support::{Kitchen, Program};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");

    for arguments in [
        &["agents"][..],
        &["chat", "chef", "hello"],
        &["sessions", "list"],
        &["runs", "list"],
        &["run", "menu"],
    ] {
        let ran = Program::new(arguments)
            .variable("EVERTURN_URL", &url)
            .run()
            .exits(6);
        assert!(ran.err.contains(&url) && ran.err.contains("next:"), "{}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_taken_from_the_environment() {
    let kitchen = Kitchen::with_tokens().await;

    let nobody = kitchen.program(&["agents"]).run().exits(4);
    let wrong = kitchen
        .program(&["agents"])
        .variable("EVERTURN_TOKEN", "guess")
        .run()
        .exits(4);
    kitchen
        .program(&["agents"])
        .variable("EVERTURN_TOKEN", "alice-token")
        .run()
        .exits(0);
    let chat = kitchen.program(&["chat", "chef", "leeks", "--session", "dinner"]);
    chat.variable("EVERTURN_TOKEN", "alice-token").run().exits(0);
    let fork = kitchen.sessions(&["copy", "dinner", "lunch"]);
    let fork = fork.variable("EVERTURN_TOKEN", "alice-token").run().exits(4);

    assert!(nobody.err.contains("EVERTURN_TOKEN"), "{}", nobody.err);
    assert!(wrong.err.contains("EVERTURN_TOKEN"), "{}", wrong.err);
    assert!(fork.err.contains("ArchiveAccess"), "{}", fork.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_the_token_is_given_only_if_the_server_rejects_it() {
    let refused = |server: Server| {
        let tokens = BearerTokens::new([("alice", "alice-token")]);
        // Without a description of its routes the first request is the turn itself.
        server.context(tokens).without_operations()
    };
    let kitchen = Kitchen::served(refused).await;
    let chat = |text: &'static str| kitchen.program(&["chat", "chef", text]);

    let rejected = chat("leeks").variable("EVERTURN_TOKEN", "guess").run().exits(4);
    let failed = chat("a wrong provider key")
        .variable("EVERTURN_TOKEN", "alice-token")
        .run()
        .exits(1);

    assert!(rejected.err.contains("EVERTURN_TOKEN"), "{}", rejected.err);
    assert!(failed.err.contains("the API key is wrong"), "{}", failed.err);
    assert!(!failed.err.contains("EVERTURN_TOKEN"), "{}", failed.err);
    assert!(failed.err.contains("model provider"), "{}", failed.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_allows_no_changes_names_the_setting() {
    let kitchen = Kitchen::served(|server| server.archive(ArchiveAccess::none())).await;
    let id = kitchen.cook("dinner", "leeks").await;

    kitchen.sessions(&["show", "dinner"]).run().exits(0);
    for arguments in [
        &["fork", &id, "lunch"][..],
        &["export", "dinner"],
        &["delete", "dinner", "--yes"],
        &["label", &id, "a"],
    ] {
        let refused = kitchen.sessions(arguments).run().exits(4);
        assert!(
            refused.err.contains("ArchiveAccess") && refused.err.contains("--store"),
            "{}",
            refused.err
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_must_be_chosen_among_several_and_exist() {
    let kitchen = Kitchen::on_a_server().await;

    let several = kitchen.program(&["sessions", "list"]).run().exits(2);
    let unknown = kitchen.program(&["chat", "nobody", "hello"]).run().exits(3);
    let tenant = kitchen.sessions(&["list", "--tenant", "ann"]).run().exits(2);

    assert!(
        several.err.contains("banker, chef, planner") && several.err.contains("--agent banker"),
        "{}",
        several.err
    );
    assert!(
        unknown.err.contains("nobody") && unknown.err.contains("banker, chef, planner"),
        "{}",
        unknown.err
    );
    assert!(tenant.err.contains("EVERTURN_TOKEN"), "{}", tenant.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_has_no_agents_and_a_missing_store_is_not_made() {
    let kitchen = Kitchen::in_sqlite().await;

    for arguments in [&["chat", "chef", "hello"][..], &["agents"], &["run", "menu"]] {
        let ran = kitchen.program(arguments).run().exits(2);
        assert!(
            ran.err.contains("needs a server") && ran.err.contains("--url"),
            "{}",
            ran.err
        );
    }
    let missing = kitchen.folder.path().join("typo.db");
    for kind in ["sqlite", "file"] {
        let store = format!("{kind}:{}", missing.display());
        let ran = Program::new(&["sessions", "list", "--store", &store])
            .run()
            .exits(3);
        assert!(ran.err.contains("typo.db"), "{}", ran.err);
        assert!(!missing.exists());
    }
    let kind = Program::new(&["sessions", "list", "--store", "mysql:a"])
        .run()
        .exits(2);
    assert!(kind.err.contains("sqlite:PATH"), "{}", kind.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_json_an_error_is_an_object_on_standard_error() {
    let kitchen = Kitchen::in_sqlite().await;

    let ran = kitchen.sessions(&["show", "nowhere", "--json"]).run().exits(3);

    assert_eq!(ran.out, "");
    assert_eq!(ran.error()["status"], "NOT_FOUND");
    assert!(ran.error()["next"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_goes_before_the_environment() {
    let kitchen = Kitchen::in_sqlite().await;
    kitchen.cook("dinner", "leeks").await;

    let set = |program: Program| program.variable("EVERTURN_URL", "http://127.0.0.1:1");
    set(kitchen.sessions(&["list"])).run().exits(0);
    let both = Program::new(&["sessions", "list"]).variable("EVERTURN_STORE", &kitchen.store);
    let both = set(both).run().exits(2);

    assert!(both.err.contains("EVERTURN_STORE"), "{}", both.err);
    Program::new(&["sessions", "show", "dinner"])
        .variable("EVERTURN_STORE", &kitchen.store)
        .run()
        .exits(0);
}
