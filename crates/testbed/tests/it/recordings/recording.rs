//! Comparing texts with recorded files. The tests of `everturn-cli` include this file too.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The parts of a text that differ from run to run, and prose, which may improve: messages of errors and
/// descriptions.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    let parts = [
        r"(?<uuid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
        r"(?<hex>[0-9a-f]{16,})",
        r"(?<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?)",
        r"(?<date>\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)",
        r"(?<address>127\.0\.0\.1:\d+)",
        r"(?<unix>\b1[6-9]\d{8}(?:\d{3})?(?:\.\d+)?\b)",
        r#"(?<milliseconds>"\w+Ms": ?)[0-9.e-]+"#,
        r"(?<length>content-length: )\d+",
        r#"(?<prose>"(?:message|description|summary|next)": ?")(?:[^"\\]|\\.)+"#,
    ];
    Regex::new(&parts.join("|")).unwrap()
});

/// Replaces ids by their numbers in the order of their appearance, and times, durations and addresses by
/// their kind.
pub(crate) fn normalised(text: &str) -> String {
    let mut ids = HashMap::new();
    let replaced = VARIABLE.replace_all(text, |found: &Captures<'_>| {
        let mut number = |id: &str| {
            let next = ids.len() + 1;
            *ids.entry(id.replace('-', "")).or_insert(next)
        };
        if let Some(id) = found.name("uuid") {
            format!("<id {}>", number(id.as_str()))
        } else if let Some(id) = found.name("hex") {
            format!("<hex {}>", number(id.as_str()))
        } else if let Some(name) = found.name("milliseconds").or(found.name("length")) {
            format!("{}<number>", name.as_str())
        } else if let Some(name) = found.name("prose") {
            format!("{}<text>", name.as_str())
        } else {
            let kinds = ["time", "date", "address", "unix"];
            let kind = kinds.iter().find(|kind| found.name(kind).is_some()).unwrap();
            format!("<{kind}>")
        }
    });
    replaced.into_owned()
}

/// Compares a text with a file after normalising it. With the variable `RECORD` the file is written instead.
///
/// # Panics
/// If they differ, with the difference and the command that accepts it.
#[track_caller]
pub(crate) fn assert_recorded(file: &Path, text: &str, accept: &str) {
    let text = format!("{}\n", normalised(text).trim_end());
    if std::env::var_os("RECORD").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        return;
    }
    if std::fs::read_to_string(file).is_ok_and(|recorded| recorded == text) {
        return;
    }
    let name = file.file_name().unwrap().to_string_lossy();
    let now = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&*name);
    std::fs::write(&now, text).unwrap();
    let mut diff = Command::new("git");
    diff.args(["diff", "--no-index", "--no-color", "--"])
        .args([file, &now]);
    let diff = diff.output().unwrap();
    panic!(
        "this differs from the recording {name}:\n\n{}{}\n\
         Fix the code if the change is not intended. Accept an intended change with\n\n    {accept}\n\n\
         and name it in the commit.",
        String::from_utf8_lossy(&diff.stdout),
        String::from_utf8_lossy(&diff.stderr),
    );
}
