//! The protocol's requests.

use std::sync::Arc;

use everturn_agent::internal_agents;
use everturn_core::{
    ActionType, Context, Descriptor, DynAction, Error, Exposure, ParsedKey, Result, TraceParent,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscriptionFilter, TASKS_EXTENSION_ID, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext, SubscriptionSendError};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::lists::Lists;
use super::{Exposed, prompts, resources, tasks, tools};
use crate::fault;

/// The handler of one client's requests.
pub(super) struct Session {
    exposed: Arc<Exposed>,
    /// Cancelled when the client disconnects.
    over: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

/// One request with its caller.
pub(super) struct Request<'a> {
    pub(super) exposed: &'a Exposed,
    pub(super) rmcp: &'a RequestContext<RoleServer>,
    pub(super) context: Context,
}

impl Exposed {
    /// Returns the descriptors of the exposed actions of one type, by name. Internal agents are not exposed.
    pub(super) fn of_type(&self, action_type: &ActionType) -> Vec<Descriptor> {
        let mut registered = self.registry.of_type(action_type);
        if *action_type == ActionType::AGENT {
            for internal in internal_agents(&self.registry) {
                registered.remove(&internal);
            }
        }
        let registered = registered.into_iter();
        let described = registered.map(|(name, action)| {
            let mut descriptor = action.descriptor().clone();
            // An action may have a second key.
            descriptor.action_type = action_type.clone();
            descriptor.name = name;
            descriptor
        });
        described.filter(|descriptor| (self.filter)(descriptor)).collect()
    }

    /// Returns the exposed action that is registered under a key. Internal agents are not exposed.
    pub(super) async fn action(&self, key: &str) -> Result<Option<Arc<dyn DynAction>>> {
        let agent = ParsedKey::parse(key).filter(|key| key.action_type == ActionType::AGENT.as_str());
        if agent.is_some_and(|agent| internal_agents(&self.registry).contains(agent.name)) {
            return Ok(None);
        }
        let found = self.registry.lookup(key).await?;
        Ok(found.filter(|action| (self.filter)(action.descriptor())))
    }
}

impl Request<'_> {
    /// Returns how much of an error the client receives.
    pub(super) fn exposure(&self) -> Exposure {
        let given = self.context.extension::<Exposure>();
        given.map_or(self.exposed.exposure, |exposure| *exposure)
    }

    pub(super) fn refuse(&self, error: &Error) -> ErrorData {
        fault::to_protocol(error, self.exposure())
    }
}

impl Session {
    pub(super) fn new(exposed: Arc<Exposed>) -> Self {
        Self {
            exposed,
            over: CancellationToken::new(),
        }
    }

    fn request<'a>(&'a self, rmcp: &'a RequestContext<RoleServer>) -> Request<'a> {
        let context = context_of(rmcp)
            .unwrap_or_else(|| self.exposed.context.clone())
            .child()
            .with_dependencies(self.exposed.registry.dependencies());
        let caller = rmcp.meta.get_traceparent().and_then(TraceParent::parse);
        let state = rmcp.meta.get_tracestate().unwrap_or_default();
        Request {
            exposed: &self.exposed,
            context: match caller {
                Some(caller) => context.with_extension(Arc::new(caller.with_state(state))),
                None => context,
            },
            rmcp,
        }
    }

    /// Runs a request in its context. A client that cancels it or disconnects ends the work.
    async fn answer<'a, T, Fut>(
        &'a self,
        rmcp: &'a RequestContext<RoleServer>,
        work: impl FnOnce(Arc<Request<'a>>) -> Fut,
    ) -> Result<T, ErrorData>
    where
        Fut: Future<Output = Result<T>>,
    {
        let request = Arc::new(self.request(rmcp));
        let context = request.context.clone();
        let work = context.clone().scope(context.guard(work(Arc::clone(&request))));
        let result = tokio::select! {
            biased;
            result = work => result,
            () = rmcp.ct.cancelled() => Err(Error::cancelled("the client cancelled the request")),
        };
        context.cancel();
        result.map_err(|error| request.refuse(&error))
    }
}

