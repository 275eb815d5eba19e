//! The handle on a connection, for the conversations that use it.

use everturn_agent::{AgentInit, SnapshotId, SnapshotStatus};
use everturn_core::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::frame::ClientFrame;
use super::handshake::Socket;
use super::mailbox::{Inbox, Mailbox, mailbox};
use super::talk::{Pace, Talk, unseen};
use crate::events::Event;

/// The capacity of the queue of commands.
const WAITING: usize = 4;

/// A command to the task that owns the connection.
pub(super) enum Command {
    /// Opens a conversation.
    Begin(Opening),
    /// Sends a frame in the conversation with that number, unless it is over.
    Say { number: u64, frame: String },
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
    pub(super) events: Mailbox,
    /// The permit for the one conversation, held until it is over.
    pub(super) floor: OwnedSemaphorePermit,
}

/// A handle on a connection. Cloning is cheap; the connection is closed when the last handle is dropped.
#[derive(Debug, Clone)]
pub(super) struct Line(mpsc::Sender<Command>);

impl Line {
    pub(super) fn start(socket: Socket, pace: Pace) -> Self {
        let (commands, queue) = mpsc::channel(WAITING);
        tokio::spawn(Talk::new(queue, pace).run(socket));
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
        floor: OwnedSemaphorePermit,
    ) -> Result<Result<Conversation, OwnedSemaphorePermit>> {
        let init = ClientFrame::Init(init).text()?;
        let (events, received) = mailbox();
        let opening = Opening {
            number,
            init,
            events,
            floor,
        };
        Ok(match self.0.send(Command::Begin(opening)).await {
            Ok(()) => Ok(Conversation {
                number,
                line: self.clone(),
                events: received,
            }),
            Err(mpsc::error::SendError(Command::Begin(opening))) => Err(opening.floor),
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
    line: Line,
    events: Inbox,
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
    pub(super) fn speaker(&self) -> Speaker {
        Speaker {
            number: self.number,
            line: self.line.clone(),
        }
    }
}

/// Sends frames in a conversation.
#[derive(Debug, Clone)]
pub(super) struct Speaker {
    number: u64,
    line: Line,
}

impl Speaker {
    /// Sends a frame once there is room. A frame that comes too late is dropped: the conversation's end says why.
    pub(super) async fn say(self, frame: String) {
        let number = self.number;
        let _ = self.line.0.send(Command::Say { number, frame }).await;
    }
}

pub(super) fn closed() -> Error {
    Error::unavailable("the connection is closed")
}
