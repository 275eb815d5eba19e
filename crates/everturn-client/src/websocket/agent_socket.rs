//! A remote agent over one WebSocket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use everturn_agent::{
    Abort, AgentConnection, AgentInit, AgentInput, AgentOutput, AgentReply, AgentStreamChunk, AgentTask,
    AgentTransport, ChatBuilder, CustomState, GetSnapshotRequest, Snapshot, SnapshotId,
};
use everturn_core::{Connection, Context, Emitter, Inputs, Result};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::connection_handle::{ConnectionHandle, Conversation};
use super::connection_task::Limits;
use super::frame::ClientFrame;
use crate::events::Event;
use crate::remote_agent::{Routes, abort_of};
use crate::request::decoded;
use crate::{Client, RemoteAgent};

/// A remote agent over one WebSocket: chats, conversations of many turns, background runs and aborts share
/// the connection. [`RemoteAgent::websocket`] opens it. A clone is another handle. The connection is closed
/// when the last handle, and everything opened through it, is dropped.
///
/// ```no_run
/// use everturn_agent::AgentInit;
/// use everturn_client::RemoteAgent;
///
/// # async fn example() -> everturn_core::Result<()> {
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
/// A connection has **one conversation at a time**: the next one waits for its end. A turn of a chat is a
/// conversation.
///
/// **The caller** is identified by the headers of the [`Client`] when the connection is opened. Every
/// conversation on the connection belongs to that caller.
///
/// # When the connection ends
///
/// An open conversation ends with `UNAVAILABLE` and [`STREAM_BROKEN`](crate::STREAM_BROKEN). No input is sent
/// twice: the agent cancels turns that were not detached. A turn that finished before the cancellation is
/// stored in the session; [`Chat::read`](everturn_agent::Chat::read) returns it. The next conversation opens
/// another connection.
///
/// Snapshots are read over HTTP.
pub struct AgentSocket<S = Value> {
    agent: RemoteAgent<S>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    routes: Arc<Routes>,
    /// The connection opened last.
    connection: Mutex<Option<ConnectionHandle>>,
    /// The permit for the only conversation.
    permit: Arc<Semaphore>,
    conversations: AtomicU64,
}

impl<S: CustomState, T, O> RemoteAgent<S, T, O> {
    /// Opens one connection for whole conversations; see [`AgentSocket`].
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the server offers no WebSocket; the server's own error; `UNAVAILABLE` if it cannot
    /// be reached.
    pub async fn websocket(&self) -> Result<AgentSocket<S>> {
        AgentSocket::open(self.clone().status().output()).await
    }
}

impl<S: CustomState> AgentSocket<S> {
    pub(crate) async fn open(agent: RemoteAgent<S>) -> Result<Self> {
        let shared = Shared {
            client: agent.routes.client.clone(),
            routes: Arc::clone(&agent.routes),
            connection: Mutex::default(),
            permit: Arc::new(Semaphore::new(1)),
            conversations: AtomicU64::new(0),
        };
        let context = Context::current();
        context.guard(shared.connection(&context)).await?;
        Ok(Self {
            agent,
            shared: Arc::new(shared),
        })
    }

    /// Opens an invocation, whose turns share one conversation.
    pub fn connect(&self, init: AgentInit) -> AgentConnection<S> {
        AgentConnection::new(AgentTransport::connect(self, init, &Context::current()))
    }

    /// Begins or resumes a session. The connection is free between turns.
    pub fn chat(&self) -> ChatBuilder<S> {
        ChatBuilder::new(Arc::new(self.clone()))
    }

    /// Runs one turn of a new session.
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

    /// Aborts the background run of a pending snapshot; `None` if there is no such snapshot. As
    /// [`RemoteAgent::abort`].
    ///
    /// # Errors
    /// The error of the server.
    pub async fn abort(&self, id: impl Into<SnapshotId>) -> Result<Option<Abort>> {
        AgentTransport::abort(self, id.into(), Context::current()).await
    }

