//! One WebSocket connection, from its opening to its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload};
use everturn_core::{DynAction, Error, JsonCall, RuntimeError};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{Sink, SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{self, Message};

use super::conversation::{Conversation, Reply, Step};
use super::frame::{ClientFrame, Ending, text};
use super::{Stream, WebSockets};
use crate::context_provider::Provided;
use crate::correlation::Correlation;
use crate::counted_body::Held;
use crate::event::AnswerForm;
use crate::handler::Mounted;
use crate::permits::Permit;

/// How many aborts may run at once.
const MAX_ABORTS: usize = 8;

/// How many pings may remain without any answer.
const MISSED_PINGS: u32 = 3;

/// How long the client may take to read the close frame.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The caller, the agent and the settings of a connection.
pub(super) struct Socket {
    pub(super) mounted: Arc<Mounted>,
    pub(super) abort: Option<Arc<dyn DynAction>>,
    pub(super) caller: Provided,
    pub(super) correlation: Correlation,
    pub(super) form: AnswerForm,
    pub(super) settings: WebSockets,
    pub(super) held: Held,
}

/// The state of a connection.
#[derive(Default)]
struct Talk {
    conversation: Option<Conversation>,
    /// Whether there has been a conversation.
    has_begun: bool,
    aborts: FuturesUnordered<BoxFuture<'static, Value>>,
    /// Whether a pong waits in the write buffer. Nothing is read meanwhile, so that pongs do not pile up for
    /// a client that does not read them.
    owes_pong: bool,
    /// The pings and pongs since the server's last ping.
    control_frames: u32,
}

impl Talk {
    /// Returns whether one more frame of the client is accepted.
    fn has_room(&self) -> bool {
        let conversation = self.conversation.as_ref();
        self.aborts.len() < MAX_ABORTS && conversation.is_none_or(Conversation::has_room)
    }
}

impl Socket {
    /// Serves the connection until either side closes it.
    pub(super) async fn serve(self, socket: Stream) {
        let exposure = self.mounted.shared.exposure;
        let (sink, mut incoming) = socket.split();
        // One place for the conversation, which keeps it while it waits for a chunk, and one for everything
        // else.
        let (outgoing, wishes) = mpsc::channel(2);
        let mut writing = std::pin::pin!(write(sink, wishes));
        let ending = tokio::select! {
            ending = self.talk(&mut incoming, &outgoing) => ending,
            // The client is gone. Running work is dropped and thereby cancelled.
            _ = writing.as_mut() => return,
        };
        let last_words = async {
            for message in ending.last_words(exposure) {
                if outgoing.send(Outgoing::Frame(message)).await.is_err() {
                    break;
                }
            }
            drop(outgoing);
        };
        let draining = async move {
            while let Some(Ok(_)) = incoming.next().await {}
            incoming
        };
        let ended = async {
            let ((), sink, incoming) = tokio::join!(last_words, writing, draining);
            let socket = sink.and_then(|sink| incoming.reunite(sink).ok());
            if let Some(socket) = socket {
                linger(socket).await;
            }
        };
        // A client that takes longer is not reading.
        let _ = tokio::time::timeout(LAST_WORDS, ended).await;
    }

    async fn talk(&self, incoming: &mut SplitStream<Stream>, outgoing: &mpsc::Sender<Outgoing>) -> Ending {
        let handle = &self.mounted.shared.handle;
        let WebSockets {
            ping_every,
            idle_time,
            control_frames,
            ..
        } = self.settings;
        let mut pings = interval_at(Instant::now() + ping_every, ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut received, mut active) = (Instant::now(), Instant::now());
        let mut talk = Talk::default();
        let mut is_draining = false;
        loop {
            // A requested abort is answered before the connection closes.
            if is_draining && talk.conversation.is_none() && talk.aborts.is_empty() {
                return Ending::going_away();
            }
            let has_room = talk.has_room();
            tokio::select! {
                () = handle.draining().cancelled(), if !is_draining => {
                    is_draining = true;
                    // The running turn may end; no other turn starts.
                    talk.conversation.as_mut().map(Conversation::close);
                }
                // Backpressure: while inputs wait for the agent, the client's next frames stay in the
                // network.
                message = incoming.next(), if has_room && !talk.owes_pong => {
                    received = Instant::now();
                    match self.hear(message, &mut talk).await {
                        Ok(Received::Frame) => active = received,
                        Ok(Received::ControlFrame) if talk.control_frames > control_frames => {
                            let message = format!("more than {control_frames} pings and pongs at once");
                            return Ending::fault(CloseCode::Policy, message);
                        }
                        Ok(Received::ControlFrame) => {}
                        Err(ending) => return ending,
                    }
                }
                room = outgoing.reserve(), if talk.owes_pong => {
                    let Ok(room) = room else { return Ending::disconnected() };
                    room.send(Outgoing::Pong);
                    talk.owes_pong = false;
                }
                step = step(&mut talk.conversation, outgoing) => match step {
                    Step::HandedOver => {}
                    Step::Sent => active = Instant::now(),
                    Step::Ended => {
                        active = Instant::now();
                        talk.conversation = None;
                    }
                    Step::Gone => return Ending::disconnected(),
                },
                Some(aborted) = talk.aborts.next() => {
                    if outgoing.send(Outgoing::Frame(text(json!({ "aborted": aborted }).to_string()))).await.is_err() {
                        return Ending::disconnected();
                    }
                }
                _ = pings.tick() => {
                    talk.control_frames = 0;
                    if !has_room {
                        // The client's frames are not being read now.
                        received = Instant::now();
                    }
                    // A client that vanished without closing would otherwise hold its turn forever.
                    if received.elapsed() > ping_every * MISSED_PINGS {
                        return Ending::silence("there was no answer to pings");
                    }
                    if active.elapsed() > idle_time {
                        return Ending::silence("the connection was silent for too long");
                    }
                    // Another frame on its way serves as a sign of life too.
                    let _ = outgoing.try_send(Outgoing::Frame(Message::Ping(Vec::new().into())));
                }
            }
        }
    }

    /// Handles a frame of the client.
    async fn hear(
        &self,
        message: Option<Result<Message, tungstenite::Error>>,
        talk: &mut Talk,
    ) -> Result<Received, Ending> {
        match message {
            Some(Ok(Message::Text(text))) => {
                let limits = self.mounted.shared.limits.clone();
                let bytes = Bytes::from(text.clone());
                let size = limits.parsed_size(&bytes).await;
                let size = size.map_err(|error| Ending::fault(CloseCode::Policy, error.message()))?;
                let values = self.held.permit.hold(bytes.len() + size);
                let values = values.map_err(Ending::exhausted)?;
                let parse = move || ClientFrame::parse(&text)?.checked(&limits);
                let is_heavy = bytes.len() > HEAVY;
                let frame = if is_heavy { offload(parse).await } else { parse() }?;
                self.take(frame, values, talk)?;
                Ok(Received::Frame)
            }
            Some(Ok(Message::Binary(_))) => {
                let message = "frames are text; this one is binary";
                Err(Ending::fault(CloseCode::Unsupported, message))
            }
            Some(Ok(frame @ (Message::Ping(_) | Message::Pong(_)))) => {
                talk.owes_pong = matches!(frame, Message::Ping(_));
                talk.control_frames += 1;
                Ok(Received::ControlFrame)
            }
            Some(Err(tungstenite::Error::Capacity(_))) => {
                let limit = self.mounted.shared.limits.body_bytes;
                let message = format!("a frame may have {limit} bytes");
                Err(Ending::fault(CloseCode::Size, message))
            }
            None | Some(Err(_) | Ok(Message::Close(_) | Message::Frame(_))) => Err(Ending::disconnected()),
        }
    }

    fn take(&self, frame: ClientFrame, values: Permit, talk: &mut Talk) -> Result<(), Ending> {
        let Talk {
            conversation,
            has_begun,
            aborts,
            ..
        } = talk;
        match (frame, conversation) {
            (ClientFrame::Init(_), Some(_)) => Err(Ending::fault(
                CloseCode::Policy,
                "a conversation is under way: wait for its end before you open another",
            )),
            (ClientFrame::Init(init), none) => {
                // A new context for each conversation: cancelling one must not reach the next.
                let context = self.mounted.context(self.caller.clone(), &self.correlation);
                let reply = Reply {
                    form: self.form,
                    exposure: self.mounted.shared.exposure,
                };
                let action = self.mounted.action.as_ref();
                *none = Some(Conversation::open(action, init, values, &context, reply));
                *has_begun = true;
                Ok(())
            }
            (ClientFrame::Input(input), Some(conversation)) => {
                conversation.input(input, values);
                Ok(())
            }
            (ClientFrame::Input(_), None) if !*has_begun => Err(Ending::fault(
                CloseCode::Policy,
                r#"no conversation is open: send {"init": …} first"#,
            )),
            (ClientFrame::Close(_), Some(conversation)) => {
                conversation.close();
                Ok(())
            }
            (ClientFrame::Cancel(_), Some(conversation)) => {
                conversation.cancel();
                Ok(())
            }
            // The conversation ended while the frame was on its way.
            (ClientFrame::Input(_) | ClientFrame::Close(_) | ClientFrame::Cancel(_), None) => Ok(()),
            (ClientFrame::Abort(id), _) => {
                aborts.push(self.abort(id));
                Ok(())
            }
        }
    }

    /// Aborts a background run and returns the answer.
    fn abort(&self, id: String) -> BoxFuture<'static, Value> {
        let exposure = self.mounted.shared.exposure;
        let context = self.mounted.context(self.caller.clone(), &self.correlation);
        let Some(action) = self.abort.clone() else {
            let error = Error::unimplemented("this agent has no background runs to abort").with_public();
            return Box::pin(std::future::ready(failed(&id, &error.to_wire(exposure))));
        };
        Box::pin(async move {
            let call = JsonCall {
                input: Some(json!({ "snapshotId": id })),
                context,
                ..JsonCall::default()
            };
            match action.run_json(call).await {
                Ok(aborted) => aborted,
                Err(error) => failed(&id, &error.to_wire(exposure)),
            }
        })
    }
}

