//! Handles a request: reads and validates it, identifies the caller, calls the action and responds.
//!
//! The caller is identified before anything runs and determines the scope of every store call. An id of
//! another tenant, a forged id and a missing one therefore take the same path and get the same answer.

mod lines;
mod logged_stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header, request::Parts};
use bytes::Bytes;
use everturn_agent::{HandOff, TurnObserver};
use everturn_core::offload::{HEAVY, is_heavy, offload};
use everturn_core::{ActionType, Context, DynAction, Error, Exposure, Registry, RequestId};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

pub(crate) use self::lines::JSON_LINES;
pub(crate) use self::logged_stream::stop;
use crate::action_call::{ActionCall, CallEvents};
use crate::archive_access::ArchiveAccess;
use crate::connection::Peer;
use crate::context_provider::{CallRequest, ContextProvider, Provided};
use crate::correlation::{Correlation, Trace};
use crate::counted_body::{CountedBody, Held};
use crate::error_body::{Refusal, json_response, json_text};
use crate::event::{AnswerForm, is_stream_requested};
use crate::logged_calls::{LoggedCalls, STREAM_ID};
use crate::metrics::{CallMeter, RouteMetrics};
use crate::permits::{Caller, Permit, Permits};
use crate::request_body::{Envelope, check_content_type};
use crate::{Limits, Principal, Route, RouteKind, ServerHandle, request_body};

/// The approximate number of bytes that are written to a connection at once.
pub(crate) const WRITTEN_TOGETHER: usize = 16 * 1024;

/// The state that all routes of a server share.
pub(crate) struct Shared {
    pub(crate) provider: Option<Provider>,
    pub(crate) limits: Limits,
    pub(crate) permits: Permits,
    pub(crate) exposure: Exposure,
    pub(crate) handle: ServerHandle,
    pub(crate) logged_calls: Option<LoggedCalls>,
    pub(crate) archive: ArchiveAccess,
    pub(crate) operators: ArchiveAccess,
    /// Counts the turns of agents while the routes exist.
    pub(crate) _turns: Arc<dyn TurnObserver>,
    /// Held because actions hold the registry that they need only weakly.
    pub(crate) registry: Registry,
}

/// The context provider of a server.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) inner: Arc<dyn ContextProvider>,
    /// The name of its type, for log lines.
    pub(crate) name: &'static str,
    /// Whether the missing principal was logged.
    pub(crate) reported: Arc<AtomicBool>,
}

impl Provider {
    /// Returns the error for a call whose caller has no tenant.
    fn no_tenant(&self) -> Error {
        const REMEDY: &str = "return one with `Provided::with_principal`, or declare callers without one with \
                              `Provided::anonymous(\"visitors\")`, who then share one tenant";
        if !self.reported.swap(true, Ordering::Relaxed) {
            let name = self.name;
            tracing::error!(
                "the context provider {name} returned no principal, and the call was rejected; {REMEDY}"
            );
        }
        Error::unauthenticated(format!(
            "the server's context provider returned no principal: {REMEDY}"
        ))
        .with_public()
    }
}

impl Shared {
    /// Identifies the caller with the context provider.
    pub(crate) async fn identify(&self, head: &Parts, input: Option<&Value>) -> Result<Provided, Refusal> {
        self.identify_at(head.uri.path(), head, input).await
    }

    /// Identifies the caller as if the request were for another path.
    pub(crate) async fn identify_at(
        &self,
        path: &str,
        head: &Parts,
        input: Option<&Value>,
    ) -> Result<Provided, Refusal> {
        let Some(provider) = &self.provider else {
            return Ok(Provided::new());
        };
        let request = CallRequest {
            method: &head.method,
            path,
            headers: &head.headers,
            input,
        };
        let caller = provider.inner.provide(&request).await.map_err(Error::from)?;
        if !caller.has_tenant() {
            return Err(provider.no_tenant().into());
        }
        Ok(caller)
    }

