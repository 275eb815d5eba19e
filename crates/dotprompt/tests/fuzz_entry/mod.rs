//! The entry point of the fuzz target and the property tests: parses, compiles and renders a source in every
//! way. It must not panic, hang or overflow the stack, and the rendered messages must be well formed.

use dotprompt::{Data, Dotprompt, Limits, Message, Metadata, Piece};
use serde_json::json;

/// Parses and renders `source`, with itself as partial, input and history.
pub(crate) fn parse_and_render(source: &str) {
    let mut limits = Limits::default();
    limits.source_bytes = 64 * 1024;
    limits.steps = 20_000;
    limits.output_bytes = 1024 * 1024;
    let dotprompt = Dotprompt::new()
        .limits(limits)
        .define_partial("p", source)
        .define_partial("q", "<{{> @partial-block}}>{{#each this}}{{@key}}{{/each}}")
        .define_helper("echo", |call| Ok(call.arg(0).cloned().unwrap_or_default().into()))
        .define_helper("wrap", |call| Ok(call.body()?.into()));

    let parsed = dotprompt.parse(source);
    assert!(parsed.template().len() <= source.len());
    let _ = dotprompt.render_metadata(source, &Metadata::new());

    let Ok(prompt) = dotprompt.compile(source) else {
        return;
    };
    let input = json!({
        "x": source, "y": [1, 2.5, null, [true]], "z": {"x": {"y": "z"}}, "n": null, "t": true, "f": false, "p": "p",
        "list": [{"x": 1}, {"x": 2}],
    });
    let context = json!({"state": {"x": source, "y": [1]}, "auth": null});
    let history = [Message::user(source), Message::model("m")];
    let data = Data::new().input(&input).messages(&history);
    let data = match context.as_object() {
        Some(context) => data.context(context),
        None => data,
    };

    if let Ok(pieces) = prompt.render_pieces(&data) {
        assert!(
            pieces.iter().any(|piece| matches!(piece, Piece::History(_))),
            "the history has a place"
        );
        for piece in &pieces {
            if let Piece::Message(message) = piece {
                assert!(!message.content.is_empty(), "a message has content");
            }
        }
    }
    if let Ok(rendered) = prompt.render(&data) {
        assert!(rendered.messages.len() >= history.len());
    }
}
