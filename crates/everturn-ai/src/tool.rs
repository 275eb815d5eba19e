//! Tools: functions that a model may call.
//!
//! A [`Tool`] is made from a typed async closure, from a JSON Schema and a closure over JSON, or from any
//! action. It validates the model's input, runs in its own span and converts panics to errors. A tool
//! may also *interrupt*: pause the generation, return typed data to the caller and continue later with a
//! typed answer.
//!
//! A process may die while a tool runs. With [`Replay`], a tool declares how the call may then be repeated:
//! run it again, run it again under the same key, or determine its outcome with a function or a person.

mod answering;
mod approving;
mod body;
mod context;
mod interrupt;
mod reference;
mod replay;
mod tool_action;

use std::future::Future;
use std::sync::Arc;

pub use everturn_core::Requirement;
use everturn_core::{ActionType, DynAction, HandlerResult, Result, Schema, SpanKind, catch_panic, in_span};
use futures::TryFutureExt as _;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::answering::Answering;
use self::approving::Approving;
use self::body::Body;
pub(crate) use self::interrupt::unknown_outcome;
use self::replay::Reconcile;
pub use self::{
    answering::{AnswerForm, AnsweredBy, GivenAnswer},
    context::{FromToolContext, ToolContext},
    interrupt::{interrupt, interrupt_data, outcome_unknown},
    reference::{IntoTool, ToolReference},
    tool_action::{lookup_tool, lookup_tools},
};
use crate::usage_meter::MeteredCall;
use crate::{JsonObject, MultipartToolResponse, Replay, metadata};

/// A function that a model may call. Cloning is cheap.
///
/// ```
/// use everturn_ai::{Tool, ToolContext};
/// use everturn_core::Result;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let double = Tool::new("double", "Doubles a number.", |n: i64, _cx: ToolContext| async move { Ok(n * 2) });
///
/// assert_eq!(double.run(21).await?.output, Some(42.into()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tool(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: String,
    /// The name by which a model calls the tool, if it is not the short name.
    called: Option<String>,
    description: String,
    input_schema: Option<Schema>,
    output_schema: Option<Schema>,
    metadata: JsonObject,
    multipart: bool,
    /// Whether a repeated call can do anything but interrupt.
    restartable: bool,
    strict: bool,
    /// The tool's declaration of how it may be called again; `None` if it declares nothing.
    replay: Option<Replay>,
    reconcile: Option<Arc<Reconcile>>,
    /// How interrupted calls may be answered, and by whom.
    answering: Answering,
    /// The conditions under which an answer is an approval.
    approving: Approving,
    /// The values that the tool's arguments need from the context.
    requirements: Vec<Requirement>,
    /// The key of the action behind the tool, if that is not a tool of this crate.
    key: Option<String>,
    body: Body,
}

/// The input of a tool without parameters: an empty object, or nothing at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NoInput {}

/// Accepts any input, because models send `{}`, `null` or invented arguments to a tool without parameters.
impl<'de> Deserialize<'de> for NoInput {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

impl Tool {
    /// Creates a tool from an async function; the schemas are those of its types.
    pub fn new<I, O, F, Fut>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + 'static,
        F: Fn(I, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<O>> + Send + 'static,
    {
        let function = Arc::new(function);
        let body = Body::function(move |input, context| {
            let function = Arc::clone(&function);
            async move {
                let input = body::decode(input)?;
                context.begin();
                let output = function(input, context).await?;
                Ok(body::plain(serde_json::to_value(output)?))
            }
        });
        Self::build(name, description, body)
            .with_input_schema(Schema::of::<I>())
            .with_output_schema(Schema::of::<O>())
    }

    /// Creates a tool whose types are known only at run time; without a schema it accepts any input.
    pub fn dynamic<F, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Option<Schema>,
        function: F,
    ) -> Self
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Value>> + Send + 'static,
    {
        let function = Arc::new(function);
        let body = Body::function(move |input, context| {
            let function = Arc::clone(&function);
            async move {
                context.begin();
                Ok(body::plain(function(input, context).await?))
            }
        });
        Self::build(name, description, body).with_input_schema(input_schema)
    }

