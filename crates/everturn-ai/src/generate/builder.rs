//! The builder of a generation.

use std::future::IntoFuture;
use std::marker::PhantomData;

use everturn_core::{Context, Emitter, Registry, Result, Schema};
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::plan::{FirstSpan, Plan, ResourceReference};
use super::{GenerateStream, Generated, ToolErrors};
use crate::{
    Answers, Content, Document, GenerateActionOptions, GenerateActionOutputConfig, IntoMiddleware, IntoTool,
    Messages, ModelReference, ModelRequest, ModelResponseChunk, OutputInstructions, Part, Resource,
    ToolChoice, Window,
};

/// A generation to run. Everything is optional except the input.
///
/// `T` is the type that [`Generated::output`] returns; choose it with [`Generate::output`].
///
/// ```
/// use everturn_ai::{Generate, ModelInfo, ModelResponse, Tool, ToolContext, define_model};
/// use everturn_core::{Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// define_model(&registry, "cook", ModelInfo::default(), |_request, _emitter, _context| async {
///     Ok(ModelResponse::text_of("Leek soup."))
/// })?;
/// let season = Tool::new("season", "What is in season.", |month: u8, _cx: ToolContext| async move {
///     Ok(if month < 4 { "leeks" } else { "peas" })
/// });
///
/// let reply = Generate::new(&registry)
///     .model("cook")
///     .system("You are a chef.")
///     .prompt("Something for March?")
///     .tool(season)
///     .await?;
///
/// assert_eq!(reply.text(), "Leek soup.");
/// # Ok(()) }
/// ```
#[must_use = "a generation does nothing until it is run, awaited or streamed"]
pub struct Generate<T = Value> {
    plan: Box<Plan>,
    output: PhantomData<fn() -> T>,
}

impl Generate {
    /// Creates a generation that finds models, tools and middleware in a registry.
    pub fn new(registry: &Registry) -> Self {
        Self {
            plan: Box::new(Plan::new(registry)),
            output: PhantomData,
        }
    }

    /// Creates a generation from options that refer to everything by name, as prompts and remote callers send
    /// them.
    pub fn from_options(registry: &Registry, options: GenerateActionOptions) -> Self {
        Self {
            plan: Box::new(Plan::from_options(registry, options)),
            output: PhantomData,
        }
    }
}

impl<T> Generate<T> {
    everturn_core::setters! {
        /// Sets the model, by name or with settings for it; the registry's default model if not given.
        pub fn model(mut self, model: impl Into<ModelReference>) { self.plan.model = Some(model.into()) }

        /// Sets the settings for the model, which override those of the model reference key by key.
        pub fn config(mut self, config: impl Serialize) {
            self.plan.config = serde_json::to_value(config).map(Some).map_err(Into::into);
        }

        /// Sets the system prompt, put before all messages.
        pub fn system(mut self, content: impl Into<Content>) { self.plan.system = Some(content.into()) }

        /// Appends messages to the conversation. A [`History`](crate::History) is shared, not copied.
        pub fn messages(mut self, messages: impl Into<Messages>) {
            self.plan.messages.append(messages.into());
        }

        /// Sets the user's new message, which comes after all messages.
        pub fn prompt(mut self, content: impl Into<Content>) { self.plan.prompt = Some(content.into()) }

        /// Adds a tool that the model may call; it replaces an earlier one of the same name.
        pub fn tool(mut self, tool: impl IntoTool) { tool.into_tool().add_to(&mut self.plan.tools) }
    }

