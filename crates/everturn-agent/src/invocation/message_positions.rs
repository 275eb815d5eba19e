//! The positions of streamed messages in their session.

use std::sync::Arc;

use everturn_ai::history::awaiting;
use everturn_ai::{History, ModelResponseChunk, Role};
use parking_lot::Mutex;

/// Finds the position that the message of each chunk will have in the session, before the message is there.
///
/// The messages of one generation alternate between the model and its tools. The role and the index of a
/// chunk therefore identify its message, even if a model did not stream and the index did not count its
/// message.
#[derive(Clone)]
pub(crate) struct MessagePositions {
    conversation: Arc<dyn Fn() -> History + Send + Sync>,
    current: Arc<Mutex<Option<Current>>>,
}

#[derive(Clone, Copy)]
struct Current {
    position: usize,
    role: Role,
    index: u32,
    /// The number of messages between this one and the next of the generation.
    gap: usize,
}

impl MessagePositions {
    /// Returns the positions of one generation in the conversation that `conversation` returns.
    pub(super) fn new(conversation: impl Fn() -> History + Send + Sync + 'static) -> Self {
        Self {
            conversation: Arc::new(conversation),
            current: Arc::default(),
        }
    }

    /// Returns the position of the message that a chunk is part of.
    pub(super) fn of(&self, chunk: &ModelResponseChunk) -> usize {
        let (role, index) = (chunk.role.unwrap_or(Role::Model), chunk.index.unwrap_or_default());
        let mut current = self.current.lock();
        let (position, gap) = match *current {
            Some(place) if place.index == index && place.role == role => (place.position, place.gap),
            Some(place) if index >= place.index => {
                let step = if place.role == role { 2 } else { 1 };
                (place.position + place.gap + step, 0)
            }
            // The first message of a generation.
            _ => self.first(role),
        };
        *current = Some(Current {
            position,
            role,
            index,
            gap,
        });
        position
    }

    /// Returns the position of a generation's first message, and how many messages come after it before the
    /// next.
    fn first(&self, role: Role) -> (usize, usize) {
        let conversation = (self.conversation)();
        if let Some(asking) = awaiting(&conversation) {
            // Messages that wait for the answers move behind them.
            let waiting = conversation.len() - 1 - asking;
            return match role {
                Role::Tool => (asking + 1, waiting),
                _ => (asking + 2 + waiting, 0),
            };
        }
        // After a model's message come the answers to its tool calls.
        let expected = match conversation.last().map(everturn_ai::Message::role) {
            Some(Role::Model) => Role::Tool,
            _ => Role::Model,
        };
        (conversation.len() + usize::from(role != expected), 0)
    }
}

#[cfg(test)]
mod tests {
    use everturn_ai::{Message, Part, ToolRequest, metadata};
    use serde_json::json;

    use super::*;

    fn positions(conversation: &[Message], chunks: &[(Role, u32)]) -> Vec<usize> {
        let conversation: History = conversation.iter().cloned().collect();
        let positions = MessagePositions::new(move || conversation.clone());
        let chunk = |&(role, index): &(Role, u32)| ModelResponseChunk {
            role: Some(role),
            index: Some(index),
            ..ModelResponseChunk::default()
        };
        chunks.iter().map(|of| positions.of(&chunk(of))).collect()
    }

    #[test]
    fn the_messages_of_a_generation_follow_the_users() {
        let streamed = [
            (Role::Model, 0),
            (Role::Model, 0),
            (Role::Tool, 1),
            (Role::Model, 2),
        ];

        assert_eq!(positions(&[Message::user("hi")], &streamed), [1, 1, 2, 3]);
    }

    #[test]
    fn a_model_that_does_not_stream_has_a_place_too() {
        let streamed = [(Role::Tool, 0), (Role::Tool, 1), (Role::Model, 2)];

        assert_eq!(positions(&[Message::user("hi")], &streamed), [2, 4, 5]);
    }

    #[test]
    fn messages_that_wait_come_between_the_answers_and_the_reply() {
        let asked =
            Part::from(ToolRequest::new("pay", json!({}))).with_metadata_entry(metadata::INTERRUPT, true);
        let conversation = [
            Message::user("hi"),
            Message::model(vec![asked]),
            Message::user("hello?").with_metadata_entry(metadata::WAITING, true),
        ];

        let streamed = [(Role::Tool, 0), (Role::Model, 1), (Role::Tool, 2)];
        assert_eq!(positions(&conversation, &streamed), [2, 4, 5]);
        assert_eq!(positions(&conversation, &[(Role::Model, 0)]), [4]);
    }

    #[test]
    fn answers_come_right_after_the_interrupted_message() {
        let conversation = [Message::user("hi"), Message::model("may I?")];

        assert_eq!(
            positions(&conversation, &[(Role::Tool, 0), (Role::Model, 1)]),
            [2, 3]
        );
        assert_eq!(positions(&conversation, &[(Role::Model, 0)]), [3]);
    }
}