    /// Creates a tool that answers with content, such as media, in addition to its output.
    pub fn multipart<I, F, Fut>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(I, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<MultipartToolResponse>> + Send + 'static,
    {
        let function = Arc::new(function);
        let body = Body::function(move |input, context| {
            let function = Arc::clone(&function);
            async move {
                let input = body::decode(input)?;
                context.begin();
                function(input, context).await
            }
        });
        Self::build(name, description, body)
            .with_input_schema(Schema::of::<I>())
            .edit(|inner| inner.multipart = true)
    }

    /// Creates a tool that always interrupts: its input is the question, and the caller answers it.
    pub fn interrupt<I, O>(name: impl Into<String>, description: impl Into<String>) -> Self
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: JsonSchema + 'static,
    {
        Self::interrupt_with::<I, O, _>(name, description, |_| ())
    }

    /// Creates a tool that always interrupts, with data computed from its input.
    pub fn interrupt_with<I, O, D>(
        name: impl Into<String>,
        description: impl Into<String>,
        data: impl Fn(I) -> D + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: JsonSchema + 'static,
        D: Serialize + 'static,
    {
        let data = Arc::new(data);
        let body = Body::function(move |input, _context| {
            let data = Arc::clone(&data);
            async move { Err(interrupt(data(body::decode(input)?)).into()) }
        });
        Self::build(name, description, body)
            .with_input_schema(Schema::of::<I>())
            .with_output_schema(Schema::of::<O>())
            .edit(|inner| inner.restartable = false)
    }

    /// Creates a tool that always interrupts, for a tool that the client provides and runs itself. Without a
    /// schema it accepts any input, and every output answers it.
    pub fn of_client(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Option<Schema>,
    ) -> Self {
        let data = || interrupt(json!({ metadata::CLIENT_TOOL: true }));
        let body = Body::function(move |_input, _context| async move { Err(data().into()) });
        Self::build(name, description, body)
            .with_input_schema(input_schema)
            .edit(|inner| inner.restartable = false)
    }

    /// Creates a tool from any action: a prompt, or a tool that a plugin implements directly.
    pub fn from_action(action: Arc<dyn DynAction>) -> Self {
        // A tool of this crate keeps its types, its replay declaration and its requirements.
        if let Some(tool) = tool_action::tool_behind(&action) {
            return tool;
        }
        let descriptor = action.descriptor().clone();
        let is_multipart = descriptor.action_type == ActionType::TOOL_V2;
        // The schema of a `tool.v2` action describes the whole response, not the output.
        let output_schema = if is_multipart {
            None
        } else {
            descriptor.output_schema
        };
        Self::build(
            descriptor.name,
            descriptor.description.unwrap_or_default(),
            Body::Action(action),
        )
        .with_input_schema(descriptor.input_schema)
        .with_output_schema(output_schema)
        .edit(|inner| {
            inner.multipart = is_multipart;
            inner.key = Some(descriptor.key);
            inner.replay = tool_action::declared_replay(&descriptor.action_type, &descriptor.metadata);
        })
    }

    fn build(name: impl Into<String>, description: impl Into<String>, body: Body) -> Self {
        Self(Arc::new(Inner {
            name: name.into(),
            called: None,
            description: description.into(),
            input_schema: None,
            output_schema: None,
            metadata: JsonObject::new(),
            multipart: false,
            restartable: true,
            strict: false,
            replay: None,
            reconcile: None,
            answering: Answering::default(),
            approving: Approving::default(),
            requirements: Vec::new(),
            key: None,
            body,
        }))
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Renames the tool.
    pub fn named(self, name: impl Into<String>) -> Self {
        self.edit(|inner| inner.name = name.into())
    }

    /// Replaces the input schema; with `None`, any input is accepted.
    pub fn with_input_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.edit(|inner| inner.input_schema = schema.into())
    }

    /// Replaces the output schema; with `None`, outputs are not validated.
    pub fn with_output_schema(self, schema: impl Into<Option<Schema>>) -> Self {
        self.edit(|inner| inner.output_schema = schema.into())
    }

    /// Sets metadata for the tool's descriptor.
    pub fn with_metadata(self, entries: JsonObject) -> Self {
        self.edit(|inner| inner.metadata.extend(entries))
    }

    /// Asks the provider to enforce the input schema exactly.
    pub fn strict(self) -> Self {
        self.edit(|inner| inner.strict = true)
    }

    /// Returns the tool's name, with a plugin's prefix if it has one.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the name by which a model calls the tool: the part after the last `/`.
    pub fn short_name(&self) -> &str {
        let name = self.name();
        let usual = || name.rsplit_once('/').map_or(name, |(_, short)| short);
        self.0.called.as_deref().unwrap_or_else(usual)
    }

    /// Makes models call the tool by its whole name: `files_read` for `files/read`.
    pub(crate) fn called_in_full(self) -> Self {
        self.edit(|inner| inner.called = Some(inner.name.replace('/', "_")))
    }

    /// Returns whether the tool belongs to an MCP server, which chose its name.
    pub(crate) fn is_foreign(&self) -> bool {
        self.metadata().contains_key("mcp")
    }

    /// Returns the tool's description.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the schema of the tool's input, if it is known.
    pub fn input_schema(&self) -> Option<&Schema> {
        self.0.input_schema.as_ref()
    }

    /// Returns the schema of the tool's output, if it is known.
    pub fn output_schema(&self) -> Option<&Schema> {
        self.0.output_schema.as_ref()
    }

    /// Metadata given to [`Tool::with_metadata`].
    pub fn metadata(&self) -> &JsonObject {
        &self.0.metadata
    }

    /// Returns whether the tool answers with content in addition to its output.
    pub fn is_multipart(&self) -> bool {
        self.0.multipart
    }

    /// Returns whether an interrupted call of the tool can be restarted; otherwise it can only be answered.
    pub fn is_restartable(&self) -> bool {
        self.0.restartable && self.answer_form() != AnswerForm::Respond
    }

    /// Runs the tool in the current context, outside any generation.
    ///
    /// # Errors
    /// As [`Tool::run_in`].
    pub async fn run(&self, input: impl Serialize) -> Result<MultipartToolResponse> {
        let input = serde_json::to_value(input)?;
        self.run_in(Some(input), ToolContext::new(everturn_core::Context::current()))
            .await
    }

    /// Runs the tool in its own span.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the input does not match the schema, `INTERNAL` if the output does not or the
    /// tool panics, an error with [`reason::TOOL_INTERRUPT`](crate::reason::TOOL_INTERRUPT) if it interrupts,
    /// `RESOURCE_EXHAUSTED` with [`reason::LIMIT_REACHED`](crate::reason::LIMIT_REACHED) if a limit of the
    /// context forbids the call, or the tool's own error.
    pub async fn run_in(&self, input: Option<Value>, context: ToolContext) -> Result<MultipartToolResponse> {
        let metered = self.metered(context.context()).await?;
        self.run_metered(metered, input, context).await
    }

    /// Counts a call of the tool, if the limits of the context allow it.
    pub(crate) async fn metered(&self, context: &everturn_core::Context) -> Result<MeteredCall> {
        MeteredCall::of_tool(context, self.name()).await
    }

    /// Makes a call that was counted.
    pub(crate) async fn run_metered(
        &self,
        metered: MeteredCall,
        input: Option<Value>,
        context: ToolContext,
    ) -> Result<MultipartToolResponse> {
        let answered = self.run_unmetered(input, context).await;
        metered.tool_answered().await;
        answered
    }

    async fn run_unmetered(
        &self,
        input: Option<Value>,
        context: ToolContext,
    ) -> Result<MultipartToolResponse> {
        let input = body::completed(input, self.input_schema());
        let function = match &self.0.body {
            Body::Action(action) => {
                context.begin();
                return body::run_action(action, input, &context, self.is_multipart()).await;
            }
            Body::Function(function) => function,
        };
        let action_type = self.action_type();
        let kind = SpanKind::Action(&action_type);
        in_span(
            self.name(),
            kind,
            context.context().clone(),
            |inner, recorder| async move {
                // Recorded before the check, so that a trace shows rejected input.
                recorder.input(&input);
                body::check_input(self, &input)?;
                let context = context.within(inner);
                let work = catch_panic(self.name(), function(input, context.clone()).err_into());
                let mut response = context.context().guard(work).await?;
                // Attachments are part of the response, so they are added before its validation.
                response.content.extend(context.take_attachments());
                body::check_output(self, &response)?;
                if self.is_multipart() {
                    recorder.output(&response);
                } else {
                    recorder.output(&response.output);
                }
                Ok(response)
            },
        )
        .await
    }

    fn action_type(&self) -> ActionType {
        if self.is_multipart() {
            ActionType::TOOL_V2
        } else {
            ActionType::TOOL
        }
    }
}

everturn_core::opaque_debug!(Tool, 0.name);
