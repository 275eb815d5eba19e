//! Rendering a prompt with an input and a conversation to the messages of a request.

use std::sync::Arc;

use everturn_core::{ActionType, Context, Error, Registry, Result, SpanKind, in_span};
use serde_json::Value;

use super::PromptOverrides;
use super::definition::{CompiledContent, CompiledMessages, Parts, Settings};
use super::library::{convert_message, current_state, template_error};
use super::prompt_action::tool_name;
use super::slot::{ContentSource, MessagesSource, PromptScope};
use crate::{
    Content, Generate, GenerateActionOptions, GenerateActionOutputConfig, JsonObject, Message, Messages,
    MiddlewareRef, MiddlewareSource, Part,
};

/// A rendered prompt: its messages, separate from the conversation's, and its other settings.
#[derive(Clone)]
pub struct RenderedPrompt {
    pieces: Vec<PromptPiece>,
    settings: Arc<Settings>,
}

/// A run of messages of a rendered prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptPiece {
    /// The prompt's own messages.
    Prompt(Messages),
    /// Messages taken from the conversation, in its order.
    Conversation(Messages),
}

impl RenderedPrompt {
    /// Returns the messages by origin, in their order.
    pub fn pieces(&self) -> &[PromptPiece] {
        &self.pieces
    }

    /// Returns all messages. A conversation that was given as a history stays shared.
    pub fn messages(&self) -> Messages {
        let mut all = Messages::new();
        for piece in &self.pieces {
            let (PromptPiece::Prompt(messages) | PromptPiece::Conversation(messages)) = piece;
            all.append(messages.clone());
        }
        all
    }

    /// Creates a generation with the prompt's settings, without its messages.
    pub fn generate(&self, registry: &Registry) -> Generate {
        let settings = &self.settings;
        let mut generate = Generate::new(registry)
            .tools(settings.tools.iter().cloned())
            .docs(settings.docs.iter().cloned())
            .output_config(settings.output.clone());
        if let Some(model) = &settings.model {
            generate = generate.model(model.clone());
        }
        if let Some(config) = &settings.config {
            generate = generate.config(config);
        }
        if let Some(choice) = settings.tool_choice {
            generate = generate.tool_choice(choice);
        }
        if let Some(rounds) = settings.max_rounds {
            generate = generate.max_rounds(rounds);
        }
        if let Some(returns) = settings.return_tool_requests {
            generate = generate.return_tool_requests(returns);
        }
        settings
            .middleware
            .iter()
            .cloned()
            .fold(generate, Generate::use_middleware)
    }

    /// Like [`RenderedPrompt::generate`], as options that refer to everything by name.
    pub(super) fn options(&self) -> GenerateActionOptions {
        let reference = self.settings.model.clone();
        let (model, defaults) = reference.map_or((None, None), |model| (Some(model.name), model.config));
        let tools: Vec<String> = self
            .settings
            .tools
            .iter()
            .map(|tool| tool_key(tool_name(tool)))
            .collect();
        let named = self
            .settings
            .middleware
            .iter()
            .filter_map(MiddlewareSource::reference)
            .cloned();
        let middleware: Vec<MiddlewareRef> = named.collect();
        let output = self.settings.output.clone();
        GenerateActionOptions {
            model,
            docs: (!self.settings.docs.is_empty()).then(|| self.settings.docs.clone()),
            messages: self.messages(),
            tools: (!tools.is_empty()).then_some(tools),
            tool_choice: self.settings.tool_choice,
            config: self.settings.config.clone().or(defaults),
            output: (output != GenerateActionOutputConfig::default()).then_some(output),
            return_tool_requests: self.settings.return_tool_requests,
            max_rounds: self.settings.max_rounds,
            middleware: (!middleware.is_empty()).then_some(middleware),
            ..GenerateActionOptions::default()
        }
    }

    /// Returns the prompt with its settings replaced.
    ///
    /// # Errors
    /// `INTERNAL` if settings for the model cannot be written as JSON.
    pub fn overridden(mut self, overrides: &PromptOverrides) -> Result<Self> {
        if !overrides.is_empty() {
            overrides.apply(Arc::make_mut(&mut self.settings))?;
        }
        Ok(self)
    }

    fn push_own(&mut self, message: Message) {
        match self.pieces.last_mut() {
            Some(PromptPiece::Prompt(messages)) => messages.push(message),
            _ => self.pieces.push(PromptPiece::Prompt(message.into())),
        }
    }

    fn push_conversation(&mut self, messages: Messages) {
        if messages.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(PromptPiece::Conversation(before)) => before.append(messages),
            _ => self.pieces.push(PromptPiece::Conversation(messages)),
        }
    }
}

everturn_core::opaque_debug!(RenderedPrompt, pieces);

/// Returns a tool's key, as other runtimes name tools in options. All tools of a plugin have no key.
fn tool_key(name: &str) -> String {
    if name.starts_with('/') || name.ends_with('*') {
        name.to_owned()
    } else {
        ActionType::TOOL.key(name)
    }
}

/// Renders the prompt inside its own span.
pub(super) async fn render(
    name: &str,
    parts: &Parts,
    input: &Value,
    conversation: Messages,
    registry: &Registry,
    context: Context,
) -> Result<RenderedPrompt> {
    // Outside the span, which records the input that templates see.
    let input = with_defaults(input, parts.settings.input_default.as_ref());
    in_span(
        "render",
        SpanKind::PromptTemplate,
        context,
        async |context, recorder| {
            recorder.input(&input);
            let scope = PromptScope {
                input,
                conversation,
                context,
                registry: registry.clone(),
            };
            let rendered = render_slots(name, parts, scope).await?;
            recorder.output(&rendered.messages());
            Ok(rendered)
        },
    )
    .await
}

