//! Every recorded scenario of the reference implementation has a test here; the other `recorded_*` files hold
//! them.

use crate::generate_support::recordings;

const TESTED: [(&str, &[&str]); 7] = [
    (
        "recorded_tool_loop.rs",
        &[
            "tool_loop_stream_indices",
            "tool_loop_stream_no_model_chunks",
            "tool_error",
            "unknown_tool_called",
            "duplicate_short_names",
            "slash_tool_definition",
            "multipart_tool",
        ],
    ),
    (
        "recorded_interrupts.rs",
        &["interrupt_and_pending", "resume_unresolved", "resume_bad_last"],
    ),
    (
        "recorded_limits.rs",
        &[
            "max_turns_1",
            "max_turns_0",
            "max_turns_default_model_calls",
            "return_tool_requests",
        ],
    ),
    (
        "recorded_unusable.rs",
        &["blocked", "no_message", "json_schema_mismatch"],
    ),
    (
        "recorded_output.rs",
        &[
            "json_unsupported_model",
            "json_constrained_model",
            "json_instructions_true",
            "format_array",
            "format_enum",
            "format_jsonl",
            "format_text",
        ],
    ),
    (
        "recorded_context.rs",
        &["docs_context", "resource", "prompt_render"],
    ),
    ("recorded_middleware.rs", &["middleware_order"]),
];

#[test]
fn no_recorded_scenario_is_left_out() {
    let Some(recordings) = recordings() else { return };
    let mut recorded: Vec<&str> = recordings.keys().map(String::as_str).collect();
    let mut tested: Vec<&str> = TESTED
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();

    recorded.sort_unstable();
    tested.sort_unstable();

    assert_eq!(tested, recorded);
    assert_eq!(tested.len(), 28);
}

#[test]
fn every_scenario_is_compared_in_the_file_that_is_named() {
    for (file, names) in TESTED {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/it")
            .join(file);
        let text = std::fs::read_to_string(&path).expect("the test file exists");

        for name in names {
            assert!(
                text.contains(&format!("\"{name}\"")),
                "{file} does not compare {name}"
            );
        }
    }
}
