//! One call of a prompt, with its overrides.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;

use everturn_core::{Context, Error, Result, SpanKind, in_span};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use super::{Prompt, RenderedPrompt};
use crate::request::laid_over;
use crate::{
    Document, Generate, GenerateActionOptions, GenerateStream, Generated, IntoMiddleware, IntoTool, Messages,
    MiddlewareSource, ModelReference, ModelRequest, ToolChoice, ToolReference,
};

/// A prompt about to be used. Settings made here override the prompt's.
#[must_use = "a call does nothing until it is run, awaited, streamed or rendered"]
pub struct PromptCall<O = Value> {
    prompt: Prompt,
    input: Value,
    conversation: Messages,
    context: Option<Context>,
    changes: Changes,
    output: PhantomData<fn() -> O>,
}

#[derive(Default)]
struct Changes {
    model: Option<ModelReference>,
    config: Option<Result<Value>>,
    docs: Option<Vec<Document>>,
    tools: Option<Vec<ToolReference>>,
    tool_choice: Option<ToolChoice>,
    max_rounds: Option<u32>,
    return_tool_requests: Option<bool>,
    middleware: Option<Vec<MiddlewareSource>>,
}

impl<O> PromptCall<O> {
    pub(super) fn new(prompt: Prompt, input: Value) -> Self {
        Self {
            prompt,
            input,
            conversation: Messages::new(),
            context: None,
            changes: Changes::default(),
            output: PhantomData,
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Changes)) -> Self {
        change(&mut self.changes);
        self
    }

    /// Sets the conversation so far; the prompt decides where it goes.
    pub fn messages(mut self, messages: impl Into<Messages>) -> Self {
        self.conversation.append(messages);
        self
    }

    /// Sets the context: the caller's identity and the deadline; the current context if not given.
    pub fn context(mut self, context: Context) -> Self {
        self.context = Some(context);
        self
    }

    /// Overrides the model.
    pub fn model(self, model: impl Into<ModelReference>) -> Self {
        self.change(|changes| changes.model = Some(model.into()))
    }

    /// Overrides settings for the model, key by key.
    pub fn config(self, config: impl Serialize) -> Self {
        self.change(|changes| changes.config = Some(serde_json::to_value(config).map_err(Error::from)))
    }

    /// Replaces the documents.
    pub fn docs(self, docs: impl IntoIterator<Item = impl Into<Document>>) -> Self {
        self.change(|changes| changes.docs = Some(docs.into_iter().map(Into::into).collect()))
    }

    /// Replaces the tools.
    pub fn tools(self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        self.change(|changes| changes.tools = Some(tools.into_iter().map(IntoTool::into_tool).collect()))
    }

    /// Sets whether the model may, must or must not call tools.
    pub fn tool_choice(self, choice: ToolChoice) -> Self {
        self.change(|changes| changes.tool_choice = Some(choice))
    }

    /// Sets in how many rounds the model may ask for tools before the call fails.
    pub fn max_rounds(self, rounds: u32) -> Self {
        self.change(|changes| changes.max_rounds = Some(rounds))
    }

    /// Sets whether to return tool requests to the caller instead of running the tools.
    pub fn return_tool_requests(self, returns: bool) -> Self {
        self.change(|changes| changes.return_tool_requests = Some(returns))
    }

    /// Adds middleware, which replaces the prompt's.
    pub fn use_middleware(self, middleware: impl IntoMiddleware) -> Self {
        self.change(|changes| {
            changes
                .middleware
                .get_or_insert_default()
                .push(middleware.into_middleware());
        })
    }

    /// Returns the request that a model would be sent, including output instructions and tool definitions.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn render(self) -> Result<ModelRequest> {
        self.prepare().await?.request().await
    }

    /// Returns the generation as options that name everything; leaves out what has no name, such as middleware made in
    /// Rust.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn options(self) -> Result<GenerateActionOptions> {
        let context = self.context.unwrap_or_else(Context::current);
        let rendered = self
            .prompt
            .render_around(&self.input, self.conversation, context)
            .await?;
        Ok(self.changes.applied(rendered)?.options())
    }

    /// Runs the prompt in a span of its own.
    ///
    /// # Errors
    /// As [`Prompt::generate`].
    pub async fn run(self) -> Result<Generated<O>> {
        let name = self.prompt.name.clone();
        let context = self.context.clone().unwrap_or_else(Context::current);
        in_span(&name, SpanKind::Dotprompt, context, async |context, recorder| {
            recorder.input(&self.input);
            // Both the rendering and the generation belong to this span.
            let reply = self
                .context(context.clone())
                .prepare()
                .await?
                .context(context)
                .run()
                .await?;
            recorder.output(&*reply);
            Ok(reply)
        })
        .await
    }

    /// Renders the prompt and streams the generation.
    ///
    /// # Errors
    /// As [`Prompt::render`]; later failures end the stream.
    pub async fn stream(self) -> Result<GenerateStream<O>> {
        Ok(self.prepare().await?.stream())
    }

    /// Prepares the generation for this call.
    async fn prepare(self) -> Result<Generate<O>> {
        let context = self.context.unwrap_or_else(Context::current);
        let prompt = &self.prompt;
        let rendered = prompt
            .render_around(&self.input, self.conversation, context.clone())
            .await?;
        let rendered = self.changes.applied(rendered)?;
        let generate = rendered
            .generate(&prompt.registry)
            .messages(rendered.messages())
            .context(context);
        Ok(generate.read_as())
    }
}

impl Changes {
    fn applied(self, mut rendered: RenderedPrompt) -> Result<RenderedPrompt> {
        let settings = rendered.settings_mut();
        if let Some(model) = self.model {
            settings.model = Some(model);
        }
        if let Some(config) = self.config.transpose()? {
            settings.config = Some(laid_over(settings.config.take(), config));
        }
        if let Some(docs) = self.docs {
            settings.docs = docs;
        }
        if let Some(tools) = self.tools {
            settings.tools = tools;
        }
        if let Some(middleware) = self.middleware {
            settings.middleware = middleware;
        }
        settings.tool_choice = self.tool_choice.or(settings.tool_choice);
        settings.max_rounds = self.max_rounds.or(settings.max_rounds);
        settings.return_tool_requests = self.return_tool_requests.or(settings.return_tool_requests);
        Ok(rendered)
    }
}

impl<O: 'static> IntoFuture for PromptCall<O> {
    type Output = Result<Generated<O>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<O> fmt::Debug for PromptCall<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptCall")
            .field("prompt", &self.prompt.name)
            .finish_non_exhaustive()
    }
}
