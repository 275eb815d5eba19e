//! The client of an invocation: the inputs it sends, the chunks and the answer it gets, and whether it is
//! still there.

use std::collections::VecDeque;

use everturn_core::{Context, Emitter, Error, Inputs, Result, Sending};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::function::Receipt;
use super::machine::{Cause, Event};
use super::{AgentEvent, RegistryGuard};
use crate::store::{RECORD_TAKEN, TIP_MOVED, TURN_TAKEN_OVER};
use crate::{AgentInput, AgentOutput, AgentStreamChunk};

/// Sends the output to the client. It is boxed because the channel has room for it from the beginning.
pub(super) type AnswerSender = oneshot::Sender<Result<Box<AgentOutput>>>;

/// The client's side of an invocation.
pub(super) struct Client {
    /// `None` once nothing more is read.
    inputs: Option<Inputs<AgentInput>>,
    context: Context,
    /// Whether the caller is this program, and not a client of the agent.
    is_program: bool,
    /// `None` once the client has its answer.
    answer: Option<AnswerSender>,
    /// Whether the client's departure ends the work.
    followed: bool,
    /// Whether the client has requested that the work continue without it.
    detached: bool,
    // The two futures are kept because each event of the invocation polls them, and they are expensive to
    // create.
    /// Completes when the caller hands the invocation off.
    handed_off: BoxFuture<'static, ()>,
    /// Completes with the reason when the caller's context has ended.
    ended: BoxFuture<'static, Error>,
}

impl Client {
    pub(super) fn new(inputs: Inputs<AgentInput>, context: Context, answer: AnswerSender) -> Self {
        let caller = context.clone();
        Self {
            handed_off: Box::pin(HandOff::requested(&context)),
            ended: Box::pin(async move { caller.ended().await }),
            inputs: Some(inputs),
            is_program: RegistryGuard::is_held(&context),
            context,
            answer: Some(answer),
            followed: true,
            detached: false,
        }
    }

    /// Returns the client of a run that was taken over: it left long ago.
    pub(super) fn departed(context: Context, is_program: bool) -> Self {
        Self {
            inputs: None,
            context,
            is_program,
            answer: None,
            followed: false,
            detached: true,
            handed_off: Box::pin(std::future::pending()),
            ended: Box::pin(std::future::pending()),
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns whether the caller is this program, and not a client of the agent.
    pub(super) fn is_program(&self) -> bool {
        self.is_program
    }

    /// Waits for the client's next input or, if there is none, for its departure; forever once neither
    /// matters.
    pub(super) async fn next(&mut self) -> AgentEvent {
        let may_be_handed_off = self.answer.is_some() && !self.detached;
        let answer = self.answer.as_mut().filter(|_| self.followed);
        tokio::select! {
            // Input before departure: a detach that was sent before the client left is accepted.
            biased;
            event = next_input(&mut self.inputs, &mut self.detached) => event,
            () = &mut self.handed_off, if may_be_handed_off => {
                self.inputs = None;
                self.detached = true;
                Event::Detach(Vec::new())
            }
            error = departure(&mut self.ended, answer) => {
                self.followed = false;
                Event::ClientGone(error)
            }
        }
    }

    /// Ignores the client's departure from now on.
    pub(super) fn let_go(&mut self) {
        self.followed = false;
    }

    /// Gives the client its answer, if it still waits for one.
    pub(super) fn answer(&mut self, output: Result<AgentOutput>) {
        self.inputs = None;
        if let Some(answer) = self.answer.take() {
            // The client may have left meanwhile.
            let _ = answer.send(output.map(Box::new));
        }
    }
}

async fn next_input(inputs: &mut Option<Inputs<AgentInput>>, detached: &mut bool) -> AgentEvent {
    let Some(source) = inputs else {
        return std::future::pending().await;
    };
    match source.next().await {
        None => {
            *inputs = None;
            Event::InputClosed
        }
        Some(input) if input.is_detach() => {
            let mut riding = vec![input];
            // All inputs that have arrived belong to the run. Those after the detach would otherwise be lost
            // with the connection.
            while let Some(Some(more)) = source.next().now_or_never() {
                riding.push(more);
            }
            *inputs = None;
            *detached = true;
            Event::Detach(
                riding
                    .into_iter()
                    .filter(AgentInput::has_payload)
                    .map(|input| {
                        Box::new(AgentInput {
                            detach: None,
                            ..input
                        })
                    })
                    .collect(),
            )
        }
        Some(input) => Event::Input(Box::new(input)),
    }
}

/// Waits until the output has no receiver any more, and returns the reason.
async fn departure(ended: &mut BoxFuture<'static, Error>, answer: Option<&mut AnswerSender>) -> Error {
    let Some(answer) = answer else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        error = ended => error,
        () = answer.closed() => Error::cancelled("the caller is gone"),
    }
}

/// The queue of chunks on their way to the client, in order. A slow client holds up the queue and the code
/// that waits for its chunk to be taken, and nothing else.
pub(super) struct ClientStream {
    emitter: Emitter<AgentStreamChunk>,
    /// Boxed, because a queue has room for four from its first one on.
    queue: VecDeque<(Option<Box<AgentStreamChunk>>, Taken)>,
    /// Chunks that were delivered, except the last, which may wait for room; and receipts between them.
    sending: VecDeque<(Option<Sending>, Taken)>,
    state: State,
}

/// Dropped when the chunk was taken, which releases the code that waits for it.
type Taken = Option<Receipt>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The driver waits for the queue to become empty.
    Draining,
    /// Nothing more is sent.
    Silent,
}