    /// Returns whether a call with this context is an operator's. Without a context provider every caller is
    /// one.
    pub(crate) fn is_operator(&self, context: &Context) -> bool {
        self.provider.is_none() || self.operators.allows(context)
    }

    /// Fails with `PERMISSION_DENIED` if a call with this context is not an operator's.
    pub(crate) fn check_operator(&self, context: &Context) -> Result<(), Refusal> {
        if self.is_operator(context) {
            return Ok(());
        }
        Err(operators_only())
    }

    /// Returns the context of a call.
    pub(crate) fn context(&self, caller: Provided, correlation: &Correlation) -> Context {
        let token = self.handle.cancelling().child_token();
        let mut context = Context::new()
            .with_cancellation(token)
            .with_values(caller.values)
            .with_extension(Arc::new(self.exposure))
            .with_dependencies(self.registry.dependencies());
        if self.provider.is_some() {
            context = context.for_client();
        }
        for give in caller.given {
            context = give(context);
        }
        context = match (caller.principal, caller.anonymous) {
            (Some(principal), _) => principal.enter(context),
            (None, Some(tenant)) => context.with(Principal::new(tenant).scope()),
            (None, None) => context,
        };
        if let Some(time) = self.limits.request_time {
            context = context.with_deadline(deadline(time));
        }
        correlation.enter(context)
    }
}

fn operators_only() -> Refusal {
    let message = "only operators may do this; the server's program defines them with `Server::operators`";
    Error::permission_denied(message).with_public().into()
}

/// Returns the caller of a request: its principal, else its address.
pub(crate) fn caller_of(provided: &Provided, head: &Parts) -> Caller {
    match (&provided.principal, head.extensions.get::<Peer>()) {
        (Some(principal), _) => Caller::Principal(principal.clone()),
        (None, Some(Peer(address))) => Caller::Address(*address),
        (None, None) => Caller::Anonymous,
    }
}

/// An action at its path.
pub(crate) struct Mounted {
    pub(crate) route: Route,
    pub(crate) action: Arc<dyn DynAction>,
    pub(crate) metrics: RouteMetrics,
    pub(crate) shared: Arc<Shared>,
}

/// The JSON of an answer.
#[derive(Serialize)]
struct Output {
    result: Value,
}

/// Answers a request.
pub(crate) async fn handle(State(mounted): State<Arc<Mounted>>, request: Request) -> Response<Body> {
    let meter = mounted.metrics.call();
    let id = request.extensions().get::<RequestId>().cloned();
    let response = match mounted.answer(request, meter).await {
        Ok(response) => response,
        Err(refusal) => {
            refusal.log(&mounted.route.path, id);
            refusal.respond(mounted.shared.exposure)
        }
    };
    mounted.metrics.answered(response.status());
    response
}

