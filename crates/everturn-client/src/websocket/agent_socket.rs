//! An agent on another machine, reached over one connection.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use everturn_agent::{
    Abort, AgentConnection, AgentInit, AgentInput, AgentOutput, AgentReply, AgentStreamChunk, AgentTask,
    AgentTransport, ChatBuilder, CustomState, GetSnapshotRequest, Snapshot, SnapshotId,
};
use everturn_core::{Connection, Context, Emitter, Inputs, Result};
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::frame::ClientFrame;
use super::line::{Conversation, Line};
use super::talk::Pace;
use crate::events::Event;
use crate::remote_agent::{Routes, abort_of};
use crate::request::decoded;
use crate::{Client, RemoteAgent};

/// An agent that is served elsewhere, reached over one WebSocket: chats, conversations of many turns, background runs and
/// aborts, all on the same connection. [`RemoteAgent::websocket`] opens it. Cloning gives another handle; the connection is
/// closed when the last one, and whatever was opened over it, is gone.
///
/// ```no_run
/// use everturn_agent::AgentInit;
/// use everturn_client::RemoteAgent;
///
/// # async fn talk() -> everturn_core::Result<()> {
/// let chef: RemoteAgent = RemoteAgent::new("https://kitchen.example/agents/chef")?;
/// let socket = chef.websocket().await?;
///
/// // A chat, as over HTTP.
/// let mut chat = socket.chat().resume("dinner").open().await?;
/// chat.run("Something with leeks?").await?;
///
/// // A conversation that stays open between its turns, as with an agent in this process.
/// let mut conversation = socket.connect(AgentInit::session("dinner"));
/// conversation.send_text("And without butter?").await?;
/// # Ok(()) }
/// ```
///
/// A connection has **one conversation at a time**: another waits until it is over. A turn of a chat is a conversation.
///
/// **Who calls** is found out when the connection is opened, from the headers of the [`Client`]; every conversation on it is
/// that caller's.
///
/// # When the connection ends
///
/// A conversation under way ends with `UNAVAILABLE` and [`STREAM_BROKEN`](crate::STREAM_BROKEN). Nothing is sent twice:
/// the agent cancels what was not detached, and what it finished nevertheless is in the session, which
/// [`Chat::read`](everturn_agent::Chat::read) loads again. The next conversation opens another connection.
///
/// Snapshots are read over HTTP.
pub struct AgentSocket<S = Value> {
    agent: RemoteAgent<S>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    routes: Arc<Routes>,
    /// The connection that was opened last.
    line: Mutex<Option<Line>>,
    /// Who has the one conversation.
    floor: Arc<Semaphore>,
    conversations: AtomicU64,
}

impl<S: CustomState> RemoteAgent<S> {
    /// Opens one connection for whole conversations; see [`AgentSocket`].
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the server offers no WebSocket; the server's own error; `UNAVAILABLE` if it cannot be reached.
    pub async fn websocket(&self) -> Result<AgentSocket<S>> {
        AgentSocket::open(self.clone()).await
    }
}

impl<S: CustomState> AgentSocket<S> {
    pub(crate) async fn open(agent: RemoteAgent<S>) -> Result<Self> {
        let shared = Shared {
            client: agent.routes.client.clone(),
            routes: Arc::clone(&agent.routes),
            line: Mutex::default(),
            floor: Arc::new(Semaphore::new(1)),
            conversations: AtomicU64::new(0),
        };
        let context = Context::current();
        context.guard(shared.line(&context)).await?;
        Ok(Self {
            agent,
            shared: Arc::new(shared),
        })
    }

    /// Opens an invocation: many turns in one conversation.
    pub fn connect(&self, init: AgentInit) -> AgentConnection<S> {
        AgentConnection::new(AgentTransport::connect(self, init, &Context::current()))
    }

    /// Begins or resumes a conversation that goes on from turn to turn. Between turns the connection is free.
    pub fn chat(&self) -> ChatBuilder<S> {
        ChatBuilder::new(Arc::new(self.clone()))
    }

    /// Runs one turn of a fresh conversation.
    ///
    /// # Errors
    /// As [`RemoteAgent::run`].
    pub async fn run(&self, input: impl Into<AgentInput>) -> Result<AgentReply<S>> {
        self.chat().run(input).await
    }

    /// Returns a handle on a background run, given the id of its snapshot.
    pub fn task(&self, id: impl Into<SnapshotId>) -> AgentTask<S> {
        AgentTask::new(Arc::new(self.clone()), Context::current(), id.into())
    }

