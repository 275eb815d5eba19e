//! Serving: connections accepted, served and brought to an end.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use everturn_core::{Error, Result};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::shutdown::AfterGrace;
use crate::{Grace, Limits, ServerHandle};

/// How long a detached turn may take to answer, and cancelled work to put things in order, before its connection is
/// closed under it.
const WINDING_DOWN: Duration = Duration::from_secs(6);

/// How long to wait when the operating system has no more connections to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that has an address and serves once it is run.
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server from elsewhere.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until [`ServerHandle::shut_down`], then lets calls under way end as the server's [`Grace`] has it.
    ///
    /// Dropping the future closes all connections at once.
    ///
    /// # Errors
    /// None so far; accepting goes on after whatever the operating system reports.
    pub async fn run(self) -> Result<()> {
        let connections = self.handle.tasks().clone();
        // Dropped with this future, so that no connection outlives it.
        let closing = CancellationToken::new();
        let _closed = closing.clone().drop_guard();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_time);

        let draining = self.handle.draining();
        while let Some(stream) = draining.run_until_cancelled(accept(&self.listener)).await {
            let service = TowerToHyperService::new(self.router.clone());
            let connection = http
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // Tokens of its own, which are looked at whenever anything happens on the connection: on shared ones all
            // connections would be in each other's way.
            let (draining, closing) = (draining.child_token(), closing.child_token());
            connections.spawn(async move {
                let serving = async {
                    tokio::pin!(connection);
                    tokio::select! {
                        ended = connection.as_mut() => ended,
                        () = draining.cancelled() => {
                            connection.as_mut().graceful_shutdown();
                            connection.await
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

    /// Serves until the process is told to end, or [`ServerHandle::shut_down`].
    ///
    /// # Errors
    /// As [`Bound::run`]; `INTERNAL` if the operating system takes no handler for signals.
    pub async fn run_until_told(self) -> Result<()> {
        let handle = self.handle();
        let mut told = std::pin::pin!(told_to_end());
        let mut serving = std::pin::pin!(self.run());
        tokio::select! {
            ended = serving.as_mut() => return ended,
            told = told.as_mut() => told?,
        }
        tracing::info!("told to end; finishing what is under way");
        handle.shut_down();
        serving.await
    }
}

impl ServerHandle {
    /// Waits for connections to end, with growing impatience.
    async fn wind_down(&self, grace: Grace, connections: &TaskTracker) {
        if ended_within(grace.period, connections).await {
            return;
        }
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
                "closing connections under calls that did not end"
            );
        }
    }
}

async fn ended_within(time: Duration, connections: &TaskTracker) -> bool {
    tokio::time::timeout(time, connections.wait()).await.is_ok()
}

/// The next connection; what the operating system refuses now it may give later.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Chunks are small and wanted at once; where the option is missing they still arrive.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits for Ctrl-C or, where there is one, `SIGTERM`.
async fn told_to_end() -> Result<()> {
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

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
