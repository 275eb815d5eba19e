//! The handle on a connection, for the conversations that use it.

use everturn_agent::{AgentInit, SnapshotId, SnapshotStatus};
use everturn_core::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::connection_task::{ConnectionTask, Limits, unseen};
use super::event_queue::{EventReceiver, EventSender, event_queue};
use super::frame::ClientFrame;
use super::handshake::Socket;
use crate::events::Event;

/// The capacity of the command queue.
const WAITING: usize = 4;

/// A command to the task that owns the connection.
pub(super) enum Command {
    /// Opens a conversation.
    Begin(Opening),
    /// Sends a frame in the conversation with that number, unless it has ended.
    Send { number: u64, frame: String },
    /// Aborts a background run.
    Abort {
        id: String,
        frame: String,
        reply: oneshot::Sender<Result<Option<SnapshotStatus>>>,
    },
}

/// A conversation to open.
pub(super) struct Opening {
    pub(super) number: u64,
    pub(super) init: String,
    pub(super) events: EventSender,
    /// The permit for the only conversation, held until the conversation ends.
    pub(super) permit: OwnedSemaphorePermit,
}

/// A handle on a connection. Cloning is cheap; the connection is closed when the last handle is dropped.
#[derive(Debug, Clone)]
pub(super) struct ConnectionHandle(mpsc::Sender<Command>);

impl ConnectionHandle {
    pub(super) fn start(socket: Socket, limits: Limits) -> Self {
        let (commands, queue) = mpsc::channel(WAITING);
        tokio::spawn(ConnectionTask::new(queue, limits).run(socket));
        Self(commands)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.0.is_closed()
    }

    /// Opens a conversation. If the connection is closed, nothing is sent and the permit is returned.
    ///
    /// # Errors
    /// `INTERNAL` if the init has no JSON form.
    pub(super) async fn begin(
        &self,
        number: u64,
        init: &AgentInit,
        permit: OwnedSemaphorePermit,
    ) -> Result<Result<Conversation, OwnedSemaphorePermit>> {
        let init = ClientFrame::Init(init).text()?;
        let (events, received) = event_queue();
        let opening = Opening {
            number,
            init,
            events,
            permit,
        };
        Ok(match self.0.send(Command::Begin(opening)).await {
            Ok(()) => Ok(Conversation {
                number,
                connection: self.clone(),
                events: received,
            }),
            Err(mpsc::error::SendError(Command::Begin(opening))) => Err(opening.permit),
            Err(_) => return Err(closed()),
        })
    }

    /// Aborts a background run; `None` if there is no such run.
    ///
    /// # Errors
    /// The error of the server; `UNAVAILABLE` if the connection ends before the answer.
    pub(super) async fn abort(&self, id: &SnapshotId) -> Result<Option<SnapshotStatus>> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Abort {
            id: id.as_str().to_owned(),
            frame: ClientFrame::Abort(id.as_str()).text()?,
            reply,
        };
        self.0.send(command).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// An open conversation. Dropping it cancels it.
#[derive(Debug)]
pub(super) struct Conversation {
    number: u64,
    connection: ConnectionHandle,
    events: EventReceiver,
}

impl Conversation {
    /// Returns the next event. An output or a failure is the last event: do not call this again after it.
    ///
    /// # Errors
    /// `UNAVAILABLE` with [`STREAM_BROKEN`](crate::STREAM_BROKEN) if the connection ends first.
    pub(super) async fn next(&mut self) -> Result<Event> {
        let next = self.events.take().await;
        next.unwrap_or_else(|| Err(unseen(&closed())))
    }

    /// Returns a handle for sending that does not borrow the conversation.
    pub(super) fn frame_sender(&self) -> FrameSender {
        FrameSender {
            number: self.number,
            connection: self.connection.clone(),
        }
    }
}

/// Sends frames in a conversation.
#[derive(Debug, Clone)]
pub(super) struct FrameSender {
    number: u64,
    connection: ConnectionHandle,
}

impl FrameSender {
    /// Sends a frame once the queue has room. A frame sent after the conversation ended is dropped; the end
    /// of the conversation reports the cause.
    pub(super) async fn send(self, frame: String) {
        let number = self.number;
        let _ = self.connection.0.send(Command::Send { number, frame }).await;
    }
}

pub(super) fn closed() -> Error {
    Error::unavailable("the connection is closed")
}