impl Mounted {
    async fn answer(self: &Arc<Self>, request: Request, meter: CallMeter) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        if self.takes_lines() && lines::are_sent(&head.headers) {
            return self.answer_lines(&head, body, meter).await;
        }
        let streams = is_stream_requested(&head.uri, &head.headers)?;
        let form = AnswerForm::of(&head.headers, &self.action.descriptor().action_type)?;
        let mut permit = self.shared.permits.enter();
        let envelope = self.read(&head, body, &mut permit).await?;
        let caller = self.identify(&head, &envelope).await?;
        permit.assign(caller_of(&caller, &head))?;
        let mut counted = Held { meter, permit };
        let (context, trace) = Trace::follow(self.context(caller, &Correlation::of(&head)));
        self.check_access(&context)?;
        let mut call = ActionCall {
            action: Arc::clone(&self.action),
            envelope,
            context,
            values: None,
        };
        let gives_lines = self.gives_lines() && lines::are_wanted(&head.headers);
        if streams || gives_lines {
            // A stream may last long after its request was read.
            call.values = counted.permit.split_parsed();
        }
        if gives_lines {
            return Ok(lines::respond(call.start(self.shared.exposure, form), counted).await);
        }
        if streams {
            return match self.shared.logged_calls.as_ref().filter(|_| self.is_recorded()) {
                Some(logged_calls) => {
                    let request = logged_stream::StreamRequest {
                        headers: &head.headers,
                        form,
                    };
                    logged_stream::answer(self, logged_calls, request, call, counted).await
                }
                // The client requests an existing stream. Running the action would repeat its work.
                None if self.is_recorded() && head.headers.contains_key(STREAM_ID) => {
                    Ok(logged_stream::unknown())
                }
                None => {
                    let Held { meter, permit } = counted;
                    Ok(stream(
                        call.start(self.shared.exposure, form),
                        form,
                        meter,
                        Arc::new(permit),
                    )
                    .await)
                }
            };
        }
        let mut response = match self.run(call, form, counted).await {
            Ok(response) => response,
            Err(refusal) => refusal.respond(self.shared.exposure),
        };
        trace.name_in(response.headers_mut());
        Ok(response)
    }

    /// Answers a request whose body is a file of JSON lines.
    async fn answer_lines(
        self: &Arc<Self>,
        head: &Parts,
        body: Body,
        meter: CallMeter,
    ) -> Result<Response<Body>, Refusal> {
        let caller = self.identify(head, &Envelope::default()).await?;
        let mut permit = self.shared.permits.enter();
        permit.assign(caller_of(&caller, head))?;
        let counted = Held { meter, permit };
        let (context, trace) = Trace::follow(self.context(caller, &Correlation::of(head)));
        self.check_access(&context)?;
        let result = self.take_lines(&head.uri, &context, body, counted).await?;
        let mut response = json_response(StatusCode::OK, &Output { result });
        trace.name_in(response.headers_mut());
        Ok(response)
    }

    /// Fails with `PERMISSION_DENIED` if the caller may not call the action.
    fn check_access(&self, context: &Context) -> Result<(), Refusal> {
        match self.route.kind {
            RouteKind::Archive => Ok(self.shared.archive.check(context)?),
            RouteKind::Operator if self.shared.operators.allows(context) => Ok(()),
            RouteKind::Operator => Err(operators_only()),
            _ => Ok(()),
        }
    }

    /// Runs a call to its end and answers with its output.
    async fn run(
        &self,
        call: ActionCall,
        form: AnswerForm,
        mut held: Held,
    ) -> Result<Response<Body>, Refusal> {
        let _reading = if self.reads_storage() {
            held.permit.reading().await
        } else {
            None
        };
        let output = call.run().await?;
        let is_heavy = is_heavy(&output);
        let print = move || {
            let result = form.output(output);
            let text = serde_json::to_vec(&Output { result }).expect("what is answered is plain data");
            text.into_boxed_slice()
        };
        let text = if is_heavy { offload(print).await } else { print() };
        let length = text.len();
        held.permit.take_instead(length)?;
        let body = CountedBody::wrap(Body::from(Bytes::from(text)), held, None, length);
        Ok(json_text(StatusCode::OK, body))
    }

    /// Returns whether the action reads stored data of any size.
    fn reads_storage(&self) -> bool {
        let readers = [
            ActionType::AGENT_SNAPSHOT,
            ActionType::AGENT_SNAPSHOTS,
            ActionType::AGENT_SESSION,
            ActionType::AGENT_TREE,
            ActionType::AGENT_DIFF,
            ActionType::AGENT_FORK,
            ActionType::AGENT_EXPORT,
        ];
        readers.contains(&self.action.descriptor().action_type)
    }

    async fn read(&self, head: &Parts, body: Body, permit: &mut Permit) -> Result<Envelope, Refusal> {
        let Shared { limits, handle, .. } = &*self.shared;
        let bytes = request_body::read(&head.headers, body, limits, handle, permit).await?;
        check_content_type(&head.headers)?;
        let counts = (self.route.kind == RouteKind::Agent).then(|| self.shared.limits.clone());
        let is_heavy = bytes.len() > HEAVY;
        let parse = move || {
            let envelope = Envelope::parse(&bytes)?;
            if let Some(limits) = counts {
                limits.check_counts(envelope.data.as_ref(), envelope.init.as_ref())?;
            }
            Ok::<_, Error>(envelope)
        };
        let envelope = if is_heavy { offload(parse).await } else { parse() }?;
        envelope.check_against(self.action.descriptor())?;
        Ok(envelope)
    }

    pub(crate) async fn identify(&self, head: &Parts, envelope: &Envelope) -> Result<Provided, Refusal> {
        self.shared.identify(head, envelope.data.as_ref()).await
    }

    pub(crate) fn context(&self, caller: Provided, correlation: &Correlation) -> Context {
        let context = self.shared.context(caller, correlation);
        if !self.can_be_detached() {
            // The call cannot continue after the grace period.
            return context.with_cancellation(self.shared.handle.grace_over().child_token());
        }
        // A child token for each call: with one shared token, all calls would contend for its lock.
        let hand_off = HandOff::when(self.shared.handle.handing_off().child_token());
        context.with_extension(Arc::new(hand_off))
    }

    /// Returns whether streams of this route are logged, so that clients can reconnect. Companion actions
    /// return stored data, and calling them again repeats no work.
    pub(crate) fn is_recorded(&self) -> bool {
        !matches!(
            self.route.kind,
            RouteKind::Companion | RouteKind::Archive | RouteKind::Operator
        )
    }

    /// Returns whether the action is an agent with background runs, or watches such runs.
    fn can_be_detached(&self) -> bool {
        let descriptor = self.action.descriptor();
        let agent = descriptor.metadata.get("agent");
        let is_abortable = agent.and_then(|agent| agent.get("abortable")) == Some(&Value::Bool(true));
        is_abortable || descriptor.action_type == ActionType::AGENT_WATCH
    }
}

