//! Replies in plain text.

use everturn_ai::{ModelRequest, Part, Role};

use super::text::{last_user_text, user_texts, words};

/// The maximum length of a repeated tool result.
const MAX_QUOTED_CHARS: usize = 400;

const ABOUT: &str = "I am the offline model: a handful of rules, and nothing that understands you.";

/// Returns a reply in plain text.
pub(super) fn reply(request: &ModelRequest) -> String {
    if let Some(report) = tool_report(request) {
        return report;
    }
    let text = last_user_text(request);
    let user_words = words(&text);
    let has_any = |candidates: &[&str]| user_words.iter().any(|word| candidates.contains(&word.as_str()));
    if text.is_empty() {
        format!("You sent no text. {ABOUT}")
    } else if has_any(&["help", "tools", "who"])
        || (has_any(&["what"]) && has_any(&["can"]) && has_any(&["you"]))
    {
        introduction(request)
    } else if has_any(&["remember", "earlier", "before", "history"]) {
        memory(request)
    } else if has_any(&["hello", "hi", "hey", "morning", "evening"]) {
        format!("Hello! {ABOUT} Ask me for help to see what I can do.")
    } else if has_any(&["thanks", "thank"]) {
        "You are welcome.".to_owned()
    } else if has_any(&["bye", "goodbye"]) {
        "Goodbye. This conversation can be resumed from here.".to_owned()
    } else {
        let position = user_texts(request).len();
        format!(
            "You said: “{}” {ABOUT} This was your message number {position}.",
            clipped(&text)
        )
    }
}

fn introduction(request: &ModelRequest) -> String {
    let tools: Vec<String> = request
        .tools()
        .iter()
        .map(|tool| format!("\n- `{}`: {}", tool.name, tool.description))
        .collect();
    let offer = if tools.is_empty() {
        " I have no tools here, so I can only repeat what you say.".to_owned()
    } else {
        format!(
            " I can call a tool when you use the words of its name:{}",
            tools.concat()
        )
    };
    format!("{ABOUT}{offer}")
}

fn memory(request: &ModelRequest) -> String {
    let mut texts = user_texts(request);
    texts.pop();
    if texts.is_empty() {
        return "This is the first thing you have said to me.".to_owned();
    }
    let lines: Vec<String> = texts
        .iter()
        .map(|text| format!("\n- {}", clipped(text)))
        .collect();
    format!("So far you have said:{}", lines.concat())
}

/// Returns the results of the tools, if the last message contains some.
fn tool_report(request: &ModelRequest) -> Option<String> {
    let message = request
        .messages
        .last()
        .filter(|message| message.role() == Role::Tool)?;
    let lines: Vec<String> = message
        .content()
        .iter()
        .filter_map(Part::as_tool_response)
        .map(|response| {
            let output = match &response.output {
                Some(serde_json::Value::String(text)) => text.clone(),
                Some(output) => output.to_string(),
                None => "nothing".to_owned(),
            };
            format!("The tool `{}` answered: {}", response.name, clipped(&output))
        })
        .collect();
    Some(lines.join("\n"))
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
