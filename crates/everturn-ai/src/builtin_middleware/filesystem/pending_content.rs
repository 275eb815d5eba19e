//! File contents that were read but are not in the conversation yet.
//!
//! Models take text and images from users more readily than from tools, so a read answers with a short note
//! and its content follows as a user message before the next model call.

use parking_lot::{Mutex, MutexGuard};

use crate::{Message, Part, ToolResponse};

/// Contents that were read and not shown to the model yet.
#[derive(Debug, Default)]
pub(super) struct PendingContent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<ReadContent>,
    /// The contents shown last and the message they followed. A round that runs again needs them again.
    shown: Option<(Message, Vec<Part>)>,
}

#[derive(Debug)]
struct ReadContent {
    /// The reference of the tool request that asked for it.
    call: Option<String>,
    content: Vec<Part>,
}

impl PendingContent {
    pub(super) fn put(&self, call: Option<&str>, content: Vec<Part>) {
        if !content.is_empty() {
            self.state().waiting.push(ReadContent {
                call: call.map(str::to_owned),
                content,
            });
        }
    }

    /// Takes the contents to show after `answers`, the message with the tools' responses, in the order of
    /// those responses.
    ///
    /// Tools run at the same time, so the contents arrive in the order in which the tools complete.
    pub(super) fn take(&self, answers: &Message) -> Vec<Part> {
        let mut state = self.state();
        let shown = state.shown.take().filter(|(message, _)| message.is_same(answers));
        let mut waiting = std::mem::take(&mut state.waiting);
        let responses: Vec<&ToolResponse> = answers
            .content()
            .iter()
            .filter_map(Part::as_tool_response)
            .collect();
        waiting.sort_by_key(|read| {
            let is_answer = |response: &&ToolResponse| response.reference == read.call;
            responses.iter().position(is_answer).unwrap_or(responses.len())
        });
        let mut content = shown.map(|(_, content)| content).unwrap_or_default();
        content.extend(waiting.into_iter().flat_map(|read| read.content));
        state.shown = (!content.is_empty()).then(|| (answers.clone(), content.clone()));
        content
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
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
        let pending = PendingContent::default();

        pending.put(None, vec![Part::text("unasked")]);
        pending.put(Some("3"), vec![Part::text("third")]);
        pending.put(Some("1"), vec![Part::text("first")]);

        assert_eq!(
            pending.take(&answers()),
            ["first", "third", "unasked"].map(Part::text)
        );
    }

    #[test]
    fn contents_are_shown_again_only_after_the_same_message() {
        let pending = PendingContent::default();
        let answers_of_one_round = answers();
        pending.put(Some("1"), vec![Part::text("first")]);

        let first_run = pending.take(&answers_of_one_round);
        let second_run = pending.take(&answers_of_one_round);
        let next_round = pending.take(&answers());

        assert_eq!(first_run, [Part::text("first")]);
        assert_eq!(second_run, first_run);
        assert!(next_round.is_empty());
    }
}
