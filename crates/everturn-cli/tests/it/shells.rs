//! Completions, man pages and help.

use tempfile::TempDir;

use crate::support::Program;

#[tokio::test(flavor = "multi_thread")]
async fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Program::new(&["completions", shell]).run().exits(0).out;
        assert!(
            script.contains("everturn") && script.contains("sessions"),
            "{shell}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_man_page() {
    let folder = TempDir::new().unwrap();

    Program::new(&["man", folder.path().to_str().unwrap()])
        .run()
        .exits(0);

    for page in [
        "everturn",
        "everturn-chat",
        "everturn-sessions-diff",
        "everturn-runs-watch",
        "everturn-new",
    ] {
        let page = folder.path().join(format!("{page}.1"));
        assert!(
            std::fs::read_to_string(&page).unwrap().contains(".TH"),
            "{}",
            page.display()
        );
    }
    Program::new(&["man", "/nowhere/at/all"]).run().exits(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_help_lists_the_exit_codes_and_variables() {
    let help = Program::new(&["--help"]).run().exits(0).out;

    assert!(
        help.contains("Exit codes:") && help.contains("EVERTURN_TOKEN"),
        "{help}"
    );
    Program::new(&["dance"]).run().exits(2);
    Program::new(&[]).run().exits(2);
}
