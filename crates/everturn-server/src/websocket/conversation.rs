//! One conversation on a connection, and the queue of its inputs.

use std::collections::VecDeque;

use everturn_core::stream_log::JsonText;
use everturn_core::{Context, DynAction, Error, Exposure, JsonConnection, RequestId, Sender};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;

use super::frame::text;
use super::socket::Outgoing;
use crate::action_call::{public_to_its_sender, text_of};
use crate::correlation::log_failed_call;
use crate::event::{AnswerForm, Event};
use crate::permits::Permit;

/// A conversation, from its `init` until its end is sent. Dropping it cancels the work that was not detached.
pub(super) struct Conversation {
    state: State,
    key: String,
    request: RequestId,
    reply: Reply,
    /// The permits for values that the agent was given and may not have decoded yet.
    undecoded: Vec<Permit>,
}

/// The form in which the client is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) form: AnswerForm,
    pub(super) exposure: Exposure,
}

enum State {
    Open {
        intake: Intake,
        connection: Box<JsonConnection>,
    },
    /// The conversation could not be opened, which is yet to be sent.
    Refused(Error),
}

/// The result of one step.
pub(super) enum Step {
    /// An input was passed to the agent.
    HandedOver,
    /// A chunk was sent.
    Sent,
    /// The end was sent.
    Ended,
    /// The client is gone.
    Gone,
}

impl Conversation {
    /// Opens a conversation; `values` is the permit for the values of `init`.
    pub(super) fn open(
        action: &dyn DynAction,
        init: Value,
        values: Permit,
        context: &Context,
        reply: Reply,
    ) -> Self {
        let state = match action.connect_json(Some(init).filter(|init| !init.is_null()), context) {
            Ok(connection) => State::Open {
                intake: Intake::new(connection.sender()),
                connection: Box::new(connection),
            },
            Err(error) => State::Refused(error),
        };
        Self {
            state,
            key: action.descriptor().key.clone(),
            request: RequestId::of(context),
            reply,
            undecoded: vec![values],
        }
    }

    /// Returns whether one more input is accepted.
    pub(super) fn has_room(&self) -> bool {
        match &self.state {
            State::Open { intake, .. } => intake.has_room(),
            State::Refused(_) => true,
        }
    }

    /// Accepts an input, with the permit for its values.
    pub(super) fn input(&mut self, input: Value, values: Permit) {
        if let State::Open { intake, .. } = &mut self.state {
            intake.push(input, values);
        }
    }

    pub(super) fn close(&mut self) {
        if let State::Open { intake, .. } = &mut self.state {
            intake.close();
        }
    }

    pub(super) fn cancel(&self) {
        if let State::Open { connection, .. } = &self.state {
            connection.cancel();
        }
    }

    /// Makes one step. Dropping the future loses nothing.
    pub(super) async fn step(&mut self, outgoing: &mpsc::Sender<Outgoing>) -> Step {
        match &mut self.state {
            State::Refused(error) => {
                let Ok(room) = outgoing.reserve().await else {
                    return Step::Gone;
                };
                let error = public_to_its_sender(error.clone(), &self.key);
                log_failed_call(&self.key, &self.request, &error);
                room.send(Outgoing::Frame(text(
                    Event::Error(error.to_wire(self.reply.exposure)).to_json(),
                )));
                Step::Ended
            }
            State::Open { intake, connection } => tokio::select! {
                values = intake.hand_over() => {
                    self.undecoded.push(values);
                    Step::HandedOver
                }
                step = send_next(connection, outgoing, (&self.key, &self.request), self.reply) => {
                    self.undecoded.clear();
                    step
                }
            },
        }
    }
}

/// Sends the next event when the client is ready for it: a client that does not read makes the agent wait.
async fn send_next(
    connection: &mut JsonConnection,
    outgoing: &mpsc::Sender<Outgoing>,
    (key, request): (&str, &RequestId),
    reply: Reply,
) -> Step {
    let Ok(room) = outgoing.reserve().await else {
        return Step::Gone;
    };
    if let Some(chunk) = connection.receive().next().await {
        let chunk = JsonText::of(&chunk).expect("a JSON value is JSON");
        if let Some(event) = reply.form.event(Event::Message(chunk)) {
            room.send(Outgoing::Frame(text(event.to_json())));
        }
        return Step::Sent;
    }
    // Taking the output closes the input, so it is taken only when it is available.
    connection.done().await;
    let output = async { text_of(connection.output().await?, reply.form).await };
    let end = match output.await {
        Ok(output) => Event::Result(output),
        Err(error) => {
            let error = public_to_its_sender(error, key);
            log_failed_call(key, request, &error);
            Event::Error(error.to_wire(reply.exposure))
        }
    };
    room.send(Outgoing::Frame(text(end.to_json())));
    Step::Ended
}

/// The greatest number of inputs that wait for the agent.
const MAX_WAITING: usize = 16;

/// The number of waiting bytes from which on no more inputs are accepted.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Inputs in the order of their arrival. The socket does not wait until the agent takes an input, because a
/// later frame may end the conversation.
struct Intake {
    sender: Sender<Value>,
    /// The inputs, with the permits for their values.
    waiting: VecDeque<(Value, Permit)>,
    waiting_bytes: usize,
    /// The input that is being passed on. It is kept here, because dropping the waiting future must not lose
    /// it.
    handing_over: Option<BoxFuture<'static, Permit>>,
    is_closed: bool,
}

impl Intake {
    fn new(sender: Sender<Value>) -> Self {
        Self {
            sender,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            handing_over: None,
            is_closed: false,
        }
    }

    /// Returns whether one more input is accepted.
    fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING && self.waiting_bytes < MAX_WAITING_BYTES
    }

    /// Accepts an input. An input after the last is dropped.
    fn push(&mut self, input: Value, values: Permit) {
        if !self.is_closed {
            self.waiting_bytes += values.bytes();
            self.waiting.push_back((input, values));
        }
    }

    /// Announces that there are no more inputs.
    fn close(&mut self) {
        self.is_closed = true;
        self.close_sender();
    }

    /// Passes one input on and returns the permit for its values; waits forever if there is none. Dropping
    /// the future loses nothing.
    async fn hand_over(&mut self) -> Permit {
        let handing_over = match &mut self.handing_over {
            Some(handing_over) => handing_over,
            none => {
                let Some((input, values)) = self.waiting.pop_front() else {
                    return std::future::pending().await;
                };
                self.waiting_bytes -= values.bytes();
                let sender = self.sender.clone();
                none.insert(Box::pin(async move {
                    // An agent that takes no more inputs has completed or is about to; its end is sent
                    // separately.
                    let _ = sender.send(input).await;
                    values
                }))
            }
        };
        let values = handing_over.await;
        self.handing_over = None;
        self.close_sender();
        values
    }

    /// Closes the agent's input once the last input is passed on.
    fn close_sender(&mut self) {
        if self.is_closed && self.waiting.is_empty() && self.handing_over.is_none() {
            self.sender.close();
        }
    }
}
