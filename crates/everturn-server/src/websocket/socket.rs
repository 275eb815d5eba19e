//! One WebSocket connection, from its opening to its end.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, close_code};
use everturn_core::{DynAction, Error, JsonCall, RuntimeError};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::conversation::{Conversation, Step};
use super::frame::{ClientFrame, Ending, text};
use super::options::WebSockets;
use crate::context_provider::Provided;
use crate::handler::Mounted;

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
    pub(super) settings: WebSockets,
}

/// The state of a connection.
#[derive(Default)]
struct Talk {
    conversation: Option<Conversation>,
    /// Whether there has been a conversation.
    has_begun: bool,
    aborts: FuturesUnordered<BoxFuture<'static, Value>>,
}

impl Talk {
    fn has_room(&self) -> bool {
        let conversation = self.conversation.as_ref();
        self.aborts.len() < MAX_ABORTS && conversation.is_none_or(Conversation::has_room)
    }
}

impl Socket {
    /// Serves the connection until either side closes it.
    pub(super) async fn serve(self, socket: WebSocket) {
        let exposure = self.mounted.shared.exposure;
        let (sink, mut incoming) = socket.split();
        let (outgoing, frames) = mpsc::channel(1);
        let mut writing = std::pin::pin!(write(sink, frames));
        let ending = tokio::select! {
            ending = self.talk(&mut incoming, &outgoing) => ending,
            // The client is gone. Running work is dropped and thereby cancelled.
            () = writing.as_mut() => return,
        };
        let last_words = async {
            for message in ending.last_words(exposure) {
                if outgoing.send(message).await.is_err() {
                    break;
                }
            }
            drop(outgoing);
        };
        // Frames that the client still sends are read; otherwise the system may discard what the client has not read yet.
        let draining = async { while let Some(Ok(_)) = incoming.next().await {} };
        let ended = async { tokio::join!(last_words, writing, draining) };
        // A client that takes longer is not reading.
        let _ = tokio::time::timeout(LAST_WORDS, ended).await;
    }

    async fn talk(&self, incoming: &mut SplitStream<WebSocket>, outgoing: &mpsc::Sender<Message>) -> Ending {
        let handle = &self.mounted.shared.handle;
        let WebSockets {
            ping_every,
            idle_time,
            ..
        } = self.settings;
        let mut pings = interval_at(Instant::now() + ping_every, ping_every);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut active) = (Instant::now(), Instant::now());
        let mut talk = Talk::default();
        let mut is_draining = false;
        loop {
            if is_draining && talk.conversation.is_none() && talk.aborts.is_empty() {
                return Ending::going_away();
            }
            let has_room = talk.has_room();
            tokio::select! {
                () = handle.draining().cancelled(), if !is_draining => {
                    is_draining = true;
                    // The running turn may end; no other begins.
                    talk.conversation.as_mut().map(Conversation::close);
                }
                message = incoming.next(), if has_room => {
                    heard = Instant::now();
                    match self.hear(message, &mut talk) {
                        Ok(Heard::Frame) => active = heard,
                        Ok(Heard::Sign) => {}
                        Err(ending) => return ending,
                    }
                }
                step = step(&mut talk.conversation, outgoing) => match step {
                    Step::HandedOver => {}
                    Step::Told => active = Instant::now(),
                    Step::Ended => {
                        active = Instant::now();
                        talk.conversation = None;
                    }
                    Step::Gone => return Ending::gone(),
                },
                Some(aborted) = talk.aborts.next() => {
                    if outgoing.send(text(json!({ "aborted": aborted }).to_string())).await.is_err() {
                        return Ending::gone();
                    }
                }
                _ = pings.tick() => {
                    if !has_room {
                        // The client's frames are not being read now.
                        heard = Instant::now();
                    }
                    if heard.elapsed() > ping_every * MISSED_PINGS {
                        return Ending::silence("there was no answer to pings");
                    }
                    if active.elapsed() > idle_time {
                        return Ending::silence("nothing was said for too long");
                    }
                    // Another frame on its way serves as a sign of life too.
                    let _ = outgoing.try_send(Message::Ping(Vec::new().into()));
                }
            }
        }
    }

    /// Handles a frame of the client.
    fn hear(&self, message: Option<Result<Message, axum::Error>>, talk: &mut Talk) -> Result<Heard, Ending> {
        match message {
            Some(Ok(Message::Text(text))) => {
                let frame = ClientFrame::parse(&text)?;
                self.take(frame, text.len(), talk)?;
                Ok(Heard::Frame)
            }
            Some(Ok(Message::Binary(_))) => {
                let message = "frames are text; this one is binary";
                Err(Ending::fault(close_code::UNSUPPORTED, message))
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(Heard::Sign),
            Some(Err(error)) if is_too_large(&error) => {
                let limit = self.mounted.shared.limits.body_bytes;
                let message = format!("a frame may have {limit} bytes");
                Err(Ending::fault(close_code::SIZE, message))
            }
            None | Some(Err(_) | Ok(Message::Close(_))) => Err(Ending::gone()),
        }
    }

    fn take(&self, frame: ClientFrame, bytes: usize, talk: &mut Talk) -> Result<(), Ending> {
        let Talk {
            conversation,
            has_begun,
            aborts,
        } = talk;
        match (frame, conversation) {
            (ClientFrame::Init(_), Some(_)) => Err(Ending::fault(
                close_code::POLICY,
                "a conversation is under way: wait for its end before you open another",
            )),
            (ClientFrame::Init(init), none) => {
                let context = self.mounted.context(self.caller.clone());
                let (action, exposure) = (self.mounted.action.as_ref(), self.mounted.shared.exposure);
                *none = Some(Conversation::open(action, init, &context, exposure));
                *has_begun = true;
                Ok(())
            }
            (ClientFrame::Input(input), Some(conversation)) => {
                conversation.input(input, bytes);
                Ok(())
            }
            (ClientFrame::Input(_), None) if !*has_begun => Err(Ending::fault(
                close_code::POLICY,
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
        let context = self.mounted.context(self.caller.clone());
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
enum Heard {
    /// A text.
    Frame,
    /// A sign of life.
    Sign,
}

fn failed(id: &str, error: &RuntimeError) -> Value {
    json!({ "snapshotId": id, "error": error })
}

async fn step(conversation: &mut Option<Conversation>, outgoing: &mpsc::Sender<Message>) -> Step {
    match conversation {
        Some(conversation) => conversation.step(outgoing).await,
        None => std::future::pending().await,
    }
}

/// Writes frames until there are no more or the client is gone.
async fn write(mut sink: SplitSink<WebSocket, Message>, mut frames: mpsc::Receiver<Message>) {
    while let Some(frame) = frames.recv().await {
        if sink.send(frame).await.is_err() {
            return;
        }
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<tungstenite::Error>())
        .is_some_and(|error| matches!(error, tungstenite::Error::Capacity(_)))
}
