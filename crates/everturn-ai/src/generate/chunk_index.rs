//! The index of the message that a chunk belongs to.

use std::sync::Arc;

use everturn_core::Emitter;
use parking_lot::Mutex;

use crate::{ModelResponseChunk, Role};

/// Stamps the chunks of one round with their role and index. Cloning gives another handle to the same count.
///
/// The index increases when the role changes within the round. If the model streamed nothing in a round, its
/// tools' answers do not increase the index.
#[derive(Clone)]
pub(super) struct ChunkIndex(Arc<Mutex<Position>>);

struct Position {
    index: u32,
    role: Role,
    has_streamed: bool,
}

impl ChunkIndex {
    pub(super) fn starting_at(index: u32) -> Self {
        Self(Arc::new(Mutex::new(Position {
            index,
            role: Role::Model,
            has_streamed: false,
        })))
    }

    pub(super) fn stamped(&self, mut chunk: ModelResponseChunk) -> ModelResponseChunk {
        let mut position = self.0.lock();
        let role = chunk.role.unwrap_or(Role::Model);
        if role != position.role && position.has_streamed {
            position.index += 1;
        }
        position.role = role;
        position.has_streamed = true;
        chunk.role = Some(role);
        chunk.index = Some(position.index);
        chunk
    }

    /// Returns the index for the round that follows.
    pub(super) fn following(&self) -> u32 {
        self.0.lock().index + 1
    }

    /// Returns an emitter that stamps chunks and sends them to `sink`; a silent one if `sink` has no
    /// listener.
    pub(super) fn stamping(&self, sink: &Emitter<ModelResponseChunk>) -> Emitter<ModelResponseChunk> {
        let index = self.clone();
        sink.map_from(move |chunk| Ok(index.stamped(chunk)))
    }

    /// Like [`ChunkIndex::stamping`], for several senders at once: stamping and sending a chunk is one step.
    pub(super) fn stamping_one_by_one(
        &self,
        sink: &Emitter<ModelResponseChunk>,
    ) -> Emitter<ModelResponseChunk> {
        if !sink.is_streaming() {
            return Emitter::silent();
        }
        let shared = Arc::new((self.clone(), sink.clone(), tokio::sync::Mutex::new(())));
        Emitter::new(move |chunk| {
            let shared = Arc::clone(&shared);
            async move {
                let (index, sink, order) = &*shared;
                let _in_order = order.lock().await;
                Ok(sink.send(index.stamped(chunk)).await?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(index: &ChunkIndex, role: Option<Role>) -> (Option<Role>, Option<u32>) {
        let chunk = index.stamped(ModelResponseChunk {
            role,
            index: Some(9),
            ..ModelResponseChunk::default()
        });
        (chunk.role, chunk.index)
    }

    #[test]
    fn a_change_of_role_advances_and_the_models_own_index_is_overwritten() {
        let index = ChunkIndex::starting_at(2);

        assert_eq!(stamp(&index, None), (Some(Role::Model), Some(2)));
        assert_eq!(stamp(&index, Some(Role::Model)), (Some(Role::Model), Some(2)));
        assert_eq!(stamp(&index, Some(Role::Tool)), (Some(Role::Tool), Some(3)));
        assert_eq!(stamp(&index, Some(Role::Tool)), (Some(Role::Tool), Some(3)));
        assert_eq!(index.following(), 4);
    }

    #[test]
    fn tools_after_a_silent_model_do_not_advance() {
        let index = ChunkIndex::starting_at(0);

        assert_eq!(stamp(&index, Some(Role::Tool)), (Some(Role::Tool), Some(0)));
        assert_eq!(index.following(), 1);
    }
}
