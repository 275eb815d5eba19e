//! The caller's settings, and resolving them to a call.

use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Registry, Result, catch_panic};
use futures::future::BoxFuture;
use serde_json::Value;

use super::call::Call;
use super::output::OutputPlan;
use super::partial::Progress;
use super::tool_errors::{Mistakes, ToolErrors};
use super::tool_table::ToolTable;
use crate::format::inject_instructions;
use crate::model::ModelHandle;
use crate::request::laid_over;
use crate::resource::lookup_resource;
use crate::window::window_of;
use crate::{
    Answers, Content, Document, GenerateActionOptions, GenerateActionOutputConfig, Message, Messages,
    Middleware, MiddlewareSource, ModelReference, ModelRequest, ModelResponse, ModelResponseChunk, Resource,
    ToolChoice, ToolReference, Window, default_model,
};

/// The default number of rounds in which a model may request tools, as in Genkit since 1.13.
const DEFAULT_MAX_ROUNDS: u32 = 50;

/// A resource, or the name of a registered one.
#[derive(Clone)]
pub(super) enum ResourceReference {
    Resource(Resource),
    Name(String),
}

#[derive(Clone)]
pub(super) struct Plan {
    pub(super) registry: Registry,
    pub(super) model: Option<ModelReference>,
    /// An error is kept until the call runs, because builder methods do not fail.
    pub(super) config: Result<Option<Value>>,
    pub(super) system: Option<Content>,
    pub(super) messages: Messages,
    pub(super) prompt: Option<Content>,
    pub(super) tools: Vec<ToolReference>,
    pub(super) tool_choice: Option<ToolChoice>,
    pub(super) returns_tool_requests: bool,
    pub(super) max_rounds: Option<u32>,
    pub(super) docs: Vec<Document>,
    pub(super) resources: Vec<ResourceReference>,
    pub(super) output: GenerateActionOutputConfig,
    /// Whether the format was inferred from the output's type, and changes with the type.
    pub(super) has_natural_format: bool,
    pub(super) answers: Option<Answers>,
    pub(super) middleware: Vec<MiddlewareSource>,
    pub(super) context: Option<Context>,
    pub(super) step_name: Option<String>,
    pub(super) allows_blocked: bool,
    /// The context's choice if not given.
    pub(super) tool_errors: Option<ToolErrors>,
    /// The context's choice if not given.
    pub(super) window: Option<Window>,
    pub(super) emitter: Emitter<ModelResponseChunk>,
}

/// The result of a finished call.
#[derive(Clone)]
pub(super) struct Finished {
    pub(super) response: ModelResponse,
    pub(super) output: Arc<OutputPlan>,
}

/// The resolved parts of a call, other than its model.
struct Assembled {
    chain: Vec<Arc<dyn Middleware>>,
    tools: ToolTable,
    resources: Vec<Resource>,
    output: OutputPlan,
}

/// The span in which the first round runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstSpan {
    Own,
    /// The span of the generate action, which has the same form.
    Callers,
}

