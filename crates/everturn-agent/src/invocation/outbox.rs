//! The way from an agent's function to the driver of its invocation.
//!
//! Everything takes one queue, so that what the function did first arrives first: a patch precedes whatever is sent
//! after it, and all of a turn's chunks precede its end. Code that cannot wait (a change of the custom state) leaves its
//! chunk there and goes on; code that can waits until the client's side has taken it, and a model until there is room for
//! another of its chunks.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use everturn_ai::{Messages, ModelResponseChunk};
use everturn_core::{Emitter, Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::turn::TurnStart;
use crate::session::Publisher;
use crate::{AgentFinishReason, AgentStreamChunk, SnapshotId};

/// How many chunks of a model's may be on their way to the client. A model that sends many at once is then not stopped at
/// each of them, and a slow client still slows it down.
pub(crate) const MODEL_CHUNKS: usize = 32;

/// What an agent's function tells the driver.
pub(crate) enum Signal {
    /// There is something for the client.
    Chunk(ChunkSignal),
    /// Something that must not be shown could not be withheld in any other way than by failing.
    Fault(Error),
    /// The function is ready for a turn; the answer is `None` when no more come.
    NextTurn(Answer<Option<TurnStart>>),
    /// The tools that a model asked for in this turn have answered; the generation waits until this conversation is saved, if it is to
    /// be.
    RoundDone {
        turn: usize,
        // In a box, because it is large, and every queue has room for many signals.
        conversation: Box<Messages>,
        settled: Answer<()>,
    },
    /// The turn's handler is done; the answer is the row that holds the turn, if one was written.
    TurnDone {
        outcome: Result<Option<AgentFinishReason>>,
        settled: Option<Answer<Option<SnapshotId>>>,
    },
}

/// Send this to the client, if it is anything, and say when it and all before it were taken.
pub(crate) struct ChunkSignal {
    pub(crate) chunk: Option<Box<AgentStreamChunk>>,
    pub(crate) taken: Option<Receipt>,
}

impl From<AgentStreamChunk> for ChunkSignal {
    /// A chunk that nobody waits for.
    fn from(chunk: AgentStreamChunk) -> Self {
        Self {
            chunk: Some(Box::new(chunk)),
            taken: None,
        }
    }
}

/// Dropped when a chunk was taken, or is not sent after all: that releases whoever waits for it.
#[expect(dead_code, reason = "they are held to be dropped")]
pub(crate) enum Receipt {
    /// Somebody waits for this very chunk.
    Awaited(oneshot::Sender<()>),
    /// There is room for another chunk.
    Room(OwnedSemaphorePermit),
}

/// Who listens to chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Audience {
    Client,
    /// Those who watch a run that has no client any more.
    Watchers,
    Nobody,
}

pub(crate) type Answer<T> = oneshot::Sender<Result<T>>;

/// The function's end of the queue. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Outbox(Arc<Shared>);

struct Shared {
    signals: mpsc::UnboundedSender<Signal>,
    /// Whether anybody listens to the model's chunks.
    streaming: bool,
    /// Whether the ends of rounds may become snapshots.
    keeps_rounds: bool,
    audience: AtomicU8,
    /// Room for chunks of models.
    room: Arc<Semaphore>,
    work: CancellationToken,
    /// Why the work was cancelled.
    end: OnceLock<Error>,
}

impl Shared {
    fn plays_to(&self, audience: Audience) -> bool {
        self.audience.load(Ordering::Acquire) == audience as u8
    }

    fn signal(&self, signal: Signal) {
        // The driver outlives the function except when the process shuts down; then nobody is owed anything.
        let _ = self.signals.send(signal);
    }
}

impl Publisher for Shared {
    fn is_silenced(&self) -> bool {
        self.plays_to(Audience::Nobody)
    }

    fn post(&self, chunk: AgentStreamChunk) {
        if !self.is_silenced() {
            self.signal(Signal::Chunk(chunk.into()));
        }
    }

    fn fault(&self, error: Error) {
        self.signal(Signal::Fault(error));
    }
}

impl Outbox {
    /// A queue whose senders stop waiting when `work` is cancelled.
    pub(crate) fn new(
        work: CancellationToken,
        streaming: bool,
        keeps_rounds: bool,
    ) -> (Self, mpsc::UnboundedReceiver<Signal>) {
        let (signals, receiver) = mpsc::unbounded_channel();
        let audience = AtomicU8::new(Audience::Client as u8);
        (
            Self(Arc::new(Shared {
                signals,
                streaming,
                keeps_rounds,
                audience,
                room: Arc::new(Semaphore::new(MODEL_CHUNKS)),
                work,
                end: OnceLock::new(),
            })),
            receiver,
        )
    }

    /// From now on chunks are dropped here; everything else still passes.
    pub(crate) fn silence(&self) {
        self.play_to(Audience::Nobody);
    }

    /// From now on chunks are for those who watch the run.
    pub(crate) fn play_to_watchers(&self) {
        self.play_to(Audience::Watchers);
    }

    fn play_to(&self, audience: Audience) {
        self.0.audience.store(audience as u8, Ordering::Release);
    }

    fn plays_to(&self, audience: Audience) -> bool {
        self.0.plays_to(audience)
    }

    pub(crate) fn is_silenced(&self) -> bool {
        self.0.is_silenced()
    }

