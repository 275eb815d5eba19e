//! The hot paths take no more instructions than the file `instructions.json` says.
//!
//! Times depend on what else the machine does; instructions do not. They do depend on the compiler, its settings and the
//! features of the crates, so the file is written by the command that `./test` compares it with:
//!
//! ```console
//! $ WRITE_INSTRUCTIONS=1 cargo test --workspace --all-features --test instructions
//! ```

use std::process::Command;

#[test]
fn hot_paths_take_no_more_instructions_than_before() {
    let is_here = Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|answer| answer.status.success());
    if !is_here || std::env::consts::ARCH != "x86_64" {
        let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(
            !in_ci,
            "a test cannot be skipped in CI: instructions are counted by valgrind on x86_64"
        );
        println!("skipped: instructions are counted by valgrind on x86_64");
        return;
    }
    let mut count = Command::new(env!("CARGO_BIN_EXE_bench"));
    count.args([
        "instructions",
        concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json"),
    ]);
    if std::env::var_os("WRITE_INSTRUCTIONS").is_some() {
        count.arg("--write");
    }

    let counted = count.output().expect("the program was built for this test");

    println!("{}", String::from_utf8_lossy(&counted.stdout));
    assert!(
        counted.status.success(),
        "{}",
        String::from_utf8_lossy(&counted.stderr)
    );
}
