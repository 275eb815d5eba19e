//! The places of streamed messages in their session.

use std::sync::{Arc, Mutex, PoisonError};

use everturn_ai::{History, ModelResponseChunk, Role};

/// Finds the place that the message of each chunk will have in the session, before the message is there.
///
/// The messages of one generation alternate between the model and its tools. So the role and the index of a chunk tell its
/// message, also where a model did not stream and the index did not count its message.
#[derive(Clone)]
pub(crate) struct Places {
    conversation: Arc<dyn Fn() -> History + Send + Sync>,
    current: Arc<Mutex<Option<Place>>>,
}

#[derive(Clone, Copy)]
struct Place {
    position: usize,
    role: Role,
    index: u32,
}

impl Places {
    /// Returns the places of one generation in the conversation that `conversation` returns.
    pub(super) fn new(conversation: impl Fn() -> History + Send + Sync + 'static) -> Self {
        Self {
            conversation: Arc::new(conversation),
            current: Arc::default(),
        }
    }

    /// Returns the place of the message that a chunk is part of.
    pub(super) fn of(&self, chunk: &ModelResponseChunk) -> usize {
        let (role, index) = (chunk.role.unwrap_or(Role::Model), chunk.index.unwrap_or_default());
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let position = match *current {
            Some(place) if place.index == index && place.role == role => place.position,
            Some(place) if index >= place.index => place.position + if place.role == role { 2 } else { 1 },
            // The first message of a generation.
            _ => self.first(role),
        };
        *current = Some(Place {
            position,
            role,
            index,
        });
        position
    }

    fn first(&self, role: Role) -> usize {
        let conversation = (self.conversation)();
        // After a model's message come the answers to its tool calls.
        let expected = match conversation.last().map(everturn_ai::Message::role) {
            Some(Role::Model) => Role::Tool,
            _ => Role::Model,
        };
        conversation.len() + usize::from(role != expected)
    }
}

#[cfg(test)]
mod tests {
    use everturn_ai::Message;

    use super::*;

    fn places(conversation: &[Message], chunks: &[(Role, u32)]) -> Vec<usize> {
        let conversation: History = conversation.iter().cloned().collect();
        let places = Places::new(move || conversation.clone());
        let chunk = |&(role, index): &(Role, u32)| ModelResponseChunk {
            role: Some(role),
            index: Some(index),
            ..ModelResponseChunk::default()
        };
        chunks.iter().map(|of| places.of(&chunk(of))).collect()
    }

    #[test]
    fn the_messages_of_a_generation_follow_the_users() {
        let streamed = [
            (Role::Model, 0),
            (Role::Model, 0),
            (Role::Tool, 1),
            (Role::Model, 2),
        ];

        assert_eq!(places(&[Message::user("hi")], &streamed), [1, 1, 2, 3]);
    }

    #[test]
    fn a_model_that_does_not_stream_has_a_place_too() {
        let streamed = [(Role::Tool, 0), (Role::Tool, 1), (Role::Model, 2)];

        assert_eq!(places(&[Message::user("hi")], &streamed), [2, 4, 5]);
    }

    #[test]
    fn answers_come_right_after_the_interrupted_message() {
        let conversation = [Message::user("hi"), Message::model("may I?")];

        assert_eq!(
            places(&conversation, &[(Role::Tool, 0), (Role::Model, 1)]),
            [2, 3]
        );
        assert_eq!(places(&conversation, &[(Role::Model, 0)]), [3]);
    }
}
