//! Recordings of the program: the help of every command, what it prints with `--json`, and its exit codes.
//! The recordings of servers and stores are in the tests of `testbed`.

use std::fmt::Write as _;
use std::path::Path;

#[path = "../../../testbed/tests/it/recordings/recording.rs"]
mod recording;

use crate::support::{Kitchen, Program};

fn assert_recorded(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    recording::assert_recorded(
        &folder.join(name),
        text,
        "RECORD=1 cargo test -p everturn-cli recordings",
    );
}

/// Runs a command line and appends what it printed.
fn record(transcript: &mut String, title: &str, program: Program) -> String {
    let ran = program.run();
    writeln!(
        transcript,
        "$ everturn {title}\n{}{}exit code {}\n",
        ran.out, ran.err, ran.code
    )
    .unwrap();
    ran.out
}

#[tokio::test(flavor = "multi_thread")]
async fn help() {
    let mut transcript = String::new();
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = record(&mut transcript, &arguments.join(" "), Program::new(&arguments));
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = listed.take_while(|line| !line.is_empty()).filter_map(|line| {
            // Longer lines continue the description of the command before.
            let is_name = line.starts_with("  ") && !line.starts_with("   ");
            is_name.then(|| line.split_whitespace().next().unwrap())
        });
        let names: Vec<&str> = names.filter(|name| *name != "help").collect();
        commands.extend(
            names
                .into_iter()
                .rev()
                .map(|name| [&command[..], &[name.to_owned()]].concat()),
        );
    }
    assert_recorded("help.txt", &transcript);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands() {
    let mut transcript = String::new();
    let kitchen = Kitchen::on_a_server().await;
    let first = kitchen.cook("dinner", "leeks").await;
    let second = kitchen.cook("dinner", "peas").await;
    let run = kitchen.plan().await;
    let empty = kitchen.folder.path().join("missing.db").display().to_string();
    let exported = kitchen.folder.path().join("dinner.jsonl").display().to_string();
    for place in ["server", "store"] {
        let reach = match place {
            "server" => kitchen.place.clone(),
            _ => vec!["--store".to_owned(), kitchen.store.clone()],
        };
        writeln!(transcript, "=== with a {place}\n").unwrap();
        let mut run_with = |agent: bool, arguments: &[&str]| {
            let mut all = arguments.to_vec();
            if agent && place == "server" {
                all.extend(["--agent", if arguments[0] == "runs" { "planner" } else { "chef" }]);
            }
            let title = all.join(" ").replace(&exported, "dinner.jsonl");
            record(&mut transcript, &title, Program::new(&all).with(&reach))
        };
        run_with(false, &["agents", "--json"]);
        run_with(false, &["run", "--json"]);
        run_with(false, &["run", "menu", "\"soup\"", "--json", "--stream"]);
        run_with(false, &["run", "missing", "1", "--json"]);
        run_with(false, &["chat", "chef", "hello", "--session", "lunch", "--json"]);
        run_with(false, &["chat", "banker", "pay", "--session", "bank", "--json"]);
        run_with(false, &["chat", "missing", "hello", "--json"]);
        for arguments in [
            &["sessions", "list", "--json"][..],
            &["sessions", "show", "dinner", "--json"],
            &["sessions", "show", "missing", "--json"],
            &["sessions", "tree", "dinner", "--json"],
            &["sessions", "diff", &first, &second, "--json"],
            &["sessions", "diff", &first, &second, "--exit-code"],
            &["sessions", "label", &first, place, "--note", "a note", "--json"],
            &["sessions", "fork", &first, place, "--json"],
            &["sessions", "fork", &first, place, "--json"],
            &["sessions", "export", "dinner", "-o", &exported, "--json"],
            &["sessions", "copy", "dinner", &format!("{place}-copy"), "--json"],
            &["sessions", "import", &exported, "--json"],
            &["sessions", "delete", place, "--yes", "--json"],
            &["sessions", "verify", "dinner", "--json"],
            &["sessions", "list"],
            &["runs", "list", "--json"],
            &["runs", "abort", &run, "--json"],
            &["runs", "watch", &run, "--json"],
        ] {
            run_with(true, arguments);
        }
        run_with(false, &["tenants", "--json"]);
        run_with(false, &["fly"]);
        run_with(false, &["chat", "--fly"]);
    }
    let missing = Program::new(&[
        "sessions",
        "list",
        "--json",
        "--store",
        &format!("sqlite:{empty}"),
    ]);
    record(
        &mut transcript,
        "sessions list --store sqlite:missing.db",
        missing,
    );
    let folder = kitchen.folder.path().display().to_string();
    assert_recorded("commands.txt", &transcript.replace(&folder, "<folder>"));
}
