//! The client's side of an invocation: what it sends, and whether it is still there.

use everturn_core::{Context, Error, Inputs, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::AgentEvent;
use super::machine::Event;
use crate::{AgentInput, AgentOutput, HandOff};

pub(super) struct Client {
    /// Gone when no more is read.
    inputs: Option<Inputs<AgentInput>>,
    context: Context,
    /// Gone once the client has its answer.
    answer: Option<oneshot::Sender<Result<AgentOutput>>>,
    /// Whether the client's departure ends the work.
    followed: bool,
    /// Whether the client has asked for the work to go on without it.
    detached: bool,
    // Kept, because they are looked at whenever anything happens and are dear to begin anew.
    /// Whether the caller hands the invocation off.
    handed_off: BoxFuture<'static, ()>,
    /// Why the caller's invocation is over.
    ended: BoxFuture<'static, Error>,
}

impl Client {
    pub(super) fn new(
        inputs: Inputs<AgentInput>,
        context: Context,
        answer: oneshot::Sender<Result<AgentOutput>>,
    ) -> Self {
        let caller = context.clone();
        Self {
            handed_off: Box::pin(HandOff::requested(&context)),
            ended: Box::pin(async move { caller.ended().await }),
            inputs: Some(inputs),
            context,
            answer: Some(answer),
            followed: true,
            detached: false,
        }
    }

    /// Nobody: the client of a run that another worker lost left long ago.
    pub(super) fn departed(context: Context) -> Self {
        Self {
            inputs: None,
            context,
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

    /// The next thing the client says or, if it says nothing, its departure; waits for ever once neither matters.
    pub(super) async fn next(&mut self) -> AgentEvent {
        let may_be_handed_off = self.answer.is_some() && !self.detached;
        let answer = self.answer.as_mut().filter(|_| self.followed);
        tokio::select! {
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

    /// From now on the client's departure changes nothing.
    pub(super) fn let_go(&mut self) {
        self.followed = false;
    }

    /// Gives the client its answer, if it still waits for one.
    pub(super) fn answer(&mut self, output: Result<AgentOutput>) {
        self.inputs = None;
        if let Some(answer) = self.answer.take() {
            // A client that left meanwhile is owed nothing.
            let _ = answer.send(output);
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
            while let Some(Some(more)) = source.next().now_or_never() {
                riding.push(more);
            }
            *inputs = None;
            *detached = true;
            Event::Detach(
                riding
                    .into_iter()
                    .filter(AgentInput::has_payload)
                    .map(without_directive)
                    .collect(),
            )
        }
        Some(input) => Event::Input(input),
    }
}

/// Waits until nobody waits for the output any more, and says why.
async fn departure(
    ended: &mut BoxFuture<'static, Error>,
    answer: Option<&mut oneshot::Sender<Result<AgentOutput>>>,
) -> Error {
    let Some(answer) = answer else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        error = ended => error,
        () = answer.closed() => Error::cancelled("the caller is gone"),
    }
}

fn without_directive(input: AgentInput) -> AgentInput {
    AgentInput {
        detach: None,
        ..input
    }
}
