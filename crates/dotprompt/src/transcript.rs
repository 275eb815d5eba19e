//! Conversion of rendered text and its marks to messages.

use crate::message::{Message, Part, Role};
use crate::output::{Mark, Output};
use crate::whitespace::is_blank;

/// A piece of a rendered prompt: a message, or the place of the conversation so far.
///
/// Callers that keep their own history type match on this and splice it in without converting it.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// A message that the template renders.
    Message(Message),
    /// The place of the conversation so far.
    History(Placement),
}

/// The rule that placed the conversation so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The template, by `{{history}}`; each message gets `purpose: history` in its metadata.
    Explicit,
    /// The rule for templates without that helper: before a last message of the user, else at the end. The
    /// messages stay as they are.
    Implicit,
}

/// Cuts the output at roles and histories, and each message at media and sections.
///
/// The first message is the user's, the one after a history is the model's, unless a mark sets
/// the role. Text between marks that is only white space is dropped, and so are messages without content.
pub(crate) fn pieces(output: Output) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut message = Draft {
        role: Role::USER,
        parts: Vec::new(),
    };
    let mut explicit = false;
    let mut from = 0;
    for (at, mark) in output.marks {
        message.push_text(&output.text[from..at]);
        from = at;
        match mark {
            Mark::Media(media) => message.parts.push(Part::Media(media)),
            Mark::Section(name) => message.parts.push(Part::Section(name)),
            Mark::Role(role) => message.finish(role, &mut pieces),
            Mark::History => {
                message.finish(Role::MODEL, &mut pieces);
                pieces.push(Piece::History(Placement::Explicit));
                explicit = true;
            }
        }
    }
    message.push_text(&output.text[from..]);
    message.finish(Role::USER, &mut pieces);
    if !explicit {
        let ends_with_user = matches!(pieces.last(), Some(Piece::Message(last)) if last.role == Role::USER);
        let place = pieces.len() - usize::from(ends_with_user);
        pieces.insert(place, Piece::History(Placement::Implicit));
    }
    pieces
}

/// Puts the history into its places.
pub(crate) fn splice(pieces: Vec<Piece>, history: &[Message]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(pieces.len() + history.len());
    for piece in pieces {
        match piece {
            Piece::Message(message) => messages.push(message),
            Piece::History(Placement::Explicit) => messages.extend(history.iter().map(Message::as_history)),
            Piece::History(Placement::Implicit) => messages.extend_from_slice(history),
        }
    }
    messages
}

struct Draft {
    role: Role,
    parts: Vec<Part>,
}

impl Draft {
    fn push_text(&mut self, text: &str) {
        if !is_blank(text) {
            self.parts.push(Part::text(text));
        }
    }

    /// Ends this message, if it has content, and starts the next.
    fn finish(&mut self, next: Role, pieces: &mut Vec<Piece>) {
        let role = std::mem::replace(&mut self.role, next);
        if !self.parts.is_empty() {
            pieces.push(Piece::Message(Message::new(
                role,
                std::mem::take(&mut self.parts),
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &str, marks: Vec<(usize, Mark)>) -> Output {
        Output {
            text: text.to_owned(),
            marks,
        }
    }

    #[test]
    fn a_role_without_text_before_it_only_names_the_message() {
        let marks = vec![(2, Mark::Role(Role::SYSTEM)), (3, Mark::Role(Role::MODEL))];

        let pieces = pieces(output("\n \n hi", marks));

        let expected = [
            Piece::Message(Message::model(" hi")),
            Piece::History(Placement::Implicit),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn a_message_after_the_history_is_the_models() {
        let pieces = pieces(output("ab", vec![(1, Mark::History)]));

        let expected = [
            Piece::Message(Message::user("a")),
            Piece::History(Placement::Explicit),
            Piece::Message(Message::model("b")),
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn the_history_goes_before_a_last_message_of_the_user() {
        let pieces = pieces(output(
            "sysuser",
            vec![(0, Mark::Role(Role::SYSTEM)), (3, Mark::Role(Role::USER))],
        ));

        assert_eq!(pieces[1], Piece::History(Placement::Implicit));
        assert_eq!(pieces.len(), 3);
    }

    #[test]
    fn an_empty_template_is_the_history() {
        let history = [Message::user("a"), Message::model("b")];

        let messages = splice(pieces(Output::default()), &history);

        assert_eq!(messages, history);
    }

    #[test]
    fn only_an_explicit_history_is_stamped() {
        let history = [Message::user("a")];

        let explicit = splice(vec![Piece::History(Placement::Explicit)], &history);
        let implicit = splice(vec![Piece::History(Placement::Implicit)], &history);

        let metadata = explicit[0].metadata.as_ref().unwrap();
        assert_eq!(metadata["purpose"], "history");
        assert_eq!(implicit, history);
    }
}
