//! Application routes whose callers are identified as on the server's routes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use everturn_core::{Context, Error, Exposure, FromContext, RequestId};
use http_body_util::BodyExt;

use crate::correlation::Correlation;
use crate::error_body::Refusal;
use crate::handler::{Shared, caller_of};

/// Identifies the caller of a request and counts the call, before the application's handler runs in the
/// caller's context.
pub(crate) async fn authenticate(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let id = request.extensions().get::<RequestId>().cloned();
    let path = request.uri().path().to_owned();
    match answer(&shared, request, next).await {
        Ok(response) => response,
        Err(refusal) => {
            refusal.log(&path, id);
            refusal.respond(shared.exposure)
        }
    }
}

async fn answer(shared: &Shared, request: Request, next: Next) -> Result<Response, Refusal> {
    let (mut head, body) = request.into_parts();
    let caller = shared.identify(&head, None).await?;
    let mut permit = shared.permits.enter();
    permit.assign(caller_of(&caller, &head))?;
    let context = shared.context(caller, &Correlation::of(&head));
    head.extensions.insert(context.clone());
    let handled = next.run(Request::from_parts(head, body));
    let response = context.scope(handled).await;
    // The call counts as running until its response has been read.
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _under_way = &permit;
            frame
        }))
    }))
}

/// An argument of an axum handler that comes from the context of the call: the caller, or a value that was
/// given to the application or by a context provider.
///
/// It works in routes that are added with
/// [`Server::merge_authenticated`](crate::Server::merge_authenticated), and takes every type that a tool or a
/// flow can take.
///
/// ```
/// use everturn_core::{Dep, Principal, Registry};
/// use everturn_server::axum::{Router, routing::get};
/// use everturn_server::{BearerTokens, FromCall, Server};
///
/// struct Orders(usize);
///
/// async fn count(FromCall(caller): FromCall<Principal>, FromCall(orders): FromCall<Dep<Orders>>) -> String {
///     format!("{}: {} orders", caller.id(), orders.0)
/// }
///
/// let registry = Registry::new();
/// registry.provide(Orders(3));
/// let server = Server::new(&registry)
///     .context(BearerTokens::new([("alice", "a-long-random-token")]))
///     .merge_authenticated(Router::new().route("/orders", get(count)));
/// # let _ = server;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FromCall<T>(pub T);

impl<S: Sync, T: FromContext> FromRequestParts<S> for FromCall<T> {
    type Rejection = Response;

    async fn from_request_parts(head: &mut Parts, _state: &S) -> Result<Self, Response> {
        let refused = |error: Error, exposure: Exposure| {
            let refusal = Refusal::from(error);
            refusal.log(head.uri.path(), head.extensions.get::<RequestId>().cloned());
            refusal.respond(exposure)
        };
        let Some(context) = head.extensions.get::<Context>() else {
            let advice =
                "the route takes its caller from the server: add it with `Server::merge_authenticated`";
            return Err(refused(Error::internal(advice), Exposure::Public));
        };
        let exposure = context
            .extension::<Exposure>()
            .map_or(Exposure::Public, |given| *given);
        T::from_context(context)
            .map(Self)
            .map_err(|error| refused(error.into(), exposure))
    }
}
