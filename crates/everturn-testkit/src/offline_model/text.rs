//! The words of messages.

use everturn_ai::{Message, ModelRequest, Role};

/// Returns the texts of the user, oldest first.
pub(super) fn user_texts(request: &ModelRequest) -> Vec<String> {
    let users = request
        .messages
        .iter()
        .filter(|message| message.role() == Role::User);
    users
        .map(Message::text)
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

/// Returns the last text of the user; empty if there is none.
pub(super) fn last_user_text(request: &ModelRequest) -> String {
    user_texts(request).pop().unwrap_or_default()
}

/// Returns the words of a text in lower case; `inSeason` and `in_season` are two words each.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lowercase = false;
    for letter in text.chars() {
        if !letter.is_alphanumeric() || (after_lowercase && letter.is_uppercase()) {
            words.push(String::new());
        }
        if letter.is_alphanumeric() {
            words
                .last_mut()
                .expect("there is always a word")
                .extend(letter.to_lowercase());
        }
        after_lowercase = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns whether two words are forms of one, judged by their beginnings: `season` and `seasons`.
pub(super) fn is_related(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    short == long || (short.len() >= 4 && long.starts_with(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(words("getWeather_now"), ["get", "weather", "now"]);
        assert_eq!(
            words("What's in season, please?"),
            ["what", "s", "in", "season", "please"]
        );
        assert!(words("?!").is_empty());
    }

    #[test]
    fn a_longer_form_is_related_and_a_short_beginning_is_not() {
        assert!(is_related("seasons", "season"));
        assert!(!is_related("in", "input"));
    }
}
