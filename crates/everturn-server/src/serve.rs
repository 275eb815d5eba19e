//! Serving: accepting connections, serving them and shutting them down.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use everturn_core::{Error, Result};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{Requests, TimedIo};
use crate::shutdown::AfterGrace;
use crate::{Grace, Limits, ServerHandle};

/// How long a detached turn may take to answer, and cancelled work to clean up, before its connection is
/// closed.
const WINDING_DOWN: Duration = Duration::from_secs(6);

/// How long to wait before accepting again when the operating system has no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that is bound to an address and serves when it is run.
#[must_use = "a bound server serves once it is run"]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    limits: Limits,
    grace: Grace,
    handle: ServerHandle,
}

impl Bound {
    pub(crate) fn new(
        listener: TcpListener,
        router: Router,
        limits: Limits,
        grace: Grace,
        handle: ServerHandle,
    ) -> Result<Self> {
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            router,
            limits,
            grace,
            handle,
        })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that shuts the server down.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until [`ServerHandle::shut_down`], then lets running calls end as the server's [`Grace`] says.
    ///
    /// Dropping the future closes all connections at once.
    ///
    /// # Errors
    /// None so far: accepting continues after errors of the operating system.
    pub async fn run(self) -> Result<()> {
        let connections = self.handle.tasks().clone();
        // Dropped with this future, so no connection outlives it.
        let closing = CancellationToken::new();
        let _closed = closing.clone().drop_guard();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_time);

        let draining = self.handle.draining();
        while let Some((stream, peer)) = draining.run_until_cancelled(accept(&self.listener)).await {
            let requests = Requests::new(self.router.clone(), peer.ip());
            let active = requests.active();
            let io = TimedIo::new(stream, self.limits.write_time);
            // Boxed, because each future around it would otherwise hold it by value, and most of them twice.
            let mut connection = Box::pin(http.serve_connection(TokioIo::new(io), requests).with_upgrades());
            // Each connection has its own tokens, which it polls on every event; with shared tokens all
            // connections would contend for one lock.
            let (draining, closing) = (draining.child_token(), closing.child_token());
            let grace_over = self.handle.grace_over().child_token();
            connections.spawn(async move {
                let serving = async {
                    tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = draining.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            tokio::select! {
                                ended = connection.as_mut() => ended,
                                () = given_up(&grace_over, &active) => Ok(()),
                            }
                        }
                    }
                };
                if let Some(Err(error)) = closing.run_until_cancelled(serving).await {
                    tracing::debug!(%error, "a connection broke off");
                }
            });
        }
        drop(self.listener);
        connections.close();
        self.handle.wind_down(self.grace, &connections).await;
        Ok(())
    }

    /// Serves until the process gets Ctrl-C or `SIGTERM`, or until [`ServerHandle::shut_down`].
    ///
    /// # Errors
    /// As [`Bound::run`]; `INTERNAL` if the operating system refuses a signal handler.
    pub async fn run_until_shutdown(self) -> Result<()> {
        let handle = self.handle();
        let mut signal = std::pin::pin!(shutdown_signal());
        let mut serving = std::pin::pin!(self.run());
        tokio::select! {
            ended = serving.as_mut() => return ended,
            ended = signal.as_mut() => ended?,
        }
        tracing::info!("shutting down: waiting for running calls");
        handle.shut_down();
        serving.await
    }
}

impl ServerHandle {
    /// Waits for connections to end: first by themselves, then detached or cancelled, then closed.
    pub(crate) async fn wind_down(&self, grace: Grace, connections: &TaskTracker) {
        if ended_within(grace.period, connections).await {
            return;
        }
        self.grace_over().cancel();
        if grace.then == AfterGrace::Detach {
            self.handing_off().cancel();
            if ended_within(WINDING_DOWN, connections).await {
                return;
            }
        }
        self.cancelling().cancel();
        if !ended_within(WINDING_DOWN, connections).await {
            tracing::warn!(
                connections = connections.len(),
                "closing connections whose calls did not end"
            );
        }
    }
}

/// Waits until the grace period has ended and the head of the connection's request has not arrived: the
/// shutdown does not wait for such a connection.
async fn given_up(grace_over: &CancellationToken, active: &AtomicUsize) {
    grace_over.cancelled().await;
    if active.load(Ordering::Relaxed) > 0 {
        std::future::pending::<()>().await;
    }
}

async fn ended_within(time: Duration, connections: &TaskTracker) -> bool {
    tokio::time::timeout(time, connections.wait()).await.is_ok()
}

/// Accepts the next connection. Retries when the operating system refuses one.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Chunks are small and wanted at once; without the option they arrive later.
                let _ = stream.set_nodelay(true);
                return (stream, peer);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits for Ctrl-C or, where there is one, `SIGTERM`.
async fn shutdown_signal() -> Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Error::from),
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(Error::from)
}

everturn_core::opaque_debug!(Bound, address);
