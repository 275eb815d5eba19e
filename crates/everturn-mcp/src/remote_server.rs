//! A remote server: its connection, and its tools, prompts and resources in the registry.

mod link;
mod prompt;
mod resource;
mod task;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;

use everturn_ai::prompt::remove_prompt;
use everturn_ai::{EffectId, ToolContext};
use everturn_core::{ActionType, Context, DynAction, Registry, Result, Status, TraceParent, WeakRegistry};
use futures::future::BoxFuture;
use rmcp::model::{ClientRequest, RequestMetaObject, ServerResult};
use rmcp::service::RunningService;
use rmcp::{RoleClient, ServiceError};
use tokio::sync::Mutex;

use self::link::Link;
use self::resource::Address;
use crate::endpoint::Endpoint;
use crate::fault;
use crate::handler::Handler;
use crate::settings::Settings;

/// One MCP server. It is connected on demand, and again after a disconnection.
pub(crate) struct RemoteServer {
    pub(crate) name: Arc<str>,
    endpoint: Endpoint,
    settings: Arc<Settings>,
    registry: WeakRegistry,
    link: Mutex<Option<Arc<Link>>>,
    offer: Mutex<Offer>,
    /// The tasks of active calls, by the calls' identities.
    tasks: Mutex<BTreeMap<String, String>>,
}

/// The maximum number of tasks that are noted.
const MAX_NOTED_TASKS: usize = 1_000;

/// The tools, prompts and resources of a server, as last listed and registered.
type Offer = BTreeMap<Offered, Listed>;

/// One entry of the registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Offered {
    Tool(String),
    Prompt(String),
    Resource(String),
}

impl Offered {
    fn name(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Prompt(name) | Self::Resource(name) => name,
        }
    }
}

impl RemoteServer {
    pub(crate) fn new(name: &str, endpoint: Endpoint, settings: &Arc<Settings>, registry: &Registry) -> Self {
        Self {
            name: name.into(),
            endpoint,
            settings: Arc::clone(settings),
            registry: registry.downgrade(),
            link: Mutex::default(),
            offer: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// Notes the task of a call, until the call has ended.
    pub(crate) async fn note_task(&self, call: &EffectId, task: &str) {
        let mut tasks = self.tasks.lock().await;
        // Cancelled calls never end; without the note, their outcome is unknown.
        if tasks.len() >= MAX_NOTED_TASKS {
            tasks.pop_first();
        }
        tasks.insert(call.to_string(), task.to_owned());
    }

    /// Returns the task of a call.
    pub(crate) async fn task_of(&self, call: &EffectId) -> Option<String> {
        self.tasks.lock().await.get(call.as_str()).cloned()
    }

    /// Removes the task of a call that has ended.
    pub(crate) async fn forget_task(&self, call: &EffectId) {
        self.tasks.lock().await.remove(call.as_str());
    }

    pub(crate) async fn connect(self: &Arc<Self>) -> Result<RunningService<RoleClient, Handler>> {
        let server = Arc::downgrade(self);
        let changed = move || {
            if let Some(server) = server.upgrade() {
                tokio::spawn(async move { server.list_again().await });
            }
        };
        let handler = Handler::new(&self.name, &self.settings, Arc::new(changed));
        self.endpoint.connect(&self.name, handler).await
    }

    /// Returns the connection. If there is none or the last one failed, connects and reads the lists again.
    pub(crate) fn link(self: &Arc<Self>) -> BoxFuture<'_, Result<Arc<Link>>> {
        Box::pin(self.linked())
    }

    async fn linked(self: &Arc<Self>) -> Result<Arc<Link>> {
        let mut slot = self.link.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Ok(Arc::clone(link));
        }
        // The old connection, and its process, end before the next starts.
        *slot = None;
        let mut link = Link::open(self).await?;
        link.listen(self);
        self.list(read_lists(&link)).await?;
        let link = Arc::new(link);
        *slot = Some(Arc::clone(&link));
        Ok(link)
    }

    /// Returns whether there is a connection that appears usable.
    pub(crate) async fn is_connected(&self) -> bool {
        self.link.lock().await.as_ref().is_some_and(|link| link.is_open())
    }

    /// Closes the connection, and ends the server's process if it has one. The next use connects again.
    pub(crate) async fn disconnect(&self) {
        *self.link.lock().await = None;
    }

