//! The task that owns a connection.
//!
//! The task relays frames in both directions and answers pings with or without a conversation. It stops
//! reading while the event queue of the conversation is full.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use everturn_agent::SnapshotStatus;
use everturn_core::{Error, Result};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

use super::connection_handle::{Command, Opening};
use super::event_queue::EventSender;
use super::frame::{ClientFrame, ServerFrame};
use super::handshake::Socket;
use crate::event_stream::STREAM_BROKEN;
use crate::events::Event;
use crate::request::too_large;

/// The interval of pings, which show the server that the client is alive even while it does not read.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long sending the close frame may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The limits of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// How long the server may send nothing, not even the answer to a ping.
    pub(super) silence: Duration,
    /// The largest accepted frame.
    pub(super) max_bytes: usize,
}

/// The state of a connection.
pub(super) struct ConnectionTask {
    commands: mpsc::Receiver<Command>,
    conversation: Option<Current>,
    aborts: HashMap<String, VecDeque<oneshot::Sender<Result<Option<SnapshotStatus>>>>>,
    limits: Limits,
}

/// The open conversation.
struct Current {
    number: u64,
    /// `None` once the conversation was abandoned. The task still waits for its end before another begins.
    events: Option<EventSender>,
    /// The permit that the next conversation waits for.
    _permit: OwnedSemaphorePermit,
}

/// The cause of a connection's end.
enum Ending {
    /// All handles were dropped.
    Unused,
    /// The server or the network ended the connection.
    Lost(Error),
}

impl ConnectionTask {
    pub(super) fn new(commands: mpsc::Receiver<Command>, limits: Limits) -> Self {
        Self {
            commands,
            conversation: None,
            aborts: HashMap::new(),
            limits,
        }
    }

    /// Runs until either side ends the connection.
    pub(super) async fn run(mut self, socket: Socket) {
        let (sink, mut incoming) = socket.split();
        let (outgoing, frames) = mpsc::channel(1);
        let mut writing = std::pin::pin!(write(sink, frames));
        let ending = tokio::select! {
            // Polled in order, so that the server's last frames are read before a failing write ends the
            // connection.
            biased;
            ending = self.relay(&mut incoming, &outgoing) => ending,
            error = writing.as_mut() => Ending::Lost(error),
        };
        match ending {
            Ending::Lost(error) => self.fail_all(&error),
            Ending::Unused => {
                let closing = async {
                    let close = CloseFrame {
                        code: CloseCode::Normal,
                        reason: "".into(),
                    };
                    let _ = outgoing.send(Message::Close(Some(close))).await;
                    drop(outgoing);
                };
                let draining = async { while let Some(Ok(_)) = incoming.next().await {} };
                let ended = async { tokio::join!(closing, writing, draining) };
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, ended).await;
            }
        }
    }

    async fn relay(
        &mut self,
        incoming: &mut SplitStream<Socket>,
        outgoing: &mpsc::Sender<Message>,
    ) -> Ending {
        let ping_every = PING_EVERY
            .min(self.limits.silence / 3)
            .max(Duration::from_millis(1));
        let mut pings = interval_at(Instant::now() + ping_every, ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        loop {
            tokio::select! {
                next = next_outgoing(&mut self.commands, self.conversation.as_ref(), outgoing) => match next {
                    Some((Outgoing::Command(command), room)) => self.execute(command, room),
                    Some((Outgoing::Cancel, room)) => self.cancel(room),
                    None => return Ending::Unused,
                },
                message = next_message(self.conversation.as_ref(), incoming) => {
                    last_received = Instant::now();
                    if let Err(error) = self.take(message) {
                        return Ending::Lost(error);
                    }
                }
                _ = pings.tick() => {
                    if self.is_full() {
                        // Silence is not measured while the queue is full and nothing is read.
                        last_received = Instant::now();
                    }
                    if last_received.elapsed() > self.limits.silence {
                        let silence = self.limits.silence;
                        return Ending::Lost(Error::unavailable(format!("the server sent nothing for {silence:?}")));
                    }
                    // A full queue means that other frames are being sent, which show that the client is
                    // alive.
                    let _ = outgoing.try_send(Message::Ping(Vec::new().into()));
                }
            }
        }
    }

    /// Returns whether the queue of the conversation is full.
    fn is_full(&self) -> bool {
        let events = self
            .conversation
            .as_ref()
            .and_then(|current| current.events.as_ref());
        events.is_some_and(|events| !events.has_room())
    }

    fn execute(&mut self, command: Command, room: mpsc::Permit<'_, Message>) {
        match command {
            Command::Begin(Opening {
                number,
                init,
                events,
                permit,
            }) => {
                self.conversation = Some(Current {
                    number,
                    events: Some(events),
                    _permit: permit,
                });
                room.send(Message::text(init));
            }
            Command::Send { number, frame } => {
                let current = self.conversation.as_ref();
                if current.is_some_and(|current| current.number == number && current.events.is_some()) {
                    room.send(Message::text(frame));
                }
            }
            Command::Abort { id, frame, reply } => {
                self.aborts.entry(id).or_default().push_back(reply);
                room.send(Message::text(frame));
            }
        }
    }

    /// Cancels an abandoned conversation.
    fn cancel(&mut self, room: mpsc::Permit<'_, Message>) {
        if let Some(current) = &mut self.conversation {
            current.events = None;
        }
        let cancel = ClientFrame::CANCEL.text().expect("a boolean has a JSON form");
        room.send(Message::text(cancel));
    }

    /// Handles a message of the server.
    ///
    /// # Errors
    /// The cause of the connection's end.
    fn take(&mut self, message: Option<Result<Message, tungstenite::Error>>) -> Result<()> {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Ok(()),
            Some(Ok(Message::Binary(_))) => return Err(Error::unavailable("the server sent a binary frame")),
            Some(Ok(Message::Close(close))) => return Err(closed_by_server(close.as_ref())),
            Some(Err(tungstenite::Error::Capacity(_))) => return Err(too_large(self.limits.max_bytes)),
            Some(Err(error)) => return Err(Error::unavailable(format!("the connection broke: {error}"))),
            None => return Err(Error::unavailable("the server closed the connection")),
        };
        match ServerFrame::parse(&text)? {
            ServerFrame::Event(event) => {
                let is_last = !matches!(event, Event::Chunk(_));
                if let Some(events) = self
                    .conversation
                    .as_ref()
                    .and_then(|current| current.events.as_ref())
                {
                    events.put(Ok(event), text.len());
                }
                if is_last {
                    self.conversation = None;
                }
            }
            ServerFrame::Aborted(aborted) => {
                // An answer names only the run. Aborts of one run are answered in the order of the requests.
                let waiting = self.aborts.get_mut(&aborted.id).and_then(VecDeque::pop_front);
                if let Some(reply) = waiting {
                    // The caller of the abort may have stopped waiting.
                    let _ = reply.send(aborted.outcome);
                }
            }
            ServerFrame::Unknown => {}
        }
        Ok(())
    }

    /// Passes the error to the conversation and to all pending aborts.
    fn fail_all(mut self, error: &Error) {
        // The channel is closed first: later commands fail at their sender, and earlier ones are drained
        // below.
        self.commands.close();
        for reply in self.aborts.into_values().flatten() {
            let _ = reply.send(Err(error.clone()));
        }
        if let Some(events) = self.conversation.and_then(|current| current.events) {
            events.put(Err(unseen(error)), 0);
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Begin(opening) => opening.events.put(Err(unseen(error)), 0),
                Command::Abort { reply, .. } => drop(reply.send(Err(error.clone()))),
                Command::Send { .. } => {}
            }
        }
    }
}

