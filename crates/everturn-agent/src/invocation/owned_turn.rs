//! Turns that an agent's function ends itself.

use std::ops::Deref;

use everturn_core::{Error, HandlerError, HandlerResult, Result};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::oneshot;

use super::AgentSession;
use super::turn::TurnStart;
use crate::{CustomState, Turn, TurnResult};

/// A turn that [`AgentSession::next_turn`] returned, with the [`Turn`] through `Deref`. [`OwnedTurn::end`]
/// ends it; one that is dropped instead has failed.
///
/// The loop's code runs in the context of the invocation. Code that looks for the turn in its context, for
/// example with [`TurnContext::current`](crate::TurnContext::current), is run as
/// `turn.context().clone().scope(..)`; [`Turn::generate`] and [`Turn::effect`] do so by themselves.
#[must_use = "a turn that is dropped has failed"]
pub struct OwnedTurn<S = Value> {
    turn: Turn<S>,
    /// Tells the handler how the turn ended.
    end: oneshot::Sender<HandlerResult<TurnResult>>,
    /// The turn, run as [`AgentSession::run`] runs it, with a handler that waits for `end`.
    running: BoxFuture<'static, Result<()>>,
}

impl<S: CustomState> OwnedTurn<S> {
    /// Runs a turn up to its handler; `None` if it ends before that.
    pub(super) async fn begin(session: AgentSession<S>, start: TurnStart) -> Result<Option<Self>> {
        let (show, shown) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut running: BoxFuture<'static, Result<()>> = Box::pin(async move {
            let mut channels = Some((show, ended));
            let mut handler = |turn: Turn<S>| {
                let channels = channels.take();
                async move {
                    let (show, ended) = channels.expect("a turn is handled once");
                    // The code that waits for the turn polls this future.
                    let _ = show.send(turn);
                    ended.await.unwrap_or_else(|_| Err(dropped().into()))
                }
            };
            session.run_turn(start, &mut handler).await
        });
        tokio::select! {
            biased;
            turn = shown => Ok(Some(Self {
                turn: turn.map_err(|_| dropped())?,
                end,
                running,
            })),
            outcome = &mut running => outcome.map(|()| None),
        }
    }

    /// Ends the turn: saves the session if there is a store, and then sends the end of the turn.
    ///
    /// # Errors
    /// The error of the store if the turn could not be saved; the client then receives the failure.
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation has ended.
    pub async fn end(self, result: impl Into<TurnResult>) -> Result<()> {
        // The handler waits for as long as the turn is held here.
        let _ = self.end.send(Ok(result.into()));
        self.running.await
    }

    /// Ends the turn as failed, sends the failure to the client, and returns the error for the function to
    /// pass on. A function that continues with the next turn instead works on the session as it was before
    /// this turn, or as this turn [committed](Turn::committed) it.
    pub async fn fail(self, error: impl Into<HandlerError>) -> Error {
        let error = error.into();
        let _ = self.end.send(Err(error));
        self.running.await.err().unwrap_or_else(dropped)
    }
}

fn dropped() -> Error {
    Error::cancelled("the turn was dropped before its end")
}

impl<S> Deref for OwnedTurn<S> {
    type Target = Turn<S>;

    fn deref(&self) -> &Turn<S> {
        &self.turn
    }
}

everturn_core::opaque_debug!(OwnedTurn<S>, turn);
