//! The texts and numbers in a message, used to fill in a tool's input.

use super::text::words;

/// Prepositions before the topic of a sentence.
const BEFORE_SUBJECT: [&str; 9] = ["about", "at", "for", "from", "in", "of", "on", "to", "with"];

/// The texts and numbers of one message. Each number is used once.
pub(super) struct Input {
    text: String,
    numbers: std::vec::IntoIter<f64>,
}

impl Input {
    pub(super) fn of(text: &str) -> Self {
        let is_part = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == '-';
        let numbers: Vec<f64> = text
            .split(|letter| !is_part(letter))
            .filter_map(|word| word.trim_end_matches(['.', '-']).parse().ok())
            .collect();
        Self {
            text: text.to_owned(),
            numbers: numbers.into_iter(),
        }
    }

    pub(super) fn next_number(&mut self) -> Option<f64> {
        self.numbers.next()
    }

    /// Returns the topic of the text: the quoted part, else the part after the last preposition, else all of
    /// it.
    pub(super) fn subject(&self) -> String {
        if let Some((_, rest)) = self.text.split_once('"')
            && let Some((quoted, _)) = rest.split_once('"')
            && !quoted.trim().is_empty()
        {
            return quoted.trim().to_owned();
        }
        let words: Vec<&str> = self.text.split_whitespace().collect();
        let is_before_subject = |word: &&str| BEFORE_SUBJECT.contains(&word.to_lowercase().as_str());
        let start = words
            .iter()
            .rposition(is_before_subject)
            .map_or(0, |position| position + 1);
        // A preposition at the very end has no topic after it.
        let subject = if start < words.len() {
            &words[start..]
        } else {
            &words[..]
        };
        trimmed(&subject.join(" ")).to_owned()
    }

    /// Returns whether the text contains all the words of `name`.
    pub(super) fn mentions(&self, name: &str) -> bool {
        let user_words = words(&self.text);
        let wanted = words(name);
        !wanted.is_empty() && wanted.iter().all(|word| user_words.contains(word))
    }
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|letter: char| letter.is_whitespace() || letter.is_ascii_punctuation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_quoted_or_comes_last() {
        assert_eq!(Input::of("Send \"hello there\" to Ada").subject(), "hello there");
        assert_eq!(Input::of("How is the weather in New York?").subject(), "New York");
        assert_eq!(Input::of("Leeks!").subject(), "Leeks");
        assert_eq!(Input::of("What is it about?").subject(), "What is it about");
    }

    #[test]
    fn numbers_come_in_their_order() {
        let mut input = Input::of("From 3 to -4.5, then 6.");

        let numbers: Vec<f64> = std::iter::from_fn(|| input.next_number()).collect();
        assert_eq!(numbers, [3.0, -4.5, 6.0]);
    }
}