    /// Detaches a failed connection. Other users of it finish by themselves.
    async fn abandon(&self, link: &Arc<Link>) {
        let mut slot = self.link.lock().await;
        if slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *slot = None;
        }
    }

    /// Sends a request. A rejected token is exchanged once.
    pub(crate) async fn request(
        self: &Arc<Self>,
        request: ClientRequest,
        context: &Context,
        caller: Option<&ToolContext>,
    ) -> Result<ServerResult> {
        let mut may_exchange_token = self.endpoint.has_token();
        loop {
            let link = match self.link().await {
                Err(error) if may_exchange_token && error.status() == Status::Unauthenticated => {
                    may_exchange_token = false;
                    continue;
                }
                link => link?,
            };
            let error = match link.request(request.clone(), meta(context), caller).await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if fault::is_disconnected(&error) {
                self.abandon(&link).await;
            }
            if !(may_exchange_token && fault::is_unauthorized(&error)) {
                return Err(fault::request_failed(&self.name, &error));
            }
            may_exchange_token = false;
        }
    }

    /// Reads the lists again, after the server has announced a change.
    pub(crate) async fn list_again(self: &Arc<Self>) {
        let link = self.link.lock().await.clone();
        let Some(link) = link else { return };
        if let Err(error) = self.list(read_lists(&link)).await {
            tracing::warn!(server = %self.name, %error, "the changed lists of an MCP server cannot be read");
        }
    }

    /// Reads the lists and updates the registry: new entries are added, changed ones replaced, and missing
    /// ones removed.
    async fn list(self: &Arc<Self>, reading: Reading) -> Result<()> {
        // One update at a time, so that an earlier one never replaces a later one.
        let mut offer = self.offer.lock().await;
        let reading = reading.await;
        let registry = self.registry.upgrade()?;
        let mut listed = Offer::new();
        for entry in reading.map_err(|error| fault::request_failed(&self.name, &error))? {
            let mut offered = self.offered(&entry);
            if let (Listed::Resource(address), true) = (&entry, listed.contains_key(&offered)) {
                // Names of resources may repeat; their addresses are unique.
                offered = Offered::Resource(self.name_of(address.text()));
            }
            listed.entry(offered).or_insert(entry);
        }
        for gone in offer.keys().filter(|offered| !listed.contains_key(offered)) {
            remove(&registry, gone);
        }
        for (offered, entry) in &listed {
            match offer.get(offered) {
                Some(known) if known == entry => continue,
                Some(_) => {
                    tracing::warn!(server = %self.name, ?offered, "an MCP server changed what it offers");
                    remove(&registry, offered);
                }
                None => {}
            }
            let registered = match entry {
                Listed::Tool(tool) => tool::register(self, tool, &registry),
                Listed::Prompt(prompt) => prompt::register(self, prompt, &registry),
                Listed::Resource(address) => resource::register(self, offered, address, &registry),
            };
            if let Err(error) = registered {
                tracing::warn!(server = %self.name, ?offered, %error, "something of an MCP server is left out");
            }
        }
        *offer = listed;
        Ok(())
    }

    fn offered(&self, entry: &Listed) -> Offered {
        match entry {
            Listed::Tool(tool) => Offered::Tool(self.name_of(&tool.name)),
            Listed::Prompt(prompt) => Offered::Prompt(self.name_of(&prompt.name)),
            Listed::Resource(address) => Offered::Resource(self.name_of(&address.name)),
        }
    }

    /// Returns the registry's entry of a name of this server.
    pub(crate) fn registered(&self, action_type: &ActionType, id: &str) -> Option<Arc<dyn DynAction>> {
        let key = action_type.key(&self.name_of(id));
        self.registry.upgrade().ok()?.get(&key)
    }

    /// Returns the name of a server's entry in the registry.
    pub(crate) fn name_of(&self, own: &str) -> String {
        format!("{}/{own}", self.name)
    }
}

type Reading = BoxFuture<'static, Result<Vec<Listed>, ServiceError>>;

/// An entry of a server's lists.
#[derive(PartialEq)]
enum Listed {
    Tool(rmcp::model::Tool),
    Prompt(rmcp::model::Prompt),
    Resource(Address),
}

/// Reads the lists of a server.
fn read_lists(link: &Link) -> Reading {
    let (peer, capabilities) = (link.peer().clone(), link.capabilities());
    Box::pin(async move {
        let mut lists = Vec::new();
        if capabilities.tools.is_some() {
            lists.extend(peer.list_all_tools().await?.into_iter().map(Listed::Tool));
        }
        if capabilities.prompts.is_some() {
            lists.extend(peer.list_all_prompts().await?.into_iter().map(Listed::Prompt));
        }
        if capabilities.resources.is_some() {
            let resources = peer.list_all_resources().await?;
            // Not every server with resources has templates.
            let templates = peer.list_all_resource_templates().await.unwrap_or_default();
            let templates = templates.iter().map(Address::of_template);
            lists.extend(
                resources
                    .iter()
                    .map(Address::of)
                    .chain(templates)
                    .map(Listed::Resource),
            );
        }
        Ok(lists)
    })
}

fn remove(registry: &Registry, offered: &Offered) {
    match offered {
        Offered::Tool(name) => {
            for kind in [ActionType::TOOL, ActionType::TOOL_V2] {
                registry.remove(&kind.key(name));
            }
        }
        Offered::Prompt(name) => remove_prompt(registry, name),
        Offered::Resource(name) => {
            registry.remove(&ActionType::RESOURCE.key(name));
        }
    }
}

/// Returns the metadata of a request: the value `mcp._meta` of the context, and the trace of the call.
fn meta(context: &Context) -> RequestMetaObject {
    let given = context.value("mcp").and_then(|mcp| mcp.get("_meta"));
    let mut meta: RequestMetaObject = given
        .and_then(|meta| serde_json::from_value(meta.clone()).ok())
        .unwrap_or_default();
    let own = TraceParent::current().or_else(|| TraceParent::of(context));
    if let Some(parent) = own.map(|own| own.to_string()).or_else(trace_parent) {
        meta.set_traceparent(parent);
    }
    meta
}

/// Returns the current span in the standard form for trace contexts.
#[cfg(feature = "opentelemetry")]
fn trace_parent() -> Option<String> {
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    span.is_valid().then(|| format!("00-{trace}-{id}-{flags:02x}"))
}

#[cfg(not(feature = "opentelemetry"))]
fn trace_parent() -> Option<String> {
    None
}
