//! One connection to a server.

use std::sync::Arc;

use everturn_ai::ToolContext;
use everturn_core::Result;
use rmcp::model::{
    CancelledNotificationParam, ClientRequest, ProgressNotificationParam, ProtocolVersion, RequestId,
    RequestMetaObject, ServerCapabilities, ServerResult, SubscriptionFilter,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService};
use rmcp::{RoleClient, ServiceError};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;

use super::RemoteServer;
use crate::handler::Handler;

/// A connection, with the task that listens for changes.
pub(crate) struct Link {
    running: RunningService<RoleClient, Handler>,
    listening: Option<AbortHandle>,
}

impl Link {
    pub(crate) async fn open(server: &Arc<RemoteServer>) -> Result<Self> {
        let running = server.connect().await?;
        Ok(Self {
            running,
            listening: None,
        })
    }

    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    /// Returns whether requests can still be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.peer().is_transport_closed()
    }

    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let info = self.peer().peer_info();
        info.map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Listens for changed lists, if the protocol requires a subscription; servers of older versions notify
    /// without one.
    pub(crate) fn listen(&mut self, server: &Arc<RemoteServer>) {
        let Some(info) = self.peer().peer_info() else {
            return;
        };
        if info.protocol_version < ProtocolVersion::V_2026_07_28 {
            return;
        }
        let filter = announced_changes(&info.capabilities);
        if filter == SubscriptionFilter::new() {
            return;
        }
        let (peer, server) = (self.peer().clone(), Arc::downgrade(server));
        let listening = tokio::spawn(async move {
            let mut changes = match peer.listen(filter).await {
                Ok(changes) => changes,
                Err(error) => {
                    tracing::warn!(%error, "an MCP server does not let its changes be listened to");
                    return;
                }
            };
            while let Ok(Some(_)) = changes.next().await {
                let Some(server) = server.upgrade() else { return };
                server.list_again().await;
            }
        });
        self.listening = Some(listening.abort_handle());
    }

    /// Sends a request. Dropping the future cancels it at the server.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        meta: RequestMetaObject,
        caller: Option<&ToolContext>,
    ) -> Result<ServerResult, ServiceError> {
        // Listening starts before the request is sent, so that no notification is missed.
        let mut progress: broadcast::Receiver<_> = self.running.service().progress.subscribe();
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = self.peer().send_cancellable_request(request, options).await?;
        let token = handle.progress_token.clone();
        let mut abandoned = Abandoned(Some((self.peer().clone(), handle.id.clone())));
        let mut response = std::pin::pin!(handle.await_response());
        let result = loop {
            tokio::select! {
                biased;
                Ok(step) = progress.recv() => if step.progress_token == token {
                    report(caller, step).await;
                },
                result = &mut response => break result,
            }
        };
        abandoned.0 = None;
        result
    }
}

/// Passes progress on to the observer of the call.
async fn report(caller: Option<&ToolContext>, step: ProgressNotificationParam) {
    let Some(caller) = caller else { return };
    let mut progress = json!({ "progress": step.progress });
    if let Some(total) = step.total {
        progress["total"] = total.into();
    }
    if let Some(message) = step.message {
        progress["message"] = message.into();
    }
    caller.send_partial(progress).await;
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.abort();
        }
    }
}

/// Returns the lists whose changes a server announces.
fn announced_changes(capabilities: &ServerCapabilities) -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::new();
    let tools = capabilities.tools.as_ref();
    let prompts = capabilities.prompts.as_ref();
    let resources = capabilities.resources.as_ref();
    filter.tools_list_changed = tools
        .and_then(|tools| tools.list_changed)
        .filter(|announced| *announced);
    filter.prompts_list_changed = prompts
        .and_then(|prompts| prompts.list_changed)
        .filter(|announced| *announced);
    filter.resources_list_changed = resources
        .and_then(|resources| resources.list_changed)
        .filter(|announced| *announced);
    filter
}

/// A request that is cancelled on drop.
struct Abandoned(Option<(Peer<RoleClient>, RequestId)>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        let (Some((peer, id)), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            let reason = "the call was cancelled".to_owned();
            let cancelled = CancelledNotificationParam::new(Some(id), Some(reason));
            // A disconnected server needs no cancellation.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}