fn deadline(time: Duration) -> Instant {
    let now = Instant::now();
    // A duration that overflows means no deadline; a year is longer than any connection.
    now.checked_add(time)
        .unwrap_or_else(|| now + Duration::from_hours(24 * 365))
}

/// Responds with a stream, at the pace of the reader.
async fn stream(
    mut events: CallEvents,
    form: AnswerForm,
    mut meter: CallMeter,
    permit: Arc<Permit>,
) -> Response<Body> {
    meter.stream_opened();
    events.run_ahead().await;
    let mut body = StreamBody {
        events,
        form,
        meter,
        _permit: permit,
    };
    event_stream(Body::from_stream(futures::stream::poll_fn(move |cx| {
        body.poll_bytes(cx).map(|bytes| bytes.map(Ok::<_, Infallible>))
    })))
}

/// The events of a call, and the values that are held until the last event is read.
struct StreamBody {
    events: CallEvents,
    form: AnswerForm,
    meter: CallMeter,
    _permit: Arc<Permit>,
}

impl StreamBody {
    /// Returns the ready events as bytes, so that events that an action sends at once cost one write.
    fn poll_bytes(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Option<Bytes>> {
        let mut bytes = Vec::new();
        while bytes.len() < WRITTEN_TOGETHER {
            match self.events.poll_next(cx) {
                Poll::Ready(Some(event)) => {
                    let Some(event) = self.form.event(event) else {
                        continue;
                    };
                    if !event.is_last() {
                        self.meter.chunk();
                    }
                    event.encode_into(&mut bytes);
                }
                Poll::Pending if bytes.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready((!bytes.is_empty()).then(|| bytes.into()))
    }
}

/// Creates a response whose body is a stream of events.
pub(crate) fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A proxy that buffers a response would defeat streaming.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
