//! The contents of files on their way into the conversation.
//!
//! Models take text and images from users more readily than from tools, so a read answers with a short note and its
//! content follows as a user message before the next model call.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Message, Part, ToolResponse};

/// The contents that were read and not shown to the model yet.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Mail>);

#[derive(Debug, Default)]
struct Mail {
    waiting: Vec<Delivery>,
    /// The contents shown last and the message they followed: a round that is run again needs them again.
    shown: Option<(Message, Vec<Part>)>,
}

#[derive(Debug)]
struct Delivery {
    /// The reference of the tool request that asked for it.
    call: Option<String>,
    content: Vec<Part>,
}

impl Outbox {
    pub(super) fn put(&self, call: Option<&str>, content: Vec<Part>) {
        if !content.is_empty() {
            self.mail().waiting.push(Delivery {
                call: call.map(str::to_owned),
                content,
            });
        }
    }

    /// Takes the contents to show after `answers`, the message with the tools' responses, in the order of those
    /// responses.
    ///
    /// Tools run at the same time, so the contents arrive in the order in which the tools complete.
    pub(super) fn take(&self, answers: &Message) -> Vec<Part> {
        let mut mail = self.mail();
        let shown = mail.shown.take().filter(|(message, _)| message.is_same(answers));
        let mut waiting = std::mem::take(&mut mail.waiting);
        let responses: Vec<&ToolResponse> = answers
            .content()
            .iter()
            .filter_map(Part::as_tool_response)
            .collect();
        waiting.sort_by_key(|delivery| {
            let is_answer = |response: &&ToolResponse| response.reference == delivery.call;
            responses.iter().position(is_answer).unwrap_or(responses.len())
        });
        let mut content = shown.map(|(_, content)| content).unwrap_or_default();
        content.extend(waiting.into_iter().flat_map(|delivery| delivery.content));
        mail.shown = (!content.is_empty()).then(|| (answers.clone(), content.clone()));
        content
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolRequest;

    fn answers() -> Message {
        let answer =
            |call: &str| ToolResponse::to(&ToolRequest::new("read", ()).with_reference(call), "ok").into();
        Message::tool([answer("1"), answer("2"), answer("3")])
    }

    #[test]
    fn contents_come_in_the_order_of_the_answers() {
        let outbox = Outbox::default();

        outbox.put(None, vec![Part::text("unasked")]);
        outbox.put(Some("3"), vec![Part::text("third")]);
        outbox.put(Some("1"), vec![Part::text("first")]);

        assert_eq!(
            outbox.take(&answers()),
            ["first", "third", "unasked"].map(Part::text)
        );
    }

    #[test]
    fn contents_are_shown_again_only_after_the_same_message() {
        let outbox = Outbox::default();
        let answers_of_one_round = answers();
        outbox.put(Some("1"), vec![Part::text("first")]);

        let first_run = outbox.take(&answers_of_one_round);
        let second_run = outbox.take(&answers_of_one_round);
        let next_round = outbox.take(&answers());

        assert_eq!(first_run, [Part::text("first")]);
        assert_eq!(second_run, first_run);
        assert!(next_round.is_empty());
    }
}
