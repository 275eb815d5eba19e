//! Checks that a conversation needs space for its messages once, not once per snapshot.

use std::sync::Arc;

use everturn_agent::SessionState;
use everturn_agent::store::SessionStore;
use everturn_ai::Message;

use super::row::{at, row, save};
use super::{Certificate, Verdict, ensure, examine};

/// The number of turns in each half of the conversation.
const TURNS: i64 = 150;

/// The number of bytes that each turn adds.
const BYTES_PER_TURN: usize = 2_048;

/// Saves a long conversation at every turn, then forks of it, and measures how the store grows.
///
/// `size` returns the number of bytes of the store after compaction. The messages cannot be compressed. A
/// store with independent snapshots, such as the file store, breaks both promises; they are optional.
pub async fn certify_growth(store: Arc<dyn SessionStore>, size: impl AsyncFnMut() -> u64) -> Certificate {
    let mut growth = Growth {
        store,
        size,
        random: fastrand::Rng::with_seed(7),
        state: SessionState::default(),
        turns: 0,
    };
    let mut certificate = Certificate::default();
    certificate.note(
        "a turn needs space for its additions only, however long the conversation",
        examine(growth.is_linear()).await,
    );
    certificate.note(
        "a fork needs almost no space",
        examine(growth.forks_are_small()).await,
    );
    certificate
}

struct Growth<F> {
    store: Arc<dyn SessionStore>,
    size: F,
    random: fastrand::Rng,
    state: SessionState,
    turns: i64,
}

impl<F: AsyncFnMut() -> u64> Growth<F> {
    async fn is_linear(&mut self) -> Verdict {
        let empty = (self.size)().await;
        self.talk().await?;
        let half = (self.size)().await.saturating_sub(empty);
        self.talk().await?;
        let other = (self.size)().await.saturating_sub(empty + half);

        let written = TURNS.unsigned_abs() * BYTES_PER_TURN as u64;
        ensure!(
            half >= written / 2,
            "{half} bytes for {written} bytes of noise: the size is not that of the store"
        );
        ensure!(
            other <= half * 3 / 2,
            "{half} bytes for {TURNS} turns, and {other} for as many after them"
        );
        Ok(())
    }

    async fn forks_are_small(&mut self) -> Verdict {
        let before = (self.size)().await;
        for fork in 0..20 {
            let session = format!("fork-{fork}");
            let mut forked = row(&session, &format!("forked-{fork}"), self.turns + fork);
            forked.state = Some(self.state.clone());
            save(&*self.store, forked).await?;
        }
        let grown = (self.size)().await.saturating_sub(before);

        let conversation = self.turns.unsigned_abs() * BYTES_PER_TURN as u64;
        ensure!(
            grown < conversation,
            "{grown} bytes for 20 forks of a conversation of {conversation} bytes"
        );
        Ok(())
    }

    async fn talk(&mut self) -> Verdict {
        for _ in 0..TURNS {
            self.turns += 1;
            let text: String = std::iter::repeat_with(|| self.random.alphanumeric())
                .take(BYTES_PER_TURN)
                .collect();
            self.state.messages.push(Message::user(text));
            let mut turn = row("s", &format!("turn-{}", self.turns), self.turns);
            turn.created_at = at(self.turns);
            turn.state = Some(self.state.clone());
            save(&*self.store, turn).await?;
        }
        Ok(())
    }
}
