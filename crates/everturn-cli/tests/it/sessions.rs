//! The same commands manage sessions on a server, in databases and in files.

use std::sync::Arc;

use everturn::agent::Archive;
use everturn::agent::custom_agent;
use everturn::ai::history;
use everturn::core::{Registry, Scope};
use everturn::prelude::*;
use everturn::testkit::{Reply, ScriptedModel};
use everturn_server::{ArchiveAccess, BearerTokens, Server};
use tempfile::TempDir;

use crate::support::{Kitchen, Program};

/// The places with sessions, including PostgreSQL if a server is available.
async fn places() -> Vec<Kitchen> {
    let mut places = vec![
        Kitchen::on_a_server().await,
        Kitchen::in_sqlite().await,
        Kitchen::in_files().await,
    ];
    places.extend(Kitchen::in_postgres().await);
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_newest_first() {
    for kitchen in places().await {
        kitchen.cook("lunch", "leeks").await;
        let dinner = kitchen.cook("dinner", "peas").await;

        let json = kitchen.sessions(&["list", "--json"]).run().exits(0).json();
        let one = kitchen.sessions(&["list", "--limit", "1"]).run().exits(0);

        let ids = json["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|session| &session["sessionId"]);
        assert_eq!(ids.collect::<Vec<_>>(), ["dinner", "lunch"]);
        assert_eq!(json["sessions"][0]["latest"]["snapshotId"], *dinner);
        assert!(
            one.out.contains("dinner") && !one.out.contains("lunch"),
            "{}",
            one.out
        );
        assert!(one.err.contains("--all"), "{}", one.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_shown_at_its_tip_or_at_a_snapshot() {
    for kitchen in places().await {
        let first = kitchen.cook("dinner", "leeks").await;
        kitchen.cook("dinner", "peas").await;

        let tip = kitchen.sessions(&["show", "dinner"]).run().exits(0);
        let earlier = kitchen
            .sessions(&["show", "--snapshot", &first, "--json"])
            .run()
            .exits(0)
            .json();

        assert!(tip.out.contains("Soup for: peas"), "{}", tip.out);
        assert!(
            !tip.out.contains('\u{1b}'),
            "colours only on a terminal: {}",
            tip.out
        );
        assert_eq!(earlier["state"]["custom"]["dishes"], 1);
        assert_eq!(earlier["state"]["messages"].as_array().unwrap().len(), 2);
    }
}

/// Moves money.
#[tool(editable)]
async fn pay(sum: u32, call: &ToolContext) -> Result<String> {
    match call.answer::<Value>()? {
        None => Err(call.interrupt("Pay?")),
        Some(_) => Ok(format!("paid {sum}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_approvals_and_approvers() {
    let kitchen = Kitchen::in_sqlite().await;
    let store = Arc::clone(kitchen.chef.store().unwrap());
    let model = ScriptedModel::new()
        .reply(Reply::tool("pay", json!({"sum": 5})))
        .reply("Paid.");
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted");
    let app = app.build().await.unwrap();
    let bank = app
        .agent("bank")
        .tool(pay)
        .scope(|_| Scope::default())
        .store(store)
        .define()
        .unwrap();
    let chat = || bank.chat().resume("rent").context(Principal::new("carl"));
    let asked = chat().run("pay the rent").await.unwrap();
    let edited = asked.interrupts()[0]
        .restart_with(json!({}), json!({"sum": 3}))
        .unwrap();
    chat()
        .open()
        .await
        .unwrap()
        .answer(edited)
        .await
        .unwrap()
        .output()
        .await
        .unwrap();

    let shown = kitchen.sessions(&["show", "rent"]).run().exits(0);
    let json = kitchen
        .sessions(&["show", "rent", "--json"])
        .run()
        .exits(0)
        .json();

    assert!(shown.out.contains("decided by carl, "), "{}", shown.out);
    assert!(shown.out.contains("edited to {\"sum\":3}"), "{}", shown.out);
    let answers = &json["state"]["messages"][1]["content"][0]["metadata"]["approval"]["answers"];
    assert_eq!(answers[0]["by"], "carl");
    assert_eq!(answers[0]["editedInput"], json!({"sum": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_are_drawn_and_compared() {
    for kitchen in places().await {
        let question = kitchen.cook("dinner", "leeks").await;
        let soup = kitchen.cook("dinner", "a soup").await;
        let pie = kitchen
            .chef
            .chat()
            .snapshot(question.as_str())
            .run("a pie")
            .await
            .unwrap();
        let pie = pie.snapshot_id().unwrap().to_string();

        let tree = kitchen.sessions(&["tree", "dinner"]).run().exits(0);
        let json = kitchen
            .sessions(&["tree", "dinner", "--json"])
            .run()
            .exits(0)
            .json();
        let diff = kitchen.sessions(&["diff", &soup, &pie]).run().exits(0);
        let compared = kitchen
            .sessions(&["diff", &soup, &pie, "--exit-code", "--json"])
            .run()
            .exits(7)
            .json();
        kitchen
            .sessions(&["diff", &soup, &soup, "--exit-code"])
            .run()
            .exits(0);

        assert!(
            tree.out.contains("├─●") && tree.out.contains("← latest"),
            "{}",
            tree.out
        );
        assert_eq!(json["latest"], *pie);
        assert_eq!(json["snapshots"].as_array().unwrap().len(), 3);
        assert!(
            diff.out.contains("- user: a soup") && diff.out.contains("+ user: a pie"),
            "{}",
            diff.out
        );
        assert_eq!(compared["common"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_labelled_and_forked_and_sessions_copied() {
    for kitchen in places().await {
        let soup = kitchen.cook("dinner", "leeks").await;

        kitchen
            .sessions(&["label", &soup, "good", "--note", "with cream"])
            .run()
            .exits(0);
        let labelled = kitchen
            .sessions(&["label", &soup, "better", "--remove", "good", "--json"])
            .run()
            .exits(0)
            .json();
        kitchen
            .sessions(&["fork", &soup, "lunch", "--custom", r#"{"dishes": 9}"#])
            .run()
            .exits(0);
        let taken = kitchen.sessions(&["fork", &soup, "lunch"]).run().exits(5);
        let copied = kitchen
            .sessions(&["copy", "dinner", "breakfast", "--json"])
            .run()
            .exits(0)
            .json();
        kitchen.sessions(&["label", &soup]).run().exits(2);

        assert_eq!(labelled["labels"], json!(["better"]));
        assert_eq!(labelled["note"], "with cream");
        assert!(labelled.get("state").is_none());
        assert!(taken.err.contains("lunch"), "{}", taken.err);
        assert_eq!(copied["snapshots"], 1);
        let lunch = kitchen.chef.archive().unwrap().latest("lunch").await.unwrap();
        assert_eq!(
            lunch.state.unwrap().custom.as_deref(),
            Some(&json!({"dishes": 9}))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_lists_the_deletions_and_needs_a_confirmation() {
    for kitchen in places().await {
        let first = kitchen.cook("dinner", "leeks").await;
        let second = kitchen.cook("dinner", "peas").await;
        kitchen.cook("dinner", "beans").await;
        kitchen.cook("lunch", "leeks").await;

        let asked = kitchen.sessions(&["delete", "dinner"]).run().exits(2);
        let branch = kitchen
            .sessions(&["delete", "--snapshot", &second, "--branch", "--yes", "--json"])
            .run()
            .exits(0)
            .json();
        kitchen
            .sessions(&["delete", "--snapshot", &first, "--yes"])
            .run()
            .exits(0);
        let gone = kitchen.sessions(&["show", "dinner"]).run().exits(3);
        kitchen.sessions(&["delete", "dinner", "--yes"]).run().exits(3);
        let lunch = kitchen.sessions(&["delete", "lunch", "-y"]).run().exits(0);

        assert!(
            asked.err.contains("its 3 snapshots") && asked.err.contains("--yes"),
            "{}",
            asked.err
        );
        assert_eq!(branch["snapshots"], 2);
        assert!(gone.err.contains("everturn sessions list"), "{}", gone.err);
        assert_eq!(lunch.out, "1 snapshot deleted\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_from_any_place_to_a_new_store() {
    for kitchen in places().await {
        kitchen.cook("dinner", "leeks").await;
        kitchen.cook("dinner", "peas").await;
        let file = kitchen.folder.path().join("dinner.jsonl");
        let file = file.to_str().unwrap();
        let elsewhere = TempDir::new().unwrap();
        let elsewhere = format!("sqlite:{}", elsewhere.path().join("new.db").display());

        let written = kitchen
            .sessions(&["export", "dinner", "-o", file, "--json"])
            .run()
            .exits(0)
            .json();
        let piped = kitchen.sessions(&["export", "dinner"]).run().exits(0);
        let import = |more: &[&str]| {
            Program::new(&["sessions", "import", "--store", &elsewhere])
                .with(&more.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let imported = import(&[file, "--json"]).run();
        let taken = import(&[file]).run().exits(5);
        import(&[file, "--replace"]).run().exits(0);
        import(&["-", "--as", "supper"]).input(&piped.out).run().exits(0);

        assert_eq!(written["snapshots"], 2);
        assert_eq!(
            imported.exits(0).json(),
            json!({ "sessionId": "dinner", "snapshots": 2 })
        );
        assert!(taken.err.contains("--as"), "{}", taken.err);
        let list = Program::new(&["sessions", "list", "--store", &elsewhere])
            .run()
            .exits(0);
        assert!(
            list.out.contains("supper") && list.out.contains("dinner"),
            "{}",
            list.out
        );
        assert!(!kitchen.folder.path().join("dinner.jsonl.part").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_copied_from_any_place_to_another_store() {
    for kitchen in places().await {
        kitchen.cook("dinner", "leeks").await;
        kitchen.cook("dinner", "peas").await;
        let elsewhere = TempDir::new().unwrap();
        let elsewhere = format!("sqlite:{}", elsewhere.path().join("new.db").display());
        let copy = |more: &[&str]| {
            let arguments = [&["copy", "dinner", "--to", &elsewhere], more].concat();
            kitchen.sessions(&arguments).run()
        };

        let copied = copy(&["--json"]).exits(0).json();
        let taken = copy(&[]).exits(5);
        copy(&["--replace"]).exits(0);
        let renamed = copy(&["supper", "--json"]).exits(0).json();
        let missing = kitchen
            .sessions(&["copy", "lunch", "--to", &elsewhere])
            .run()
            .exits(3);
        let unnamed = kitchen.sessions(&["copy", "dinner"]).run().exits(2);

        assert_eq!(copied, json!({ "sessionId": "dinner", "snapshots": 2 }));
        assert_eq!(renamed, json!({ "sessionId": "supper", "snapshots": 2 }));
        assert!(taken.err.contains("--replace"), "{}", taken.err);
        assert!(missing.err.contains("lunch"), "{}", missing.err);
        assert!(unnamed.err.contains("ID"), "{}", unnamed.err);
        let shown = ["sessions", "show", "dinner", "--store", &elsewhere];
        let shown = Program::new(&shown).run().exits(0);
        assert!(shown.out.contains("Soup for: peas"), "{}", shown.out);
    }
}

/// The guide to several processes: all conversations move from a file to PostgreSQL and continue there.
#[tokio::test(flavor = "multi_thread")]
async fn all_sessions_move_from_sqlite_to_postgres_and_go_on_there() {
    let Some(new) = Kitchen::in_postgres().await else {
        return;
    };
    let old = Kitchen::in_sqlite().await;
    let question = old.cook("dinner", "leeks").await;
    old.cook("dinner", "peas").await;
    let branch = old.chef.chat().snapshot(question.as_str());
    branch.run("a pie").await.unwrap();
    for number in 0..20 {
        old.cook(&format!("lunch {number}"), "leeks").await;
    }

    let copied = old
        .sessions(&["copy", "--all", "--to", &new.store])
        .run()
        .exits(0);

    assert_eq!(copied.out, "21 sessions with 23 snapshots of 1 tenant copied\n");
    let exported = |kitchen: &Kitchen, session| kitchen.sessions(&["export", session]).run().exits(0).out;
    for session in ["dinner", "lunch 7"] {
        assert_eq!(exported(&old, session), exported(&new, session));
    }
    new.cook("dinner", "and a dessert").await;
    let list = new
        .sessions(&["list", "--json", "--limit", "1"])
        .run()
        .exits(0)
        .json();
    assert_eq!(list["sessions"][0]["sessionId"], "dinner");
    new.sessions(&["verify"]).run().exits(0);
    let again = old.sessions(&["copy", "--all", "--to", &new.store]).run();
    assert!(again.exits(5).err.contains("--replace"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_over_the_network_brings_the_session_to_the_server() {
    let (home, server) = (Kitchen::in_files().await, Kitchen::on_a_server().await);
    home.cook("dinner", "leeks").await;

    let lines = home.sessions(&["export", "dinner"]).run().exits(0).out;
    server.sessions(&["import", "-"]).input(&lines).run().exits(0);

    let dinner = server.chef.archive().unwrap().latest("dinner").await.unwrap();
    assert_eq!(dinner.state.unwrap().messages.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_and_sessions_are_checked() {
    for kitchen in places().await {
        kitchen.cook("dinner", "leeks").await;

        let session = kitchen
            .sessions(&["verify", "dinner", "--json"])
            .run()
            .exits(0)
            .json();
        let whole = kitchen.sessions(&["verify"]).run();

        assert_eq!(session, json!({ "snapshots": 1, "problems": [] }));
        if kitchen.place[0] == "--store" {
            assert_eq!(whole.exits(0).out, "no problem in 1 snapshots\n");
        } else {
            assert!(whole.exits(2).err.contains("--store"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_that_models_reject_are_found_and_repaired() {
    for kitchen in [Kitchen::in_sqlite().await, Kitchen::in_files().await] {
        let store = Arc::clone(kitchen.chef.store().unwrap());
        let meddler = custom_agent(&Registry::new(), "meddler", |session: AgentSession| async move {
            session.run(meddle).await?;
            Ok(session.result())
        });
        let meddler = meddler.store(store).build().unwrap();
        meddler.chat().resume("dinner").run("pay").await.unwrap();

        let found = kitchen
            .sessions(&["verify", "dinner", "--json"])
            .run()
            .exits(7)
            .json();
        let all = kitchen.sessions(&["verify"]).run();
        let mended = kitchen
            .sessions(&["verify", "--mend", "--json"])
            .run()
            .exits(0)
            .json();
        let again = kitchen
            .sessions(&["verify", "dinner", "--mend", "--json"])
            .run()
            .exits(0)
            .json();

        let problem = found["problems"][0].as_str().unwrap();
        assert!(
            problem.contains("message 1: the tool request 'pay#1' has no answer"),
            "{problem}"
        );
        assert!(all.exits(7).out.contains(problem));
        assert_eq!(mended["mended"].as_array().unwrap().len(), 1, "{mended}");
        // The repaired snapshot follows the original.
        assert_eq!(again, json!({ "snapshots": 2, "problems": [] }));
        let latest = meddler.latest_snapshot("dinner").await.unwrap();
        let messages = latest.state.unwrap().messages;
        assert_eq!((messages.len(), history::checked(&messages)), (4, Vec::new()));
    }
}

/// Adds a tool request without an answer.
async fn meddle(turn: Turn) -> everturn::HandlerResult<()> {
    let request = ToolRequest::new("pay", json!({})).with_reference("1");
    turn.add_message(Message::model(vec![Part::from(request)]));
    turn.add_message(Message::user("hello?"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_repairs_no_stored_session() {
    let kitchen = Kitchen::on_a_server().await;
    kitchen.cook("dinner", "leeks").await;

    let refused = kitchen.sessions(&["verify", "dinner", "--mend"]).run();

    assert!(refused.exits(2).err.contains("--store"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_store_is_reported() {
    let kitchen = Kitchen::in_files().await;
    let id = kitchen.cook("dinner", "leeks").await;
    let damaged = damage(&kitchen.folder.path().join("sessions"), &id);
    assert!(damaged, "no file holds the snapshot");

    let checked = kitchen.sessions(&["verify", "--json"]).run().exits(7).json();

    assert!(!checked["problems"].as_array().unwrap().is_empty(), "{checked}");
}

/// Damages the file of a snapshot.
fn damage(folder: &std::path::Path, id: &str) -> bool {
    let mut found = false;
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() {
            found |= damage(&entry, id);
        } else if entry.file_name().unwrap().to_str().unwrap().contains(id) {
            std::fs::write(&entry, "{\"snapshotId\":").unwrap();
            found = true;
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tenant_is_not_seen() {
    let kitchen = Kitchen::in_sqlite().await;
    kitchen.cook("dinner", "leeks").await;

    let nobody = kitchen.sessions(&["list", "--tenant", "ann"]).run().exits(3);
    let agent = kitchen.sessions(&["list", "--agent", "chef"]).run().exits(2);

    assert!(nobody.err.contains("everturn tenants"), "{}", nobody.err);
    assert!(agent.err.contains("--url"), "{}", agent.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_listed_by_the_ids_of_their_principals() {
    for kitchen in [Kitchen::in_sqlite().await, Kitchen::in_files().await] {
        kitchen.cook_for("ann", "dinner", "leeks").await;
        kitchen.cook_for("ben", "lunch", "peas").await;

        let tenants = kitchen.program(&["tenants"]).run().exits(0).out;
        assert!(tenants.contains("ann ") && tenants.contains("ben "), "{tenants}");
        let own = kitchen
            .sessions(&["list", "--principal", "ann", "--json"])
            .run()
            .exits(0);
        let own = own.json();
        assert_eq!(own["sessions"][0]["sessionId"], "dinner");
        assert_eq!(own["sessions"].as_array().unwrap().len(), 1);
        let all = kitchen.sessions(&["list", "--all-tenants"]).run().exits(0).out;
        assert!(all.contains("dinner") && all.contains("lunch"), "{all}");
        let nobodys = kitchen.sessions(&["list"]).run().exits(0);
        assert!(nobodys.err.contains("--all-tenants"), "{}", nobodys.err);
        for mistyped in [
            vec!["list", "--principal", "anne"],
            vec!["export", "dinner", "--principal", "anne"],
            vec!["copy", "--all", "--to", "sqlite:unused.db", "--principal", "anne"],
            vec!["verify", "--principal", "anne"],
        ] {
            let refused = kitchen.sessions(&mistyped).run().exits(3);
            assert!(refused.err.contains("'anne'"), "{}", refused.err);
        }
        kitchen
            .sessions(&["show", "dinner", "--all-tenants"])
            .run()
            .exits(2);
        kitchen.sessions(&["verify"]).run().exits(0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_of_a_caller_moves_from_a_server() {
    let old = Kitchen::on_a_server().await;
    old.cook("dinner", "leeks").await;
    let spent = old.spend(&Scope::default(), "dinner").await;
    let path = old.folder.path().join("elsewhere");
    let elsewhere = format!("file:{}", path.display());

    for replace in [None, Some("--replace")] {
        let arguments = ["copy", "--all", "--to", &elsewhere];
        let arguments: Vec<_> = arguments.into_iter().chain(replace).collect();
        old.sessions(&arguments).run().exits(0);
    }

    let moved = Archive::of(FileStore::open(&path).await.unwrap(), Scope::default());
    assert_eq!(moved.tenant_usage().await.unwrap(), Some(spent));
    assert_eq!(moved.session_usage("dinner").await.unwrap(), spent);
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_named_callers_sessions_need_a_tenant() {
    let server = |server: Server| {
        let tokens = BearerTokens::new([("alice", "alice-token")]);
        server.context(tokens).archive(ArchiveAccess::everyone())
    };
    let old = Kitchen::served(server).await;
    old.cook_for("alice", "dinner", "leeks").await;
    let path = old.folder.path().join("elsewhere");
    let elsewhere = format!("file:{}", path.display());
    let copy = |more: &[&str]| {
        let arguments = [&["copy", "--all", "--to", &elsewhere], more].concat();
        let copying = old.sessions(&arguments);
        copying.variable("EVERTURN_TOKEN", "alice-token").run()
    };

    let refused = copy(&[]).exits(2);
    copy(&["--principal", "alice"]).exits(0);

    assert!(refused.err.contains("--principal"), "{}", refused.err);
    let tenants = Program::new(&["tenants", "--store", &elsewhere])
        .run()
        .exits(0)
        .out;
    assert!(tenants.contains("alice "), "{tenants}");
    let moved = Archive::of(
        FileStore::open(&path).await.unwrap(),
        Principal::new("alice").scope(),
    );
    assert!(moved.latest("dinner").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tenants_move_with_their_usage() {
    let old = Kitchen::in_sqlite().await;
    old.cook_for("ann", "dinner", "leeks").await;
    old.cook_for("ben", "lunch", "peas").await;
    let ann = Principal::new("ann").scope();
    let spent = old.spend(&ann, "dinner").await;
    let path = old.folder.path().join("elsewhere");
    let elsewhere = format!("file:{}", path.display());
    let empty = format!("file:{}", old.folder.path().join("empty").display());
    std::fs::create_dir(old.folder.path().join("empty")).unwrap();

    let copied = old
        .sessions(&["copy", "--all", "--to", &elsewhere])
        .run()
        .exits(0);
    old.sessions(&["copy", "--all", "--to", &elsewhere, "--replace"])
        .run()
        .exits(0);

    assert_eq!(copied.out, "2 sessions with 2 snapshots of 2 tenants copied\n");
    let moved = Archive::of(FileStore::open(&path).await.unwrap(), ann);
    assert_eq!(moved.tenant_usage().await.unwrap(), Some(spent));
    assert_eq!(moved.session_usage("dinner").await.unwrap(), spent);
    let tenants = ["tenants", "--store", &elsewhere];
    let tenants = Program::new(&tenants).run().exits(0).out;
    assert!(tenants.contains("ann ") && tenants.contains("ben "), "{tenants}");
    let nothing = ["sessions", "copy", "--all", "--to", &elsewhere, "--store", &empty];
    Program::new(&nothing).run().exits(3);
}