    /// Asks the background run behind a pending snapshot to stop; `None` if there is no such snapshot. As [`RemoteAgent::abort`].
    ///
    /// # Errors
    /// What the server refuses with.
    pub async fn abort(&self, id: impl Into<SnapshotId>) -> Result<Option<Abort>> {
        AgentTransport::abort(self, id.into(), Context::current()).await
    }

    /// The agent at the other end, as it is reached over HTTP.
    pub fn agent(&self) -> &RemoteAgent<S> {
        &self.agent
    }

    /// Whether the connection is open. If it is not, the next conversation opens another.
    pub fn is_open(&self) -> bool {
        self.shared.open_line().is_some()
    }
}

impl Shared {
    fn open_line(&self) -> Option<Line> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.clone().filter(Line::is_open)
    }

    /// The connection, opened if it is not; whoever calls has the floor, or nobody else knows of this yet.
    async fn line(&self, context: &Context) -> Result<Line> {
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        let settings = &self.client.0;
        let socket = settings.open_socket(&self.routes.run, context).await?;
        let pace = Pace {
            silence: settings.silence,
            max_bytes: settings.max_bytes,
        };
        let line = Line::start(socket, pace);
        *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
        Ok(line)
    }

    /// Opens a conversation when there is no other.
    async fn begin(&self, init: &AgentInit, context: &Context) -> Result<Conversation> {
        let mut floor = Arc::clone(&self.floor).acquire_owned().await?;
        let number = self.conversations.fetch_add(1, Ordering::Relaxed);
        loop {
            match self.line(context).await?.begin(number, init, floor).await? {
                Ok(conversation) => return Ok(conversation),
                // The connection ended before anything was sent on it.
                Err(returned) => floor = returned,
            }
        }
    }

    /// Has a conversation from its beginning to its end.
    async fn converse(
        &self,
        init: AgentInit,
        mut inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        context: Context,
    ) -> Result<AgentOutput> {
        let mut conversation = self.begin(&init, &context).await?;
        let mut is_closed = false;
        // What is on its way is kept here: neither direction waits for the other.
        let mut saying: Option<BoxFuture<'static, ()>> = None;
        let mut showing: Option<BoxFuture<'static, Result<()>>> = None;
        loop {
            tokio::select! {
                input = inputs.next(), if saying.is_none() && !is_closed => {
                    is_closed = input.is_none();
                    let frame = match &input {
                        Some(input) => ClientFrame::Input(input).text()?,
                        None => ClientFrame::CLOSE.text()?,
                    };
                    saying = Some(Box::pin(conversation.speaker().say(frame)));
                }
                () = done(&mut saying) => saying = None,
                shown = done(&mut showing) => {
                    shown?;
                    showing = None;
                }
                event = conversation.next(), if showing.is_none() => match event? {
                    Event::Chunk(chunk) => {
                        let (emitter, chunk) = (emitter.clone(), decoded(chunk)?);
                        showing = Some(Box::pin(async move { emitter.send(chunk).await }));
                    }
                    Event::Output(output) => return decoded(output),
                    Event::Failure(error) => return Err(error),
                },
            }
        }
    }

    async fn stop(&self, id: SnapshotId, context: &Context) -> Result<Option<Abort>> {
        if let Some(line) = self.open_line() {
            let asking = tokio::time::timeout(self.client.0.timeout, line.abort(&id));
            let answer = context.guard(async { Ok(asking.await) }).await?;
            match answer {
                Ok(Ok(status)) => return Ok(status.map(abort_of)),
                Ok(Err(error)) if line.is_open() => return Err(error),
                // The connection did not get the answer through. Asking again does no harm.
                _ => {}
            }
        }
        self.routes.stop(id, context).await
    }
}

/// Waits for what is under way; for ever if there is nothing.
async fn done<T>(work: &mut Option<BoxFuture<'static, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

impl<S: CustomState> AgentTransport for AgentSocket<S> {
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        let shared = Arc::clone(&self.shared);
        let name = self.shared.routes.run.path();
        Connection::open(name, context, |inputs, emitter, context| async move {
            Ok(shared.converse(init, inputs, emitter, context).await?)
        })
    }

    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>> {
        Box::pin(async move { self.shared.routes.read(request, &context).await })
    }

    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>> {
        Box::pin(async move { self.shared.stop(id, &context).await })
    }
}

impl<S> Clone for AgentSocket<S> {
    fn clone(&self) -> Self {
        Self {
            agent: self.agent.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S> fmt::Debug for AgentSocket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentSocket")
            .field("url", &self.agent.url())
            .field("open", &self.shared.open_line().is_some())
            .finish_non_exhaustive()
    }
}
