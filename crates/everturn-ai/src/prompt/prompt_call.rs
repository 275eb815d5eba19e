//! One call of a prompt, with its overrides.

use std::future::IntoFuture;
use std::marker::PhantomData;

use everturn_core::{Context, Result, SpanKind, in_span};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Prompt, PromptOverrides};
use crate::{
    Document, Generate, GenerateActionOptions, GenerateStream, Generated, IntoMiddleware, IntoTool, Messages,
    ModelReference, ModelRequest, ToolChoice,
};

/// A prompt about to be used. Settings made here override the prompt's.
#[must_use = "a call does nothing until it is run, awaited, streamed or rendered"]
pub struct PromptCall<O = Value> {
    prompt: Prompt,
    input: Value,
    conversation: Messages,
    context: Option<Context>,
    overrides: PromptOverrides,
    output: PhantomData<fn() -> O>,
}

impl<O> PromptCall<O> {
    pub(super) fn new(prompt: Prompt, input: Value) -> Self {
        Self {
            prompt,
            input,
            conversation: Messages::new(),
            context: None,
            overrides: PromptOverrides::new(),
            output: PhantomData,
        }
    }

    everturn_core::setters! {
        /// Sets the conversation so far; the prompt decides where it goes.
        pub fn messages(mut self, messages: impl Into<Messages>) { self.conversation.append(messages) }

        /// Sets the context: the caller's identity and the deadline; the current context if not given.
        pub fn context(mut self, context: Context) { self.context = Some(context) }

        /// Overrides the model.
        pub fn model(mut self, model: impl Into<ModelReference>) {
            self.overrides = self.overrides.model(model);
        }

        /// Overrides settings for the model, key by key.
        pub fn config(mut self, config: impl Serialize) { self.overrides = self.overrides.config(config) }

        /// Replaces the documents.
        pub fn docs(mut self, docs: impl IntoIterator<Item = impl Into<Document>>) {
            self.overrides = self.overrides.docs(docs);
        }

        /// Replaces the tools.
        pub fn tools(mut self, tools: impl IntoIterator<Item = impl IntoTool>) {
            self.overrides = self.overrides.tools(tools);
        }

        /// Sets whether the model may, must or must not call tools.
        pub fn tool_choice(mut self, choice: ToolChoice) {
            self.overrides = self.overrides.tool_choice(choice);
        }

        /// Sets in how many rounds the model may ask for tools before the call fails.
        pub fn max_rounds(mut self, rounds: u32) { self.overrides = self.overrides.max_rounds(rounds) }

        /// Sets whether to return tool requests to the caller instead of running the tools.
        pub fn return_tool_requests(mut self, returns: bool) {
            self.overrides = self.overrides.return_tool_requests(returns);
        }

        /// Another format of the output.
        pub fn output_format(mut self, format: impl Into<String>) {
            self.overrides = self.overrides.output_format(format);
        }

        /// Adds middleware, which replaces the prompt's.
        pub fn use_middleware(mut self, middleware: impl IntoMiddleware) {
            self.overrides = self.overrides.use_middleware(middleware);
        }
    }

    /// Another type of output.
    pub fn output<T: JsonSchema>(self) -> PromptCall<T> {
        PromptCall {
            prompt: self.prompt,
            input: self.input,
            conversation: self.conversation,
            context: self.context,
            overrides: self.overrides.output::<T>(),
            output: PhantomData,
        }
    }

    /// Returns the first request to the model, including output instructions and tool definitions.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn render(self) -> Result<ModelRequest> {
        self.prepare().await?.request().await
    }

    /// Returns the generation as options that refer to everything by name; omits unnamed values, such as
    /// middleware made in Rust.
    ///
    /// # Errors
    /// As [`Prompt::render`].
    pub async fn options(self) -> Result<GenerateActionOptions> {
        let context = self.context.unwrap_or_else(Context::current);
        let rendered = self
            .prompt
            .render_around(&self.input, self.conversation, context)
            .await?;
        Ok(rendered.overridden(&self.overrides)?.options())
    }

    /// Runs the prompt in its own span.
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
        let rendered = rendered.overridden(&self.overrides)?;
        let generate = rendered
            .generate(&prompt.registry)
            .messages(rendered.messages())
            .context(context);
        Ok(generate.read_as())
    }
}

impl<O: 'static> IntoFuture for PromptCall<O> {
    type Output = Result<Generated<O>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

everturn_core::opaque_debug!(PromptCall<O>, prompt.name);