    /// The way by which the session tells its client of changes.
    pub(crate) fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::<Shared>::clone(&self.0)
    }

    /// Whether the ends of rounds may become snapshots.
    pub(crate) fn keeps_rounds(&self) -> bool {
        self.0.keeps_rounds
    }

    /// Cancels the work; whoever waits here is told why.
    pub(crate) fn end(&self, why: Error) {
        // The first reason stays.
        let _ = self.0.end.set(why);
        self.0.work.cancel();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Leaves a chunk in the queue and waits until the client's side has taken it.
    ///
    /// # Errors
    /// Why the work was cancelled, if it is before that.
    pub(crate) async fn send(&self, chunk: AgentStreamChunk) -> Result<()> {
        self.pass(Some(Box::new(chunk))).await
    }

    /// Waits until the client's side has taken everything posted so far.
    ///
    /// # Errors
    /// As [`Outbox::send`].
    pub(crate) async fn taken(&self) -> Result<()> {
        self.pass(None).await
    }

    async fn pass(&self, chunk: Option<Box<AgentStreamChunk>>) -> Result<()> {
        if self.is_silenced() {
            return self.goes_on();
        }
        let (taken, wait) = oneshot::channel();
        self.signal(Signal::Chunk(ChunkSignal {
            chunk,
            taken: Some(Receipt::Awaited(taken)),
        }));
        tokio::select! {
            biased;
            () = self.0.work.cancelled() => Err(self.why_ended()),
            // A driver that drops the chunk instead of sending it has released the sender too.
            _ = wait => Ok(()),
        }
    }

    /// Leaves a model's chunk in the queue if there is room for it, or gives it back.
    fn stream_now(&self, chunk: ModelResponseChunk) -> ControlFlow<Result<()>, ModelResponseChunk> {
        if let Err(error) = self.goes_on() {
            return ControlFlow::Break(Err(error));
        }
        if self.is_silenced() {
            return ControlFlow::Break(Ok(()));
        }
        match Arc::clone(&self.0.room).try_acquire_owned() {
            Ok(room) => {
                self.place(chunk, room);
                ControlFlow::Break(Ok(()))
            }
            Err(_) => ControlFlow::Continue(chunk),
        }
    }

    /// Leaves a model's chunk in the queue as soon as there is room for it.
    async fn stream(&self, chunk: ModelResponseChunk) -> Result<()> {
        let room = tokio::select! {
            biased;
            room = Arc::clone(&self.0.room).acquire_owned() => room.expect("nobody closes it"),
            () = self.0.work.cancelled() => return Err(self.why_ended()),
        };
        if !self.is_silenced() {
            self.place(chunk, room);
        }
        Ok(())
    }

    fn place(&self, chunk: ModelResponseChunk, room: OwnedSemaphorePermit) {
        self.signal(Signal::Chunk(ChunkSignal {
            chunk: Some(Box::new(AgentStreamChunk::model(chunk))),
            taken: Some(Receipt::Room(room)),
        }));
    }

    fn goes_on(&self) -> Result<()> {
        if self.0.work.is_cancelled() {
            return Err(self.why_ended());
        }
        Ok(())
    }

    /// Where the chunks of a generation go; silent if nobody listens.
    pub(crate) fn model_emitter(&self) -> Emitter<ModelResponseChunk> {
        let listened_to = self.plays_to(Audience::Watchers) || self.0.streaming && !self.is_silenced();
        if !listened_to {
            return Emitter::silent();
        }
        let (outbox, waiting) = (self.clone(), self.clone());
        Emitter::placing(
            move |chunk| outbox.stream_now(chunk),
            move |chunk| {
                let outbox = waiting.clone();
                async move { outbox.stream(chunk).await }
            },
        )
    }

    /// Asks for the next turn; `None` when no more come.
    pub(crate) async fn next_turn(&self) -> Result<Option<TurnStart>> {
        self.ask(Signal::NextTurn).await
    }

    /// Reports a conversation whose tools have answered and waits until it is saved, if it is to be.
    ///
    /// # Errors
    /// What the store fails with; `CANCELLED` if the invocation is over.
    pub(crate) async fn round_done(&self, turn: usize, conversation: Messages) -> Result<()> {
        self.ask(|settled| Signal::RoundDone {
            turn,
            conversation: Box::new(conversation),
            settled,
        })
        .await
    }

    /// Reports the end of a turn's handler and waits for the row that holds the turn.
    pub(crate) async fn turn_done(
        &self,
        outcome: Result<Option<AgentFinishReason>>,
    ) -> Result<Option<SnapshotId>> {
        self.ask(|settled| Signal::TurnDone {
            outcome,
            settled: Some(settled),
        })
        .await
    }

    async fn ask<T>(&self, question: impl FnOnce(Answer<T>) -> Signal) -> Result<T> {
        let (answer, wait) = oneshot::channel();
        // If the driver is gone, so is the sender of the answer.
        self.signal(question(answer));
        wait.await.unwrap_or_else(|_| Err(self.why_ended()))
    }

    /// Why the work was cancelled.
    pub(crate) fn why_ended(&self) -> Error {
        self.0
            .end
            .get()
            .cloned()
            .unwrap_or_else(|| Error::cancelled("the invocation is over"))
    }
}
