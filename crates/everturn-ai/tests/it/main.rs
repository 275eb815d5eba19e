//! All integration tests in one program, because each further program is linked separately. Tests that
//! need the process for themselves are in `alone`.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod builtin_middleware;
mod conformance_generate;
mod decoders;
mod effect_journal;
mod format_instructions;
#[path = "../fuzz_entry/mod.rs"]
mod fuzz_entry;
mod garbage_output;
mod generate_support;
mod history_is_a_sequence;
#[cfg(feature = "download")]
mod http_media_fetcher;
mod interrupt_survives_a_restart;
mod lenient_json;
mod lineage_extensions;
mod many_rounds;
mod many_tools;
mod message_metadata;
mod messages_are_a_sequence;
mod middleware_fallback;
#[cfg(feature = "filesystem")]
mod middleware_filesystem;
#[cfg(all(unix, feature = "filesystem"))]
mod middleware_filesystem_paths;
#[cfg(feature = "filesystem")]
mod middleware_filesystem_read;
#[cfg(feature = "filesystem")]
mod middleware_filesystem_write;
mod middleware_hooks;
mod middleware_model_wrappers;
mod middleware_retry;
#[cfg(all(unix, feature = "filesystem"))]
mod middleware_skills;
#[cfg_attr(
    not(feature = "filesystem"),
    allow(dead_code, reason = "some of it is for what that feature brings")
)]
mod middleware_support;
mod middleware_tool_approval;
mod model_wrappers;
mod options_are_strict;
mod other_primitives;
mod output_formats;
mod panicking_tool;
mod prompt_conversation_placement;
mod prompt_folder;
mod prompt_variables;
mod recorded_context;
mod recorded_interrupts;
mod recorded_limits;
mod recorded_middleware;
mod recorded_output;
mod recorded_scenarios;
mod recorded_tool_loop;
mod recorded_unusable;
mod requests_that_make_no_sense;
mod round_observer;
mod shared_history;
mod streaming;
mod tools_in_the_registry;
mod typed_output;
mod unknown_fields_survive;
mod valid_histories;
mod windows;
mod wire;
mod wire_schema;
