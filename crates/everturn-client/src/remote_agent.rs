//! A remote agent.

mod archive;
mod watching;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::archive::{GetSessionRequest, ListSnapshotsRequest, SessionView, SnapshotList};
use everturn_agent::store::{Page, SnapshotQuery};
use everturn_agent::{
    Abort, AbortRequest, AbortResponse, AgentFinishReason, AgentInit, AgentInput, AgentOutput, AgentReply,
    AgentStreamChunk, AgentTask, AgentTransport, ChatBuilder, ChatTurn, CustomState, GetSnapshotRequest,
    RunChunks, SessionId, Snapshot, SnapshotId, SnapshotStatus,
};
use everturn_core::{Connection, Context, Emitter, Error, Inputs, Result, Status};
use futures::future::BoxFuture;
use reqwest::Url;
use serde::Serialize;
use serde_json::Value;

pub use self::archive::RemoteArchive;
use self::archive::named;
use crate::Client;
use crate::event_stream::EventStream;
use crate::request::{Repeat, Request, decoded};
use crate::stop::StopOnDrop;

/// An agent on another server, with the methods of an agent in this process: see [`everturn_agent::Agent`]. A
/// clone is another handle to the same agent.
///
/// A turn is one request, which is never sent twice. If the server keeps streams, a turn whose connection
/// breaks continues on another connection. Otherwise it ends with [`STREAM_BROKEN`](crate::STREAM_BROKEN),
/// and [`Chat::read`] reads its outcome. Dropping a turn cancels it here and, if the server supports it, on
/// the server.
///
/// [`Chat::read`]: everturn_agent::Chat::read
pub struct RemoteAgent<S = Value, T = Value, O = Value> {
    pub(crate) routes: Arc<Routes>,
    types: Types<S, T, O>,
}

/// Marks the types of the agent: its custom state, its status and its output.
type Types<S, T, O> = PhantomData<fn() -> (S, T, O)>;

#[derive(Debug, Clone)]
pub(crate) struct Routes {
    pub(crate) client: Client,
    pub(crate) run: Url,
    snapshot: Url,
    abort: Url,
}

/// The envelope of every request.
#[derive(Serialize)]
struct Envelope<'a, T> {
    data: &'a T,
    #[serde(skip_serializing_if = "Option::is_none")]
    init: Option<&'a AgentInit>,
}

impl Client {
    /// Returns the agent at `url`, whose custom state is an `S`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn agent<S>(&self, url: &str) -> Result<RemoteAgent<S>> {
        RemoteAgent::reached_by(self.clone(), url)
    }
}

impl<S> RemoteAgent<S> {
    /// Returns the agent at `url`, with a default client. Use [`Client::agent`] for other settings.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn new(url: &str) -> Result<Self> {
        Self::reached_by(Client::new()?, url)
    }

    pub(crate) fn reached_by(client: Client, url: &str) -> Result<Self> {
        let run = http_url(url)?;
        Ok(Self {
            routes: Arc::new(Routes {
                snapshot: below(&run, "getSnapshot"),
                abort: below(&run, "abort"),
                run,
                client,
            }),
            types: PhantomData,
        })
    }
}

