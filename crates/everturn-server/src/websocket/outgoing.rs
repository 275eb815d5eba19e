//! The way from the server to the client of a WebSocket.

use bytes::Bytes;
use futures::stream::SplitSink;
use futures::{Sink, SinkExt};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::Stream;

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
pub(super) async fn write(
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
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    mut text: Bytes,
) -> Result<(), Error> {
    let mut opcode = OpCode::Data(Data::Text);
    while !text.is_empty() {
        let fragment = text.split_to(text.len().min(FRAGMENT));
        let frame = Frame::message(fragment, opcode, text.is_empty());
        sink.send(Message::Frame(frame)).await?;
        opcode = OpCode::Data(Data::Continue);
    }
    Ok(())
}
