//! Selecting the tool that the user's message asks for.

use everturn_ai::{ModelRequest, ToolChoice, ToolDefinition, ToolRequest};
use serde_json::Value;

use super::input::Input;
use super::sample::sample;
use super::text::{is_related, last_user_text, words};

/// Words that do not describe the purpose of a tool.
const COMMON: [&str; 44] = [
    "a", "an", "and", "any", "are", "as", "at", "by", "can", "current", "do", "find", "for", "from", "get",
    "given", "how", "i", "in", "is", "it", "list", "look", "looks", "make", "me", "my", "of", "on", "or",
    "please", "returns", "set", "show", "tell", "tells", "that", "the", "this", "to", "what", "which",
    "with", "you",
];

/// How many words a text must share with the description of a tool whose name it does not mention.
const MIN_SHARED: usize = 2;

/// Returns the tool call that the request asks for, if it asks for one.
pub(super) fn wanted(request: &ModelRequest) -> Option<ToolRequest> {
    let is_required = match request.tool_choice {
        Some(ToolChoice::None) => return None,
        Some(ToolChoice::Required) => true,
        Some(ToolChoice::Auto) | None => false,
    };
    let text = last_user_text(request);
    let user_words = distinctive(&text);
    // `max_by_key` would return the last of equal tools; the first is the better guess.
    let (score, tool) = request
        .tools()
        .iter()
        .map(|tool| (score(tool, &user_words), tool))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (is_required || score > 0).then(|| call(tool, &text, request.messages.len()))
}

fn call(tool: &ToolDefinition, text: &str, position: usize) -> ToolRequest {
    let any = Value::Bool(true);
    let input = sample(tool.input_schema.as_ref().unwrap_or(&any), &mut Input::of(text));
    // A model sends an object of arguments, even if the schema does not require it.
    let input = if input.is_null() {
        Value::Object(serde_json::Map::new())
    } else {
        input
    };
    ToolRequest::new(tool.name.clone(), input).with_reference(format!("offline-{position}"))
}

/// Scores how well a tool fits the text; 0 if not at all. A name counts more than any description.
fn score(tool: &ToolDefinition, user_words: &[String]) -> usize {
    let is_mentioned = |word: &String| user_words.iter().any(|own| is_related(word, own));
    let name = distinctive(&tool.name);
    if !name.is_empty() && name.iter().all(is_mentioned) {
        return 100 + name.len();
    }
    let shared = distinctive(&tool.description)
        .iter()
        .filter(|word| is_mentioned(word))
        .count();
    if shared >= MIN_SHARED { shared } else { 0 }
}

/// Returns the distinctive words of a text, each once.
fn distinctive(text: &str) -> Vec<String> {
    let mut words = words(text);
    words.retain(|word| !COMMON.contains(&word.as_str()));
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use everturn_ai::Message;
    use serde_json::json;

    use super::*;

    fn request(text: &str, choice: Option<ToolChoice>) -> ModelRequest {
        let tool = |name: &str, description: &str| ToolDefinition {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            })),
            ..ToolDefinition::default()
        };
        let tools = [
            tool("getWeather", "Tells the forecast for a city."),
            tool("in_season", "Looks up vegetables."),
        ];
        ModelRequest {
            tools: Some(tools.into()),
            tool_choice: choice,
            ..ModelRequest::new(Message::user(text))
        }
    }

    fn name(text: &str, choice: Option<ToolChoice>) -> Option<String> {
        wanted(&request(text, choice)).map(|call| call.name)
    }

    #[test]
    fn a_tool_is_selected_by_its_name_or_its_description() {
        assert_eq!(
            name("How is the weather in Bern?", None).as_deref(),
            Some("getWeather")
        );
        assert_eq!(name("What is in season?", None).as_deref(), Some("in_season"));
        assert_eq!(
            name("Give me the city forecast", None).as_deref(),
            Some("getWeather")
        );
        assert_eq!(name("Tell me a joke", None), None);
    }

    #[test]
    fn the_choice_of_the_request_is_respected() {
        assert_eq!(
            name("Tell me a joke", Some(ToolChoice::Required)).as_deref(),
            Some("getWeather")
        );
        assert_eq!(name("How is the weather?", Some(ToolChoice::None)), None);
    }

    #[test]
    fn the_input_is_taken_from_the_text() {
        let call = wanted(&request("The weather for 3 days in Bern?", None)).unwrap();

        assert_eq!(call.input, Some(json!({"city": "Bern", "days": 3})));
        assert_eq!(call.reference.as_deref(), Some("offline-1"));
    }
}