impl<S, T, O> RemoteAgent<S, T, O> {
    /// Reads the agent's snapshots at `url` instead of below its own address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn with_snapshot_url(mut self, url: &str) -> Result<Self> {
        Arc::make_mut(&mut self.routes).snapshot = http_url(url)?;
        Ok(self)
    }

    /// Aborts the agent's background runs at `url` instead of below its own address.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if `url` is not an HTTP address.
    pub fn with_abort_url(mut self, url: &str) -> Result<Self> {
        Arc::make_mut(&mut self.routes).abort = http_url(url)?;
        Ok(self)
    }

    /// Returns the address of the agent.
    pub fn url(&self) -> &str {
        self.routes.run.as_str()
    }

    /// Returns this agent with its status read as a `U`, as [declared](everturn_agent::AgentBuilder::status)
    /// by the agent.
    pub fn status<U>(self) -> RemoteAgent<S, U, O> {
        RemoteAgent {
            routes: self.routes,
            types: PhantomData,
        }
    }

    /// Returns this agent with its output read as a `U`, as its function
    /// [returns](everturn_agent::AgentResult::with_output) it.
    pub fn output<U>(self) -> RemoteAgent<S, T, U> {
        RemoteAgent {
            routes: self.routes,
            types: PhantomData,
        }
    }

    /// Returns one page of a session's snapshots, like [`Archive::list`](everturn_agent::Archive::list) in
    /// the agent's own process; an empty page if the session does not exist. Only Everturn servers support
    /// it.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server does not list snapshots; the server's own error.
    pub async fn list_snapshots(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let url = below(&self.routes.run, "listSnapshots");
        let request = ListSnapshotsRequest::from(query.clone());
        let list: SnapshotList = decoded(self.routes.ask(&url, &request, &Context::current()).await?)?;
        Ok(list.into())
    }

    /// Returns a session with its latest snapshot and the additional details of an Everturn server.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist or the server does not show sessions; the server's own
    /// error.
    pub async fn session(&self, session: impl Into<SessionId>) -> Result<SessionView> {
        let url = below(&self.routes.run, "getSession");
        let request = GetSessionRequest {
            session_id: session.into(),
        };
        let view = self.routes.ask(&url, &request, &Context::current()).await;
        decoded(view.map_err(named)?)
    }

    /// Returns the transport of chats with this agent.
    fn transport(&self) -> Arc<dyn AgentTransport>
    where
        S: CustomState,
    {
        Arc::new(RemoteAgent::<S> {
            routes: Arc::clone(&self.routes),
            types: PhantomData,
        })
    }
}

impl<S: CustomState, T, O> RemoteAgent<S, T, O> {
    /// Runs one turn of a new session.
    ///
    /// # Errors
    /// The error of the turn, which contains the reply of a failed turn ([`AgentReply::of`]); `UNAVAILABLE`
    /// if the server cannot be reached.
    pub async fn run(&self, input: impl Into<AgentInput>) -> Result<AgentReply<S, O>> {
        self.chat().run(input).await
    }

    /// Runs one turn of a new session on a text.
    ///
    /// # Errors
    /// As [`RemoteAgent::run`].
    pub async fn run_text(&self, text: impl Into<String>) -> Result<AgentReply<S, O>> {
        self.run(text.into()).await
    }

    /// Starts one turn of a new session and streams it: chunks, then the [reply](ChatTurn::output).
    ///
    /// # Errors
    /// If the input cannot be sent. Every other failure is reported by the turn: see [`ChatTurn`].
    pub async fn stream(&self, input: impl Into<AgentInput>) -> Result<ChatTurn<'static, S, T, O>>
    where
        T: 'static,
        O: 'static,
    {
        self.chat().stream(input).await
    }

    /// Starts one turn of a new session on a text and streams it, as [`RemoteAgent::stream`] does.
    ///
    /// # Errors
    /// As [`RemoteAgent::stream`].
    pub async fn stream_text(&self, text: impl Into<String>) -> Result<ChatTurn<'static, S, T, O>>
    where
        T: 'static,
        O: 'static,
    {
        self.stream(text.into()).await
    }

    /// Starts or resumes a session.
    pub fn chat(&self) -> ChatBuilder<S, T, O> {
        ChatBuilder::new(self.transport())
    }

    /// Returns a background run, given the id of its snapshot.
    pub fn task(&self, id: impl Into<SnapshotId>) -> AgentTask<S, T, O> {
        AgentTask::new(self.transport(), Context::current(), id.into())
    }

    /// Reads a snapshot by its id.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot, or the agent has no store; the server's own error.
    pub async fn get_snapshot(&self, id: impl Into<SnapshotId>) -> Result<Snapshot> {
        self.archive().get(id).await
    }

    /// Reads the latest snapshot of a session.
    ///
    /// # Errors
    /// As [`RemoteAgent::get_snapshot`].
    pub async fn latest_snapshot(&self, session: impl Into<SessionId>) -> Result<Snapshot> {
        self.archive().latest(session).await
    }

