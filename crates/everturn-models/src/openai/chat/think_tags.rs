//! Reasoning inside the text, between `<think>` and `</think>`.

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