async fn render_slots(name: &str, parts: &Parts, scope: PromptScope) -> Result<RenderedPrompt> {
    let mut rendered = RenderedPrompt {
        pieces: Vec::new(),
        settings: Arc::clone(&parts.settings),
    };
    if let Some(system) = &parts.system {
        rendered.push_own(Message::system(content(name, "system", system, &scope).await?));
    }
    match &parts.messages {
        // Without a messages slot the conversation stands between the system text and the user prompt.
        None => rendered.push_conversation(scope.conversation.clone()),
        Some(CompiledMessages::Template(template)) => {
            for piece in template_pieces(name, template, &scope)? {
                match piece {
                    dotprompt::Piece::Message(message) => rendered.push_own(convert_message(message)?),
                    dotprompt::Piece::History(_) => rendered.push_conversation(scope.conversation.clone()),
                }
            }
        }
        Some(CompiledMessages::Other(slot)) => match &slot.0 {
            MessagesSource::Computed(compute) => {
                let messages = compute(scope.clone()).await?;
                sort_out(&mut rendered, &messages, &scope.conversation);
            }
            MessagesSource::Fixed(messages) => messages
                .iter()
                .cloned()
                .for_each(|message| rendered.push_own(message)),
            MessagesSource::Template(_) => return Err(uncompiled(name)),
        },
    }
    if let Some(prompt) = &parts.prompt {
        rendered.push_own(Message::user(content(name, "prompt", prompt, &scope).await?));
    }
    Ok(rendered)
}

/// Renders the content of a slot that is one message.
async fn content(name: &str, slot: &str, source: &CompiledContent, scope: &PromptScope) -> Result<Content> {
    let template = match source {
        CompiledContent::Template(template) => template,
        CompiledContent::Other(other) => match &other.0 {
            ContentSource::Parts(parts) => return Ok(parts.clone()),
            ContentSource::Computed(compute) => return Ok(compute(scope.clone()).await?),
            ContentSource::Template(_) => return Err(uncompiled(name)),
        },
    };
    one_message(name, slot, template_pieces(name, template, scope)?)
}

/// Renders a template without expressions, whose content is always the same.
pub(super) fn constant_content(name: &str, template: &dotprompt::Prompt) -> Result<Content> {
    let pieces = template.render_pieces(&dotprompt::Data::new());
    one_message(
        name,
        "constant",
        pieces.map_err(|error| template_error(name, error))?,
    )
}

fn one_message(name: &str, slot: &str, pieces: Vec<dotprompt::Piece>) -> Result<Content> {
    let mut messages = Vec::new();
    for piece in pieces {
        if let dotprompt::Piece::Message(message) = piece {
            messages.push(convert_message(message)?);
        }
    }
    match <[Message; 1]>::try_from(messages) {
        Ok([message]) if message.role() == crate::Role::User => {
            Ok(Vec::<Part>::from(message.content()).into())
        }
        _ => Err(Error::invalid_argument(format!(
            "prompt '{name}': the {slot} template must render to one message without a role; \
             use a messages template for several"
        ))),
    }
}

fn template_pieces(
    name: &str,
    template: &dotprompt::Prompt,
    scope: &PromptScope,
) -> Result<Vec<dotprompt::Piece>> {
    // Serialising the session's state is the costly part of a rendering.
    let reads = |name: &str| template.variables().any(|variable| variable == name);
    let values = scope.context.values();
    // Genkit's templates use `@state`. A value of the caller's under the framework's own name takes
    // precedence.
    let names: Vec<&str> = ["state", "custom"]
        .into_iter()
        .filter(|name| reads(name) && (*name == "state" || !values.contains_key(*name)))
        .collect();
    let state = (!names.is_empty())
        .then(|| current_state(&scope.context))
        .flatten();
    // A closure, because only some templates need the conversation as JSON.
    let describe = || serde_json::to_value(&scope.conversation).unwrap_or_default();
    let mut data = dotprompt::Data::new()
        .input(&scope.input)
        .context(values)
        .describe_messages(&describe);
    if let Some(state) = &state {
        for name in names {
            data = data.variable(name, state);
        }
    }
    template
        .render_pieces(&data)
        .map_err(|error| template_error(name, error))
}

/// Separates the conversation's messages from those that a function created, by identity: the function may
/// drop messages but not copy them.
fn sort_out(rendered: &mut RenderedPrompt, computed: &Messages, conversation: &Messages) {
    let mut expected = conversation.iter();
    for (messages, is_shared) in computed.pieces_shared_with(conversation) {
        if is_shared {
            rendered.push_conversation(messages);
            continue;
        }
        for message in &messages {
            // The function keeps the order, so messages it dropped are never searched for again.
            let mut ahead = expected.clone();
            if ahead.by_ref().any(|known| known.is_same(message)) {
                expected = ahead;
                rendered.push_conversation(message.clone().into());
            } else {
                rendered.push_own(message.clone());
            }
        }
    }
}

/// Fills the input's missing keys from the defaults; an input that is not an object stays unchanged.
pub(super) fn with_defaults(input: &Value, defaults: Option<&JsonObject>) -> Value {
    match (input, defaults) {
        (Value::Null, None) => Value::Object(JsonObject::new()),
        (Value::Null, Some(defaults)) => Value::Object(defaults.clone()),
        (Value::Object(input), Some(defaults)) => {
            let mut merged = defaults.clone();
            merged.extend(input.clone());
            Value::Object(merged)
        }
        (input, _) => input.clone(),
    }
}

/// Creates the error for a template that was not compiled; definitions compile every template they hold.
fn uncompiled(name: &str) -> Error {
    Error::internal(format!("prompt '{name}' holds a template that was not compiled"))
}