    /// Returns the agent as it is reached over HTTP.
    pub fn agent(&self) -> &RemoteAgent<S> {
        &self.agent
    }

    /// Returns whether the connection is open. If it is not, the next conversation opens another.
    pub fn is_open(&self) -> bool {
        self.shared.open_connection().is_some()
    }
}

impl Shared {
    fn open_connection(&self) -> Option<ConnectionHandle> {
        let connection = self.connection.lock();
        connection.clone().filter(ConnectionHandle::is_open)
    }

    /// Returns the open connection, or opens one. Only the holder of the permit calls this, or the
    /// constructor.
    async fn connection(&self, context: &Context) -> Result<ConnectionHandle> {
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let settings = &self.client.0;
        let socket = settings.open_socket(&self.routes.run, context).await?;
        let limits = Limits {
            silence: settings.silence,
            max_bytes: settings.max_bytes,
        };
        let connection = ConnectionHandle::start(socket, limits);
        *self.connection.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// Opens a conversation as soon as there is no other.
    async fn begin(&self, init: &AgentInit, context: &Context) -> Result<Conversation> {
        let mut permit = Arc::clone(&self.permit).acquire_owned().await?;
        let number = self.conversations.fetch_add(1, Ordering::Relaxed);
        loop {
            match self
                .connection(context)
                .await?
                .begin(number, init, permit)
                .await?
            {
                Ok(conversation) => return Ok(conversation),
                // The connection ended before anything was sent on it, so the opening can be repeated.
                Err(returned) => permit = returned,
            }
        }
    }

    /// Runs a conversation from its opening to its end.
    async fn converse(
        &self,
        init: AgentInit,
        mut inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        context: Context,
    ) -> Result<AgentOutput> {
        let mut conversation = self.begin(&init, &context).await?;
        let mut is_closed = false;
        // The pending frame and the pending chunk are kept here, so that neither direction waits for the
        // other.
        let mut sending: Option<BoxFuture<'static, ()>> = None;
        let mut emitting: Option<BoxFuture<'static, Result<()>>> = None;
        loop {
            tokio::select! {
                input = inputs.next(), if sending.is_none() && !is_closed => {
                    is_closed = input.is_none();
                    let frame = match &input {
                        Some(input) => ClientFrame::Input(input).text()?,
                        None => ClientFrame::CLOSE.text()?,
                    };
                    sending = Some(Box::pin(conversation.frame_sender().send(frame)));
                }
                () = done(&mut sending) => sending = None,
                outcome = done(&mut emitting) => {
                    outcome?;
                    emitting = None;
                }
                event = conversation.next(), if emitting.is_none() => match event? {
                    Event::Chunk(chunk) => {
                        let (emitter, chunk) = (emitter.clone(), decoded(chunk)?);
                        emitting = Some(Box::pin(async move { emitter.send(chunk).await }));
                    }
                    Event::Output(output) => return decoded(output),
                    Event::Failure(error) => return Err(error),
                },
            }
        }
    }

    async fn stop(&self, id: SnapshotId, context: &Context) -> Result<Option<Abort>> {
        if let Some(connection) = self.open_connection() {
            let asking = tokio::time::timeout(self.client.0.timeout, connection.abort(&id));
            let answer = context.guard(async { Ok(asking.await) }).await?;
            match answer {
                Ok(Ok(status)) => return Ok(status.map(abort_of)),
                Ok(Err(error)) if connection.is_open() => return Err(error),
                // The answer was lost with the connection. An abort is idempotent, so it is repeated over
                // HTTP.
                _ => {}
            }
        }
        self.routes.stop(id, context).await
    }
}

/// Waits for the pending future; for ever if there is none.
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
            let init = init.as_sent(&context)?;
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

everturn_core::opaque_debug!(AgentSocket<S>, agent);