/// A received frame.
enum Received {
    /// A text.
    Frame,
    /// A sign of life.
    ControlFrame,
}

fn failed(id: &str, error: &RuntimeError) -> Value {
    json!({ "snapshotId": id, "error": error })
}

async fn step(conversation: &mut Option<Conversation>, outgoing: &mpsc::Sender<Outgoing>) -> Step {
    match conversation {
        Some(conversation) => conversation.step(outgoing).await,
        None => std::future::pending().await,
    }
}

/// Reads and discards the client's remaining data. If the connection were closed with unread data, the
/// operating system would also discard the last frames to the client.
async fn linger(socket: Stream) {
    let mut io = socket.into_inner();
    if io.shutdown().await.is_ok() {
        let mut discarded = [0; 4096];
        while io.read(&mut discarded).await.is_ok_and(|read| read > 0) {}
    }
}

/// How many bytes of a message are written in one frame. Longer messages are fragmented, so that the write
/// buffer has a bound that does not depend on what agents say.
const FRAGMENT: usize = 64 * 1024;

/// How many bytes may wait to be written: a fragment, and pongs.
const WRITE_BUFFER: usize = FRAGMENT + 16 * 1024;

/// How much is read and written at once.
const BUFFER: usize = 16 * 1024;

/// Returns the bounds of a connection's buffers, for messages of at most `max_message` bytes.
pub(super) fn buffers(max_message: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message))
}