    /// Aborts the background run of a pending snapshot; `None` if there is no such snapshot.
    ///
    /// Servers return only one status: some the status before the abort, some the status after it. A run that
    /// is aborted now is therefore reported as previously pending, even if it was aborted earlier.
    ///
    /// # Errors
    /// The server's error.
    pub async fn abort(&self, id: impl Into<SnapshotId>) -> Result<Option<Abort>> {
        self.routes.stop(id.into(), &Context::current()).await
    }
}

impl Routes {
    /// Runs each input as a separate turn that starts where the previous one ended.
    async fn invoke(
        &self,
        mut init: AgentInit,
        mut inputs: Inputs<AgentInput>,
        emitter: Emitter<AgentStreamChunk>,
        context: Context,
    ) -> Result<AgentOutput> {
        let mut last = None;
        while let Some(input) = inputs.next().await {
            let output = self.turn(&init, &input, &emitter, &context).await?;
            let is_over = output.is_failure() || output.finish_reason == Some(AgentFinishReason::Detached);
            init = after(init, &output);
            last = Some(output);
            if is_over {
                break;
            }
        }
        last.ok_or_else(|| Error::failed_precondition("a remote agent needs an input, and none was sent"))
    }

    async fn turn(
        &self,
        init: &AgentInit,
        input: &AgentInput,
        emitter: &Emitter<AgentStreamChunk>,
        context: &Context,
    ) -> Result<AgentOutput> {
        let envelope = Envelope {
            data: input,
            // Sent even if it is empty, because the JavaScript server requires it.
            init: Some(init),
        };
        let settings = &self.client.0;
        let mut events = EventStream::start(settings, &self.run, &envelope, context).await?;
        let id = events.id();
        let stop = id.map(|id| StopOnDrop::new(settings, &self.run, id, context));
        let outcome = events.relay(emitter).await;
        // Only a turn dropped while it ran must be stopped.
        if let Some(stop) = stop {
            stop.disarm();
        }
        outcome
    }

    /// Calls an idempotent companion action of the agent.
    async fn ask(&self, url: &Url, data: &impl Serialize, context: &Context) -> Result<Value> {
        let timeout = Some(self.client.0.timeout);
        self.call(url, data, context, Repeat::Always, timeout).await
    }

    async fn call(
        &self,
        url: &Url,
        data: &impl Serialize,
        context: &Context,
        repeat: Repeat,
        timeout: Option<Duration>,
    ) -> Result<Value> {
        let request = Request::new(url, &Envelope { data, init: None })?;
        let calling = self.client.0.call_with(&request, context, repeat, timeout);
        context.guard(calling).await
    }

    /// Starts a streamed companion action that may be repeated.
    async fn start_repeatable(
        &self,
        name: &str,
        data: &impl Serialize,
        context: &Context,
    ) -> Result<EventStream> {
        let url = below(&self.run, name);
        let envelope = Envelope { data, init: None };
        EventStream::open(&self.client.0, &url, &envelope, context, None, Repeat::Always).await
    }

    pub(crate) async fn read(&self, mut request: GetSnapshotRequest, context: &Context) -> Result<Snapshot> {
        // Some servers accept only one of the two, so the other is checked here.
        let owner = match &request.snapshot_id {
            Some(_) => request.session_id.take(),
            None => None,
        };
        let row = match self.ask(&self.snapshot, &request, context).await {
            Ok(Value::Null) => Err(Error::not_found("there is no such snapshot")),
            other => other,
        };
        let row = snapshot_of(row.map_err(named)?)?;
        match owner {
            Some(owner) if row.session_id.as_ref() != Some(&owner) => Err(Error::invalid_argument(format!(
                "snapshot '{}' does not belong to session '{owner}'",
                row.snapshot_id
            ))),
            _ => Ok(row),
        }
    }