/// Returns the caller's context, if the transport has one.
#[cfg(feature = "http")]
fn context_of(rmcp: &RequestContext<RoleServer>) -> Option<Context> {
    let head = rmcp.extensions.get::<axum::http::request::Parts>()?;
    head.extensions.get::<Context>().cloned()
}

#[cfg(not(feature = "http"))]
fn context_of(_rmcp: &RequestContext<RoleServer>) -> Option<Context> {
    None
}

/// Waits until the HTTP server hands calls off to the background; forever over other transports.
#[cfg_attr(not(feature = "http"), allow(unused_variables))]
pub(super) async fn handing_off(context: &Context) {
    #[cfg(feature = "http")]
    if let Some(server) = context.extension::<everturn_server::ServerHandle>() {
        return server.handing_off().cancelled().await;
    }
    std::future::pending::<()>().await;
}

/// Waits until the HTTP server shuts down; forever over other transports.
#[cfg_attr(not(feature = "http"), allow(unused_variables))]
async fn draining(context: Option<Context>) {
    #[cfg(feature = "http")]
    if let Some(server) = context.and_then(|context| context.extension::<everturn_server::ServerHandle>()) {
        return server.draining().cancelled().await;
    }
    std::future::pending::<()>().await;
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let tasks = (TASKS_EXTENSION_ID.to_owned(), Map::new());
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_completions()
            .enable_extensions_with([tasks].into_iter().collect())
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new(&self.exposed.name, &self.exposed.version);
        info.instructions.clone_from(&self.exposed.instructions);
        info
    }

    /// Clients of versions with a handshake are notified of changes without a subscription.
    async fn on_initialized(&self, rmcp: NotificationContext<RoleServer>) {
        let (exposed, peer) = (Arc::clone(&self.exposed), rmcp.peer);
        let telling = async move {
            let mut lists = Lists::new(&exposed);
            loop {
                for list in lists.changed(&exposed).await {
                    if peer.send_notification(list.notification()).await.is_err() {
                        return;
                    }
                }
            }
        };
        tokio::spawn(self.over.clone().run_until_cancelled_owned(telling));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    /// Clients of the stateless version are notified of changes while they listen.
    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let draining = draining(context_of(subscription.request_context()));
        let mut lists = Lists::new(&self.exposed);
        let telling = async {
            loop {
                for list in lists.changed(&self.exposed).await {
                    match subscription.sink().send(list.notification()).await {
                        // The client subscribed to other lists.
                        Ok(()) | Err(SubscriptionSendError::NotificationNotAccepted(_)) => {}
                        Err(error) => return error,
                    }
                }
            }
        };
        tokio::select! {
            () = subscription.cancelled() => Ok(()),
            () = draining => Ok(()),
            error = telling => Err(ErrorData::internal_error(error.to_string(), None)),
        }
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _rmcp: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(&self.exposed)))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.answer(
            &rmcp,
            |request| async move { tools::call(&request, params).await },
        )
        .await
    }

    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _rmcp: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list(&self.exposed)))
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.answer(
            &rmcp,
            |request| async move { prompts::get(&request, params).await },
        )
        .await
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.answer(&rmcp, |request| async move {
            prompts::complete(&request, params).await
        })
        .await
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _rmcp: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(
            &self.exposed,
        )))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _rmcp: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates(
            &self.exposed,
        )))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.answer(&rmcp, |request| async move {
            resources::read(&request, &params.uri).await
        })
        .await
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.answer(&rmcp, |request| async move {
            tasks::get(&request, &params.task_id).await
        })
        .await
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer(
            &rmcp,
            |request| async move { tasks::update(&request, params).await },
        )
        .await
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer(&rmcp, |request| async move {
            tasks::cancel(&request, &params.task_id).await
        })
        .await
    }
}