impl Plan {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            registry: registry.clone(),
            model: None,
            config: Ok(None),
            system: None,
            messages: Messages::new(),
            prompt: None,
            tools: Vec::new(),
            tool_choice: None,
            returns_tool_requests: false,
            max_rounds: None,
            docs: Vec::new(),
            resources: Vec::new(),
            output: GenerateActionOutputConfig::default(),
            has_natural_format: false,
            answers: None,
            middleware: Vec::new(),
            context: None,
            step_name: None,
            allows_blocked: false,
            tool_errors: None,
            window: None,
            emitter: Emitter::silent(),
        }
    }

    pub(super) fn from_options(registry: &Registry, options: GenerateActionOptions) -> Self {
        let names = |names: Option<Vec<String>>| names.into_iter().flatten();
        let middleware = options.middleware.into_iter().flatten();
        Self {
            model: options.model.map(ModelReference::from),
            config: Ok(options.config),
            messages: options.messages,
            tools: names(options.tools).map(ToolReference::Name).collect(),
            tool_choice: options.tool_choice,
            returns_tool_requests: options.return_tool_requests.unwrap_or_default(),
            max_rounds: options.max_rounds,
            docs: options.docs.unwrap_or_default(),
            resources: names(options.resources).map(ResourceReference::Name).collect(),
            output: options.output.unwrap_or_default(),
            answers: options.answers,
            middleware: middleware.map(MiddlewareSource::named).collect(),
            step_name: options.step_name,
            ..Self::new(registry)
        }
    }

    /// Runs the whole generation. Calls `announce` with the output plan before the first chunk is sent.
    ///
    /// The future is boxed twice: a wrapper such as the one that catches panics holds its future by value,
    /// and a large future would be moved across the stack at every layer.
    pub(super) fn run(
        self: Box<Self>,
        first: FirstSpan,
        announce: impl FnOnce(&Arc<OutputPlan>) + Send + 'static,
    ) -> BoxFuture<'static, Result<Finished>> {
        let running = Box::pin(self.run_unguarded(first, announce));
        Box::pin(catch_panic("generate", running))
    }

    async fn run_unguarded(
        self: Box<Self>,
        first: FirstSpan,
        announce: impl FnOnce(&Arc<OutputPlan>),
    ) -> Result<Finished> {
        let context = self.context.clone().unwrap_or_else(Context::current);
        let context = context.with_dependencies(self.registry.dependencies());
        let (emitter, answers) = (self.emitter.clone(), self.answers.clone());
        // Boxed, because it is large and finished before the model is called.
        let (call, request) = Box::pin(self.resolve(&context)).await?;
        let call = Arc::new(call);
        let output = Arc::clone(&call.output);
        // Consumers of the stream parse chunks by this plan.
        announce(&output);
        let round = call.opening(request, answers, &emitter, context.clone());
        let running = Arc::clone(&call);
        let response = match first {
            FirstSpan::Own => running.round(round).await,
            FirstSpan::Callers => running.round_in_current_span(Box::new(round)).await,
        };
        match response {
            Ok(response) => Ok(Finished { response, output }),
            Err(error) => Err(call.progress.attach_to(error, &context)),
        }
    }

    /// Looks up all names and builds the first request.
    async fn resolve(self: Box<Self>, context: &Context) -> Result<(Call, ModelRequest)> {
        self.check_messages()?;
        let model = self.model.clone().or_else(|| default_model(&self.registry));
        let model = model.ok_or_else(|| {
            Error::invalid_argument(
                "no model was named, and there is no default model: name one, or set a default",
            )
        })?;
        let handle = ModelHandle::resolve(&self.registry, &model.name).await?;
        let registry = self.registry.clone();
        let max_rounds = self.max_rounds.unwrap_or(DEFAULT_MAX_ROUNDS);
        let (returns_tool_requests, allows_blocked) = (self.returns_tool_requests, self.allows_blocked);
        let tool_errors = self.tool_errors.unwrap_or_else(|| ToolErrors::of(context));
        let window = self.window.clone().or_else(|| window_of(context));
        let step_name = self.step_name.clone().unwrap_or_else(|| "generate".to_owned());
        let (request, assembled) = self.assemble(model.config).await?;
        let call = Call {
            registry,
            model_name: model.name,
            model: handle,
            chain: assembled.chain.into(),
            tools: assembled.tools,
            resources: assembled.resources,
            output: Arc::new(assembled.output),
            max_rounds,
            returns_tool_requests,
            allows_blocked,
            tool_errors,
            mistakes: Mistakes::default(),
            progress: Progress::default(),
            window,
            step_name,
            message_index: Arc::default(),
        };
        Ok((call, request))
    }

    /// Returns the first request alone, without resolving a model.
    pub(super) async fn request(self) -> Result<ModelRequest> {
        self.check_messages()?;
        let reference = self.model.clone().and_then(|model| model.config);
        Ok(self.assemble(reference).await?.0)
    }

    fn check_messages(&self) -> Result<()> {
        if self.messages.is_empty() && self.system.is_none() && self.prompt.is_none() {
            return Err(Error::invalid_argument(
                "there is nothing to generate from: give a prompt or messages",
            ));
        }
        Ok(())
    }

    /// Looks up middleware, tools, resources and the format, and builds the request; `reference` is the
    /// model's config.
    async fn assemble(self, reference: Option<Value>) -> Result<(ModelRequest, Assembled)> {
        let mut messages = self.all_messages();
        let chain: Vec<Arc<dyn Middleware>> = self
            .middleware
            .iter()
            .map(|source| source.make(&self.registry))
            .collect::<Result<_>>()?;
        // Resolved after the middleware, which adds further tools.
        let tools = ToolTable::resolve(self.tools, &chain, &self.registry).await?;
        let resources = resolve_resources(self.resources, &self.registry).await?;
        let output = OutputPlan::resolve(&self.registry, &self.output)?;
        // Added once, to the first request: later rounds continue with its messages.
        if let Some(instructions) = &output.instructions {
            inject_instructions(&mut messages, instructions);
        }
        let request = ModelRequest {
            messages,
            config: merged(reference, self.config?),
            // Present even if empty, as other runtimes send it.
            tools: Some(tools.definitions()),
            tool_choice: self.tool_choice,
            output: Some(output.config.clone()),
            docs: (!self.docs.is_empty()).then(|| self.docs.into()),
        };
        Ok((
            request,
            Assembled {
                chain,
                tools,
                resources,
                output,
            },
        ))
    }

    /// Concatenates the system message, the conversation and the prompt.
    fn all_messages(&self) -> Messages {
        let Some(system) = &self.system else {
            return self.with_prompt(self.messages.clone());
        };
        let mut messages = Messages::from(Message::system(system.clone()));
        messages.append(self.messages.clone());
        self.with_prompt(messages)
    }

    fn with_prompt(&self, mut messages: Messages) -> Messages {
        if let Some(prompt) = &self.prompt {
            messages.push(Message::user(prompt.clone()));
        }
        messages
    }
}

async fn resolve_resources(references: Vec<ResourceReference>, registry: &Registry) -> Result<Vec<Resource>> {
    let mut resources = Vec::with_capacity(references.len());
    for reference in references {
        resources.push(match reference {
            ResourceReference::Resource(resource) => resource,
            ResourceReference::Name(name) => lookup_resource(registry, &name).await?,
        });
    }
    Ok(resources)
}

/// Returns the call's settings over those of the model reference; `None` instead of an empty object.
fn merged(reference: Option<Value>, call: Option<Value>) -> Option<Value> {
    let merged = match call {
        None | Some(Value::Null) => reference?,
        Some(own) => laid_over(reference, own),
    };
    let is_empty = merged.is_null() || merged.as_object().is_some_and(serde_json::Map::is_empty);
    (!is_empty).then_some(merged)
}
