//! Reasoning inside the text, between `<think>` and `</think>`, and in the form of `OpenRouter`.

use serde_json::Value;

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

/// A piece of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Reasoning(String),
}

/// Separates reasoning from text, wherever the tags are split.
#[derive(Debug, Default)]
pub(super) struct ThinkTags {
    held: String,
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Beginning,
    Thinking,
    Speaking,
}

impl ThinkTags {
    /// Processes text and returns the pieces that are certain.
    pub(super) fn take(&mut self, delta: &str) -> Vec<Piece> {
        self.held.push_str(delta);
        let mut pieces = Vec::new();
        loop {
            match self.state {
                State::Beginning => {
                    let trimmed = self.held.trim_start();
                    if let Some(rest) = trimmed.strip_prefix(OPENING) {
                        self.held = rest.to_owned();
                        self.state = State::Thinking;
                    } else if OPENING.starts_with(trimmed) {
                        return pieces;
                    } else {
                        self.state = State::Speaking;
                    }
                }
                State::Thinking => {
                    let Some(end) = self.held.find(CLOSING) else {
                        let certain = self.held.len() - unfinished(&self.held);
                        let rest = self.held.split_off(certain);
                        let piece = std::mem::replace(&mut self.held, rest);
                        pieces.push(Piece::Reasoning(piece));
                        return pieces;
                    };
                    let rest = self.held.split_off(end);
                    pieces.push(Piece::Reasoning(std::mem::take(&mut self.held)));
                    rest[CLOSING.len()..].trim_start().clone_into(&mut self.held);
                    self.state = State::Speaking;
                }
                State::Speaking => {
                    pieces.push(Piece::Text(std::mem::take(&mut self.held)));
                    return pieces;
                }
            }
        }
    }

    /// Returns the text that was held back when the answer ended.
    pub(super) fn finish(self) -> Piece {
        match self.state {
            State::Thinking => Piece::Reasoning(self.held),
            _ => Piece::Text(self.held),
        }
    }
}

/// Returns the length of a possible start of the closing tag at the end.
fn unfinished(text: &str) -> usize {
    let longest = (1..CLOSING.len()).rev();
    longest
        .into_iter()
        .find(|length| text.ends_with(&CLOSING[..*length]))
        .unwrap_or(0)
}

/// The texts that grow from fragment to fragment.
const GROWING: [&str; 3] = ["text", "summary", "data"];

/// The `reasoning_details` of an answer, assembled from fragments.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Value>);

impl Details {
    /// Processes fragments and returns the text to show.
    pub(super) fn take(&mut self, fragments: &[Value]) -> String {
        let mut shown = String::new();
        for fragment in fragments {
            let text = fragment["text"].as_str().or_else(|| fragment["summary"].as_str());
            shown.push_str(text.unwrap_or_default());
            match self.0.last_mut() {
                Some(last) if last["type"] == fragment["type"] && last["index"] == fragment["index"] => {
                    merge(last, fragment);
                }
                _ => self.0.push(fragment.clone()),
            }
        }
        shown
    }

    pub(super) fn into_whole(self) -> Option<Value> {
        (!self.0.is_empty()).then_some(Value::Array(self.0))
    }
}

fn merge(last: &mut Value, fragment: &Value) {
    for (name, value) in fragment.as_object().into_iter().flatten() {
        match (&mut last[name.as_str()], value) {
            (_, Value::Null) => {}
            (Value::String(text), Value::String(more)) if GROWING.contains(&name.as_str()) => {
                text.push_str(more);
            }
            (known, value) => *known = value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str, size: usize) -> (String, String) {
        let mut tags = ThinkTags::default();
        let characters: Vec<char> = text.chars().collect();
        let deltas = characters
            .chunks(size)
            .map(|delta| delta.iter().collect::<String>());
        let mut pieces: Vec<Piece> = deltas.flat_map(|delta| tags.take(&delta)).collect();
        pieces.push(tags.finish());
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for piece in pieces {
            match piece {
                Piece::Text(text) => answer.push_str(&text),
                Piece::Reasoning(text) => reasoning.push_str(&text),
            }
        }
        (reasoning, answer)
    }

    #[test]
    fn tags_may_be_cut_anywhere() {
        for size in 1..20 {
            let answer = read("\n<think>a < b </thin</think>hello <think>", size);
            assert_eq!(
                answer,
                ("a < b </thin".to_owned(), "hello <think>".to_owned()),
                "{size}"
            );
            assert_eq!(read("<thing>", size), (String::new(), "<thing>".to_owned()));
        }
    }

    #[test]
    fn fragments_of_one_detail_grow_together() {
        let mut details = Details::default();

        let shown = details.take(&[
            json!({"type": "reasoning.text", "index": 0, "text": "Le"}),
            json!({"type": "reasoning.text", "index": 0, "text": "eks", "signature": "s"}),
            json!({"type": "reasoning.encrypted", "index": 1, "data": "x"}),
        ]);

        assert_eq!(shown, "Leeks");
        let whole = json!([
            {"type": "reasoning.text", "index": 0, "text": "Leeks", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        ]);
        assert_eq!(details.into_whole(), Some(whole));
    }
}