/// A request of the side that talks to the side that writes.
#[derive(Debug)]
pub(super) enum Outgoing {
    Frame(Message),
    /// The pong for a ping that was read is to leave the write buffer.
    Pong,
}

/// Writes frames until there are no more, and gives the connection back; `None` if the client is gone.
async fn write(
    mut sink: SplitSink<Stream, Message>,
    mut wishes: mpsc::Receiver<Outgoing>,
) -> Option<SplitSink<Stream, Message>> {
    while let Some(wish) = wishes.recv().await {
        let written = match wish {
            Outgoing::Frame(Message::Text(text)) if text.len() > FRAGMENT => {
                send_fragments(&mut sink, text.into()).await
            }
            Outgoing::Frame(frame) => sink.send(frame).await,
            Outgoing::Pong => sink.flush().await,
        };
        written.ok()?;
    }
    Some(sink)
}

async fn send_fragments(
    sink: &mut (impl Sink<Message, Error = tungstenite::Error> + Unpin),
    mut text: Bytes,
) -> Result<(), tungstenite::Error> {
    let mut opcode = OpCode::Data(Data::Text);
    while !text.is_empty() {
        let fragment = text.split_to(text.len().min(FRAGMENT));
        let frame = Frame::message(fragment, opcode, text.is_empty());
        sink.send(Message::Frame(frame)).await?;
        opcode = OpCode::Data(Data::Continue);
    }
    Ok(())
}