pub(super) enum ClientStreamEvent {
    /// Everything queued before the drain was taken.
    Empty,
    /// The client takes no more chunks.
    Broken(Error),
}

impl ClientStream {
    pub(super) fn new(emitter: Emitter<AgentStreamChunk>) -> Self {
        Self {
            emitter,
            queue: VecDeque::new(),
            sending: VecDeque::new(),
            state: State::Open,
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.state == State::Silent
    }

    /// Queues a chunk, or only a receipt for all chunks before it.
    pub(super) fn queue(&mut self, chunk: Option<AgentStreamChunk>, taken: Taken) {
        // Without a listener, a chunk counts as taken at once: its receipt is dropped here.
        if self.state != State::Silent && self.emitter.is_streaming() {
            self.queue.push_back((chunk.map(Box::new), taken));
        }
    }

    /// Drops the queue, sends nothing more, and releases all code that waits for a chunk.
    pub(super) fn silence(&mut self) {
        self.state = State::Silent;
        self.queue.clear();
        self.sending.clear();
    }

    /// Makes [`ClientStream::flush`] report when everything queued so far was taken.
    pub(super) fn drain(&mut self) {
        if self.state == State::Open {
            self.state = State::Draining;
        }
    }

    /// Sends the queued chunks. May be dropped at any time without losing a chunk.
    pub(super) async fn flush(&mut self) -> ClientStreamEvent {
        loop {
            self.send_queued();
            if let Some((sending, _)) = self.sending.front_mut() {
                let sent = match sending {
                    Some(sending) => sending.await,
                    None => Ok(()),
                };
                // The receipt goes with it, which releases the code that waits for this chunk.
                self.sending.pop_front();
                if let Err(error) = sent {
                    return ClientStreamEvent::Broken(error);
                }
            } else if self.state == State::Draining {
                self.state = State::Open;
                return ClientStreamEvent::Empty;
            } else {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends chunks as long as none can overtake the one before it.
    fn send_queued(&mut self) {
        let is_in_order =
            |(sending, _): &(Option<Sending>, Taken)| sending.as_ref().is_none_or(Sending::is_in_order);
        while self.sending.back().is_none_or(is_in_order)
            && let Some((chunk, taken)) = self.queue.pop_front()
        {
            let sending = chunk.map(|chunk| self.emitter.send(*chunk));
            self.sending.push_back((sending, taken));
        }
    }
}

/// Lets the caller of an invocation detach it as if the client had asked for it; an extension of the context.
///
/// A server that shuts down hands its turns off so that they end elsewhere: the client is answered with the
/// pending snapshot, which holds all that another worker needs to continue. An agent that cannot be detached
/// fails its invocation instead.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::HandOff;
/// use everturn_core::Context;
/// use tokio_util::sync::CancellationToken;
///
/// let ending = CancellationToken::new();
/// let context = Context::new().with_extension(Arc::new(HandOff::when(ending.clone())));
/// // … run agents in the context, and when the time has come:
/// ending.cancel();
/// # let _ = context;
/// ```
pub struct HandOff(CancellationToken);

impl HandOff {
    /// Creates a hand-off that detaches when the token is cancelled.
    pub fn when(token: CancellationToken) -> Self {
        Self(token)
    }

    /// Waits until the caller hands the invocation off; forever if it cannot.
    pub(crate) fn requested(context: &Context) -> impl Future<Output = ()> + Send + use<> {
        let hand_off = context.extension::<Self>();
        async move {
            match hand_off {
                Some(hand_off) => hand_off.0.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }
}

everturn_core::opaque_debug!(HandOff);

/// Returns whether a turn failed because a turn of another process has the session.
pub(super) fn lost_the_session(error: &Error) -> bool {
    [TIP_MOVED, TURN_TAKEN_OVER, RECORD_TAKEN]
        .into_iter()
        .any(|reason| error.is(reason))
}

/// Returns the error that the caller and the cancelled work receive.
pub(super) fn error_of(cause: Cause<Error>) -> Error {
    match cause {
        Cause::Function(error)
        | Cause::Transform(error)
        | Cause::LockRefused(error)
        | Cause::ClientGone(error) => error,
        Cause::DetachWithoutStore => {
            Error::failed_precondition("a detach needs a session store, and the agent has none")
        }
        // No abort would be noticed.
        Cause::DetachWithoutSubscription => Error::failed_precondition(
            "a detach needs a store that tells when a snapshot changes, and the agent's does not",
        ),
        Cause::PendingSnapshot(error) => error.context("the pending snapshot could not be saved"),
    }
}