    pub(crate) async fn stop(&self, id: SnapshotId, context: &Context) -> Result<Option<Abort>> {
        let request = AbortRequest { snapshot_id: id };
        match self.ask(&self.abort, &request, context).await {
            Ok(mut response) => {
                let status = status_in(&mut response);
                decoded::<Option<AbortResponse>>(response)?;
                Ok(status.map(abort_of))
            }
            Err(error) if error.status() == Status::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads a snapshot, which may have a status that this version does not define.
fn snapshot_of(mut row: Value) -> Result<Snapshot> {
    let status = status_in(&mut row);
    let mut snapshot: Snapshot = decoded(row)?;
    if let Some(status) = status {
        snapshot.status = status;
    }
    Ok(snapshot)
}

/// Removes and returns the status of an answer, if it has one.
fn status_in(answer: &mut Value) -> Option<SnapshotStatus> {
    let fields = answer.as_object_mut()?;
    let name = fields.get("status")?.as_str().filter(|name| !name.is_empty())?;
    let status = SnapshotStatus::from_server(name);
    fields.shift_remove("status");
    Some(status)
}

/// Returns the outcome of an abort from the only status that servers return.
///
/// A server that reports the status before the abort returns `pending`. The run has then stopped or is
/// stopping; its status is unknown until it is read.
pub(crate) fn abort_of(status: SnapshotStatus) -> Abort {
    Abort {
        previous: match status {
            SnapshotStatus::Aborted | SnapshotStatus::Aborting => SnapshotStatus::Pending,
            status => status,
        },
        status: match status {
            SnapshotStatus::Pending => SnapshotStatus::Aborting,
            status => status,
        },
    }
}

/// Returns where the next turn of an invocation starts.
fn after(init: AgentInit, output: &AgentOutput) -> AgentInit {
    if let Some(snapshot) = &output.snapshot_id {
        return AgentInit::snapshot(snapshot.clone());
    }
    match &output.state {
        Some(state) => AgentInit {
            prompt_input: init.prompt_input,
            ..AgentInit::state(state.clone())
        },
        None => init,
    }
}

/// Parses the address of a server.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not an HTTP address.
pub(crate) fn http_url(url: &str) -> Result<Url> {
    let parsed = Url::parse(url).ok().filter(|parsed| {
        matches!(parsed.scheme(), "http" | "https") && parsed.has_host() && !parsed.cannot_be_a_base()
    });
    parsed.ok_or_else(|| {
        Error::invalid_argument(format!(
            "'{url}' is not the address of a server: the expected form is https://host/path"
        ))
    })
}

fn below(url: &Url, name: &str) -> Url {
    let mut below = url.clone();
    if let Ok(mut path) = below.path_segments_mut() {
        path.pop_if_empty().push(name);
    }
    below
}

impl<S: CustomState, T: 'static, O: 'static> AgentTransport for RemoteAgent<S, T, O> {
    fn connect(
        &self,
        init: AgentInit,
        context: &Context,
    ) -> Connection<AgentInput, AgentOutput, AgentStreamChunk> {
        let routes = Arc::clone(&self.routes);
        Connection::open(
            self.routes.run.path(),
            context,
            |inputs, emitter, context| async move {
                let init = init.as_sent(&context)?;
                Ok(routes.invoke(init, inputs, emitter, context).await?)
            },
        )
    }

    fn snapshot(&self, request: GetSnapshotRequest, context: Context) -> BoxFuture<'_, Result<Snapshot>> {
        Box::pin(async move { self.routes.read(request, &context).await })
    }

    fn abort(&self, id: SnapshotId, context: Context) -> BoxFuture<'_, Result<Option<Abort>>> {
        Box::pin(async move { self.routes.stop(id, &context).await })
    }

    fn follow(&self, id: &SnapshotId, context: &Context) -> Option<RunChunks> {
        Some(watching::chunks(
            Arc::clone(&self.routes),
            id.clone(),
            context.clone(),
        ))
    }

    fn takeover_patience(&self) -> Duration {
        self.routes.client.0.takeover_patience
    }
}

impl<S, T, O> Clone for RemoteAgent<S, T, O> {
    fn clone(&self) -> Self {
        Self {
            routes: Arc::clone(&self.routes),
            types: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(RemoteAgent<S, T, O>, routes.run);
