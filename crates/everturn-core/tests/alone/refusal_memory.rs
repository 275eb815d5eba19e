//! Rejecting a large input needs memory of at most a few times its size.

use everturn_core::{Action, ActionType, DynAction, JsonCall, Status};
use serde_json::{Value, json};

use crate::alone;

const MEGABYTE: usize = 1024 * 1024;

/// A line of the process's status, in bytes.
fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .expect("a known field");
    let kilobytes: String = line.chars().filter(char::is_ascii_digit).collect();
    kilobytes.parse::<usize>().expect("only digits are left") * 1024
}

/// By how much the process grows, at its largest, while it refuses the input.
async fn growth(action: &dyn DynAction, input: Value) -> usize {
    // Sets the high-water mark to what is in use now.
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux has it");
    let before = status("VmRSS:");

    let refused = action.run_json(JsonCall::new(input)).await;

    assert_eq!(
        refused.expect_err("the input is invalid").status(),
        Status::InvalidArgument
    );
    status("VmHWM:").saturating_sub(before)
}

#[tokio::test]
async fn a_large_input_is_refused_in_little_more_memory_than_it_takes_itself() {
    let _alone = alone();
    let names = Action::new(ActionType::CUSTOM, "names", |_: Vec<String>, _| async { Ok(()) });
    let lenient = names.clone().with_input_schema(None);
    // Compiles the schema, so that what follows measures the refusal alone.
    names.run_json(JsonCall::new(json!([1]))).await.unwrap_err();
    let mistakes = || Value::from(vec![7; MEGABYTE]);
    let text = || Value::from("x".repeat(10 * MEGABYTE));

    for action in [names, lenient] {
        let for_mistakes = growth(&action, mistakes()).await;
        let for_text = growth(&action, text()).await;

        assert!(
            for_mistakes < 16 * MEGABYTE,
            "{} MB for a million mistakes",
            for_mistakes / MEGABYTE
        );
        assert!(
            for_text < 80 * MEGABYTE,
            "{} MB for 10 MB of text",
            for_text / MEGABYTE
        );
    }
}