    /// Adds tools that the model may call, each as with [`Generate::tool`].
    pub fn tools(self, tools: impl IntoIterator<Item = impl IntoTool>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    everturn_core::setters! {
        /// Sets whether the model may, must or must not call tools.
        pub fn tool_choice(mut self, choice: ToolChoice) { self.plan.tool_choice = Some(choice) }

        /// Sets whether to return tool requests to the caller instead of running the tools.
        pub fn return_tool_requests(mut self, returns: bool) { self.plan.returns_tool_requests = returns }

        /// Sets the number of rounds in which the model may request tools before the call fails; 50 by
        /// default.
        pub fn max_rounds(mut self, rounds: u32) { self.plan.max_rounds = Some(rounds) }

        /// Adds documents to answer from.
        pub fn docs(mut self, docs: impl IntoIterator<Item = impl Into<Document>>) {
            self.plan.docs.extend(docs.into_iter().map(Into::into));
        }

        /// Adds a resource that messages may link to. It is searched before the registered ones.
        pub fn resource(mut self, resource: Resource) {
            self.plan.resources.push(ResourceReference::Resource(resource));
        }

        /// Adds a registered resource that is searched before the other registered ones.
        pub fn resource_named(mut self, name: impl Into<String>) {
            self.plan.resources.push(ResourceReference::Name(name.into()));
        }
    }

    /// Requests output of a Rust type.
    ///
    /// The schema is the type's. The format is `json` by default, `enum` for a type of constant strings only,
    /// and `text` for a `String`.
    pub fn output<U: JsonSchema>(mut self) -> Generate<U> {
        let schema = Schema::of::<U>();
        let plan = &mut self.plan;
        // A format that the caller named stays; one that was inferred from an earlier type is replaced.
        if plan.output.format.is_none() || plan.has_natural_format {
            plan.output.format = natural_format(schema.as_json()).map(str::to_owned);
            plan.has_natural_format = true;
        }
        // With the schema of a bare string, models would quote their text.
        let is_text = plan.output.format.as_deref() == Some("text");
        plan.output.json_schema = (!is_text).then(|| schema.as_json().clone());
        self.read_as()
    }

    /// Requests output in a format: `text`, `json`, `array`, `jsonl`, `enum`, or a custom format.
    pub fn output_format(mut self, format: impl Into<String>) -> Self {
        self.plan.output.format = Some(format.into());
        self.plan.has_natural_format = false;
        self
    }

    everturn_core::setters! {
        /// Requests output of a JSON Schema.
        pub fn output_schema(mut self, schema: &Schema) {
            self.plan.output.json_schema = Some(schema.as_json().clone());
        }

        /// Sets whether the provider should enforce the schema; the format decides if not given.
        pub fn output_constrained(mut self, constrained: bool) {
            self.plan.output.constrained = Some(constrained);
        }

        /// Sets the MIME type of the output; the format's if not given.
        pub fn output_content_type(mut self, content_type: impl Into<String>) {
            self.plan.output.content_type = Some(content_type.into());
        }

        /// Sets whether, and with which text, the prompt describes the format; the format decides if not
        /// given.
        pub fn output_instructions(mut self, instructions: impl Into<OutputInstructions>) {
            self.plan.output.instructions = Some(instructions.into());
        }

        /// Requests the output that a prompt describes.
        pub(crate) fn output_config(mut self, output: GenerateActionOutputConfig) {
            self.plan.output = output;
        }
    }

    /// Changes the type of the parsed output.
    pub(crate) fn read_as<U>(self) -> Generate<U> {
        Generate {
            plan: self.plan,
            output: PhantomData,
        }
    }

    everturn_core::setters! {
        /// Answers the interrupted tool requests of the last message. Replaces earlier answers.
        pub fn answers(mut self, answers: impl Into<Answers>) { self.plan.answers = Some(answers.into()) }

        /// Answers an interrupted tool request with a response, made by
        /// [`Tool::respond`](crate::Tool::respond) or [`Part::respond`].
        pub fn respond(mut self, answer: Part) {
            self.plan.answers.get_or_insert_default().respond.push(answer);
        }

        /// Answers an interrupted tool request with a restart, made by
        /// [`Tool::restart`](crate::Tool::restart) or [`Part::restart`].
        pub fn restart(mut self, request: Part) {
            self.plan.answers.get_or_insert_default().restart.push(request);
        }

        /// Adds middleware for this generation; the first one added is the outermost.
        pub fn use_middleware(mut self, middleware: impl IntoMiddleware) {
            self.plan.middleware.push(middleware.into_middleware());
        }

        /// Sets the context: the caller's identity and the deadline; the current context if not given.
        pub fn context(mut self, context: Context) { self.plan.context = Some(context) }

        /// Sets the name of the rounds' spans.
        pub fn step_name(mut self, name: impl Into<String>) { self.plan.step_name = Some(name.into()) }

        /// Sets whether errors of tool calls are returned to the model. By default every failure ends the
        /// generation; in an agent's turn, the agent's choice applies.
        pub fn tool_errors(mut self, choice: ToolErrors) { self.plan.tool_errors = Some(choice) }

        /// Sets the context window of a long conversation: in an agent's turn the agent's window if not
        /// given, otherwise no window. The response has all messages in any case.
        pub fn window(mut self, window: Window) { self.plan.window = Some(window) }

        /// Returns a blocked response to the caller instead of failing.
        pub fn allow_blocked(mut self) { self.plan.allows_blocked = true }

        /// Sends chunks to `emitter` as they arrive, for a caller that feeds its own stream.
        pub fn emitter(mut self, emitter: Emitter<ModelResponseChunk>) { self.plan.emitter = emitter }
    }

    /// Runs the generation to its end.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an invalid request, `NOT_FOUND` for a name that does not exist, the errors in
    /// the table of [the module](crate::Generate), and the model's error.
    pub async fn run(self) -> Result<Generated<T>> {
        Ok(Generated::new(self.plan.run(FirstSpan::Own, |_| ()).await?))
    }

    /// Returns the first request to the model; no model is needed.
    pub(crate) async fn request(self) -> Result<ModelRequest> {
        self.plan.request().await
    }

    /// Starts the generation in its own task and streams its chunks.
    pub fn stream(self) -> GenerateStream<T> {
        GenerateStream::start(self.plan)
    }
}

impl<T: 'static> IntoFuture for Generate<T> {
    type Output = Result<Generated<T>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// Returns the format in which models write a value best that is neither an object nor an array.
fn natural_format(schema: &Value) -> Option<&'static str> {
    let is_constant = |alternative: &Value| alternative.get("const").is_some_and(Value::is_string);
    let alternatives = schema.get("oneOf").and_then(Value::as_array);
    let is_string = schema.get("type").is_some_and(|kind| kind == "string");
    if alternatives.is_some_and(|alternatives| alternatives.iter().all(is_constant)) {
        return Some("enum");
    }
    match (is_string, schema.get("enum").is_some()) {
        (true, true) => Some("enum"),
        (true, false) => Some("text"),
        (false, _) => None,
    }
}

impl<T> Clone for Generate<T> {
    fn clone(&self) -> Self {
        Self {
            plan: self.plan.clone(),
            output: PhantomData,
        }
    }
}

everturn_core::opaque_debug!(Generate<T>, plan.model, plan.tools);
