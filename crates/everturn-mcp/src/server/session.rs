//! The protocol's requests, as a client makes them.

use std::sync::Arc;

use everturn_core::{Context, DynAction, Error, Exposure, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, PromptsCapability, ReadResourceRequestParams, ReadResourceResponse,
    ResourcesCapability, ServerCapabilities, ServerConfig, TASKS_EXTENSION_ID, ToolsCapability,
    UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::Map;

use super::{Exposed, prompts, resources, tasks, tools};
use crate::fault;

/// What a client of the server is served by.
pub(super) struct Session(pub(super) Arc<Exposed>);

/// One request, with who makes it.
pub(super) struct Request<'a> {
    pub(super) exposed: &'a Exposed,
    pub(super) rmcp: &'a RequestContext<RoleServer>,
    pub(super) context: Context,
}

impl Exposed {
    /// An exposed action that is registered under a key.
    pub(super) async fn action(&self, key: &str) -> Result<Option<Arc<dyn DynAction>>> {
        let found = self.registry.lookup(key).await?;
        Ok(found.filter(|action| (self.filter)(action.descriptor())))
    }
}

impl Request<'_> {
    /// How much of an error the client is told.
    pub(super) fn exposure(&self) -> Exposure {
        let given = self.context.extension::<Exposure>();
        given.map_or(self.exposed.exposure, |exposure| *exposure)
    }

    pub(super) fn refuse(&self, error: &Error) -> ErrorData {
        fault::to_protocol(error, self.exposure())
    }
}

impl Session {
    fn request<'a>(&'a self, rmcp: &'a RequestContext<RoleServer>) -> Request<'a> {
        Request {
            exposed: &self.0,
            context: context_of(rmcp).unwrap_or_else(|| self.0.context.clone()).child(),
            rmcp,
        }
    }

    /// Does the work of a request in its context. A client that cancels it, or leaves, ends the work.
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

/// The caller's context, if the transport knows one.
#[cfg(feature = "http")]
fn context_of(rmcp: &RequestContext<RoleServer>) -> Option<Context> {
    let head = rmcp.extensions.get::<axum::http::request::Parts>()?;
    head.extensions.get::<Context>().cloned()
}

#[cfg(not(feature = "http"))]
fn context_of(_rmcp: &RequestContext<RoleServer>) -> Option<Context> {
    None
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = Some(ToolsCapability::default());
        capabilities.prompts = Some(PromptsCapability::default());
        capabilities.resources = Some(ResourcesCapability::default());
        capabilities.completions = Some(Map::new());
        let tasks = (TASKS_EXTENSION_ID.to_owned(), Map::new());
        capabilities.extensions = Some([tasks].into_iter().collect());
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new(&self.0.name, &self.0.version);
        info.instructions.clone_from(&self.0.instructions);
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listed = self.answer(&rmcp, |request| async move { tools::list(&request).await });
        Ok(ListToolsResult::with_all_items(listed.await?))
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
        rmcp: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let listed = self.answer(&rmcp, |request| async move { prompts::list(&request).await });
        Ok(ListPromptsResult::with_all_items(listed.await?))
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
        rmcp: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let listed = self.answer(&rmcp, |request| async move { resources::list(&request).await });
        Ok(ListResourcesResult::with_all_items(listed.await?))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        rmcp: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listed = self.answer(
            &rmcp,
            |request| async move { resources::templates(&request).await },
        );
        Ok(ListResourceTemplatesResult::with_all_items(listed.await?))
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
