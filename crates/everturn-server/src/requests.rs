//! The requests of one connection.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

/// The address of the machine at the other end, as an extension of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Passes the requests of one connection to the router and counts the active ones: from the last byte of a
/// request's head to the last byte of its response.
pub(crate) struct Requests {
    router: TowerToHyperService<Router>,
    peer: Peer,
    active: Arc<AtomicUsize>,
}

impl Requests {
    pub(crate) fn new(router: Router, peer: IpAddr) -> Self {
        Self {
            router: TowerToHyperService::new(router),
            peer: Peer(peer),
            active: Arc::default(),
        }
    }

    /// Returns the live counter of active requests.
    pub(crate) fn active(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.active)
    }
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let counted = Counted::new(&self.active);
        request.extensions_mut().insert(self.peer);
        let answering = self.router.call(request);
        Box::pin(async move {
            let response = answering.await?;
            Ok(response.map(|body| CountedBody {
                body,
                _counted: counted,
            }))
        })
    }
}

/// Counts one request until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(active: &Arc<AtomicUsize>) -> Self {
        active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(active))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response, whose request is active until the body is sent.
pub(crate) struct CountedBody {
    body: Body,
    _counted: Counted,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
