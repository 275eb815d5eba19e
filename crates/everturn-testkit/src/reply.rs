//! One reply of a scripted model.

use std::time::Duration;

use everturn_ai::{Content, Message, ModelResponse, ModelResponseChunk, Part, ToolRequest};
use everturn_core::{Emitter, Error, Result};

use crate::{Gate, words};

/// One reply of a [`ScriptedModel`](crate::ScriptedModel): chunks and pauses, in order, and an end.
///
/// ```
/// use std::time::Duration;
///
/// use everturn_core::Error;
/// use everturn_testkit::Reply;
///
/// let _streamed = Reply::text("Leek soup.").chunk("Leek ").pause(Duration::from_secs(1)).chunk("soup.");
/// let _broken_off = Reply::error(Error::unavailable("overloaded")).chunk("Leek ");
/// ```
#[derive(Debug, Clone)]
pub struct Reply {
    steps: Vec<Step>,
    ending: Ending,
}

#[derive(Debug, Clone)]
enum Step {
    Chunk(ModelResponseChunk),
    Pause(Duration),
    Wait(Gate),
}

#[derive(Debug, Clone)]
enum Ending {
    Response(Box<ModelResponse>),
    Error(Error),
    Panic(String),
    Never,
}

impl Reply {
    fn ending(ending: Ending) -> Self {
        Self {
            steps: Vec::new(),
            ending,
        }
    }

    /// Replies with a response.
    pub fn response(response: ModelResponse) -> Self {
        Self::ending(Ending::Response(Box::new(response)))
    }

    /// Replies with this content.
    pub fn content(content: impl Into<Content>) -> Self {
        Self::response(ModelResponse::new(Message::model(content)))
    }

    /// Replies with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content(text.into())
    }

    /// Requests a tool call.
    pub fn tool(name: impl Into<String>, input: impl Into<serde_json::Value>) -> Self {
        Self::tools([ToolRequest::new(name, input)])
    }

    /// Requests several tool calls.
    pub fn tools(requests: impl IntoIterator<Item = ToolRequest>) -> Self {
        Self::content(requests.into_iter().map(Part::from).collect::<Content>())
    }

    /// Fails with an error.
    pub fn error(error: Error) -> Self {
        Self::ending(Ending::Error(error))
    }

    /// Panics inside the model.
    pub fn panic(message: impl Into<String>) -> Self {
        Self::ending(Ending::Panic(message.into()))
    }

    /// Never replies; only cancellation or a deadline ends the call.
    pub fn never() -> Self {
        Self::ending(Ending::Never)
    }

    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Streams a chunk.
    pub fn chunk(self, chunk: impl Into<ModelResponseChunk>) -> Self {
        self.step(Step::Chunk(chunk.into()))
    }

    /// Streams several chunks.
    pub fn chunks(self, chunks: impl IntoIterator<Item = impl Into<ModelResponseChunk>>) -> Self {
        chunks.into_iter().fold(self, Self::chunk)
    }

    /// Streams the reply itself: text word by word, other parts whole. A failure has no content to stream.
    pub fn streamed(self) -> Self {
        let message = match &self.ending {
            Ending::Response(response) => response.message.clone(),
            _ => None,
        };
        let chunks = message
            .map(|message| words::chunks(message.content()))
            .unwrap_or_default();
        self.chunks(chunks)
    }

    /// Waits for this long, by tokio's clock.
    pub fn pause(self, duration: Duration) -> Self {
        self.step(Step::Pause(duration))
    }

    /// Waits until the test opens the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.step(Step::Wait(gate.clone()))
    }

    pub(crate) async fn play(self, emitter: &Emitter<ModelResponseChunk>) -> Result<ModelResponse> {
        for step in self.steps {
            match step {
                Step::Chunk(chunk) => emitter.send(chunk).await?,
                Step::Pause(duration) => tokio::time::sleep(duration).await,
                Step::Wait(gate) => gate.pass().await,
            }
        }
        match self.ending {
            Ending::Response(response) => Ok(*response),
            Ending::Error(error) => Err(error),
            Ending::Panic(message) => panic!("{message}"),
            Ending::Never => std::future::pending().await,
        }
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<ModelResponse> for Reply {
    fn from(response: ModelResponse) -> Self {
        Self::response(response)
    }
}

impl From<Message> for Reply {
    fn from(message: Message) -> Self {
        Self::response(ModelResponse::new(message))
    }
}

impl From<ToolRequest> for Reply {
    fn from(request: ToolRequest) -> Self {
        Self::tools([request])
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::error(error)
    }
}