/// The next thing to send.
enum Outgoing {
    Command(Command),
    /// A cancellation of the abandoned conversation.
    Cancel,
}

/// Returns the next thing to send once there is room for it; `None` after the last.
async fn next_outgoing<'a>(
    commands: &mut mpsc::Receiver<Command>,
    current: Option<&Current>,
    outgoing: &'a mpsc::Sender<Message>,
) -> Option<(Outgoing, mpsc::Permit<'a, Message>)> {
    // The permit is reserved before a command is received, so a received command is always sent. Dropping
    // this future at either await loses nothing.
    let Ok(room) = outgoing.reserve().await else {
        // The writer reports the error.
        return std::future::pending().await;
    };
    tokio::select! {
        command = commands.recv() => Some((Outgoing::Command(command?), room)),
        () = abandoned(current) => Some((Outgoing::Cancel, room)),
    }
}

/// Waits until the conversation is abandoned.
async fn abandoned(current: Option<&Current>) {
    match current.and_then(|current| current.events.as_ref()) {
        Some(events) => events.abandoned().await,
        None => std::future::pending().await,
    }
}

/// Receives the server's next message once the queue has room for it.
async fn next_message(
    current: Option<&Current>,
    incoming: &mut SplitStream<Socket>,
) -> Option<Result<Message, tungstenite::Error>> {
    if let Some(events) = current.and_then(|current| current.events.as_ref()) {
        events.room().await;
    }
    incoming.next().await
}

/// Writes frames until there are no more. Returns why it ended if the connection ended first.
async fn write(mut sink: SplitSink<Socket, Message>, mut frames: mpsc::Receiver<Message>) -> Error {
    while let Some(frame) = frames.recv().await {
        if let Err(error) = sink.send(frame).await {
            return Error::unavailable(format!("the connection broke: {error}"));
        }
    }
    super::connection_handle::closed()
}

fn closed_by_server(close: Option<&CloseFrame>) -> Error {
    let why = close.map(|close| format!(" ({} {})", u16::from(close.code), close.reason.trim()));
    let why = why.unwrap_or_default();
    Error::unavailable(format!("the server closed the connection{why}"))
}

/// Returns the error of a conversation whose outcome is unknown because of `cause`.
pub(super) fn unseen(cause: &Error) -> Error {
    Error::unavailable(format!(
        "{}; the outcome is unknown: read the session to see whether the turn was saved",
        cause.message()
    ))
    .with_reason(STREAM_BROKEN)
}
