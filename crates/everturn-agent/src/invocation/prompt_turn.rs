//! One turn of a prompt agent: render the prompt around the conversation, add what the client brings to the
//! turn, call the model, add its answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use everturn_ai::history::awaiting;
use everturn_ai::prompt::{Prompt, PromptOverrides, with_prompt_state};
use everturn_ai::{
    Feature, FinishReason, GenerateRound, History, Message, Messages, Middleware, ModelCall, ModelResponse,
    ModelResponseChunk, MultipartToolResponse, NextModel, NextRound, NextTool, Part, Role, Tool, ToolCall,
    async_trait, is_unfit_answer, place_system_part, reason,
};
use everturn_core::offload::offload;
use everturn_core::{Error, HandlerResult, Result, Schema};
use serde_json::Value;

use super::agent_session::{check_message, given_answers};
use super::function::Signals;
use super::generate::{ConversationObserver, conversation_so_far, marked};
use super::{AgentFunction, AgentPrompt};
use crate::{AgentInput, AgentStreamChunk, ClientTool, CustomState, Turn, TurnDetails};

/// Returns the function of a prompt agent. `input` is the prompt input of conversations without one.
/// `overrides` go before the prompt's settings, and those of the call before them.
pub(crate) fn prompt_function<S: CustomState>(
    prompt: AgentPrompt,
    input: Arc<Value>,
    overrides: PromptOverrides,
) -> Arc<AgentFunction<S>> {
    let own = Arc::new(overrides);
    Arc::new(move |session| {
        let (prompt, input) = (prompt.get(), Arc::clone(&input));
        let overrides = [Some(Arc::clone(&own)), session.overrides()];
        Box::pin(async move {
            let prompt = prompt?;
            session
                .run(|turn| {
                    prompt_turn(
                        Box::new(turn),
                        prompt.clone(),
                        Arc::clone(&input),
                        overrides.clone(),
                        session.resources(),
                    )
                })
                .await?;
            let mut result = session.result();
            // A blocked model may have returned nothing; the user's own message is then the last, and no
            // answer.
            result.message = result.message.filter(|message| message.role() != Role::User);
            Ok(result)
        })
    })
}

async fn prompt_turn<S: CustomState>(
    turn: Box<Turn<S>>,
    prompt: Prompt,
    input: Arc<Value>,
    overrides: [Option<Arc<PromptOverrides>>; 2],
    resources: &[String],
) -> HandlerResult<Option<FinishReason>> {
    let history = turn.messages();
    check_input(turn.input(), &history)?;
    let input = turn.prompt_input().unwrap_or(input);
    let session = turn.session().clone();
    // A closure, so that the state is serialised only for templates that read it.
    let context = with_prompt_state(turn.context().clone(), move || session.custom_json());
    let observed = Arc::new(OnceLock::from(history.clone()));
    let context = ConversationObserver::install(&turn, &observed, true, context);
    let answers = given_answers(turn.input());
    // Answers continue the interrupted turn, and so does an input without a message.
    let (conversation, since) = if answers.is_some() || turn.input().messages().next().is_none() {
        at_the_interrupted_turn(&history)
    } else {
        (history.clone(), Messages::new())
    };

    // Boxed, because it is large and done before the model is called.
    let rendering = Box::pin(prompt.render_around(&input, conversation, context.clone()));
    let mut rendered = rendering.await.map_err(|error| error.context("prompt render"))?;
    let by_client = chosen_output(turn.input())?.map(Box::new);
    let overrides = overrides.iter().flatten().map(Arc::as_ref);
    for overrides in overrides.chain(by_client.as_deref()) {
        rendered = rendered.overridden(overrides)?;
    }
    let mut messages = marked(&rendered);
    messages.append(since);
    let mut generate = rendered
        .generate(prompt.registry())
        .messages(messages)
        .context(context)
        .emitter(turn.emitter())
        .allow_blocked();
    if let Some(answers) = answers {
        generate = generate.answers(answers.clone());
    }
    if let Some(accepted) = AcceptedInput::of(&turn) {
        generate = generate.use_middleware(accepted);
    }
    // Before other resources with the same URI: the agent listed these for its clients.
    for resource in resources {
        generate = generate.resource_named(resource);
    }
    if let Some(added) = AddedByClient::of(turn.input()).await? {
        generate = generate.use_middleware(added);
    }
    let reply = generate.run().await.map_err(|error| {
        if error.is(reason::TOOL_NAME_TAKEN) && !turn.input().tools.is_empty() {
            return name_taken(&error);
        }
        let error = error.context("generate");
        if by_client.is_some() && is_unfit_answer(&error) {
            return error.with_public_message("the model's answer does not match the client's output schema");
        }
        error
    })?;

    remember(&turn, &history, &reply);
    send_interrupts(&turn, &reply).await?;
    Ok(reply.finish_reason)
}

/// Returns the error for a client's tool that is called like one of the agent's, which it must not replace.
fn name_taken(error: &Error) -> Error {
    Error::invalid_argument(format!(
        "a tool of the client has the name of another tool: {}",
        error.message()
    ))
    .with_public()
}

/// Returns whether a turn may run without a message, because the model has not answered: after tools, as in a
/// snapshot from the middle of a turn, and after a user's message, as in a failed turn that was kept.
pub(super) fn awaits_model(history: &History) -> bool {
    let is_input = |message: &Message| matches!(message.role(), Role::Tool | Role::User);
    history.last().is_some_and(is_input) && awaiting(history).is_none()
}

/// Refuses an input that no turn can be run on, before the model is called.
fn check_input(input: &AgentInput, history: &History) -> Result<()> {
    if !input.has_payload() && !awaits_model(history) {
        return Err(
            Error::invalid_argument("a turn needs a message, or answers to interrupts in 'resume'")
                .with_public(),
        );
    }
    input.messages().try_for_each(check_message)
}

/// Splits the conversation at the beginning of the interrupted turn.
///
/// The prompt is rendered around the first part, as it was then. Rendered around the whole conversation, a
/// prompt that ends with its own messages would put them between a tool request and its answer.
fn at_the_interrupted_turn(history: &History) -> (History, Messages) {
    // Messages that wait for the answers are not part of the interrupted turn.
    let end = awaiting(history).map_or(history.len(), |asking| asking + 1);
    let asked = history.truncate_to(end);
    let since_user = asked
        .iter()
        .rev()
        .position(|message| message.role() == Role::User);
    let begin = end - since_user.unwrap_or(end);
    (
        history.truncate_to(begin),
        Messages::from(history).slice(begin..history.len()),
    )
}

/// Adds the messages of the model and its tools to the conversation; `history` is the conversation of the
/// model request.
///
/// Messages that other code added to the session meanwhile, for example a tool, are kept before the answer.
pub(super) fn remember<S: CustomState>(turn: &Turn<S>, history: &History, reply: &ModelResponse) {
    let request = reply.request.as_ref().map(|request| &request.messages);
    let mut conversation = conversation_so_far(&turn.messages(), history, request.unwrap_or(&history.into()));
    // Messages that wait for an answer still do so if the question is open again.
    let waiting = awaiting(history)
        .filter(|asking| *asking == conversation.len())
        .map(|asking| history.since(asking + 1).cloned());
    conversation.extend(reply.message.clone());
    conversation.extend(waiting.into_iter().flatten());
    turn.set_messages(conversation);
}

/// Streams the tool requests that wait for an answer to the client.
async fn send_interrupts<S: CustomState>(turn: &Turn<S>, reply: &ModelResponse) -> Result<()> {
    if reply.finish_reason != Some(FinishReason::Interrupted) {
        return Ok(());
    }
    let waiting: Vec<Part> = reply
        .message
        .iter()
        .flat_map(Message::interrupts)
        .cloned()
        .collect();
    let chunk = ModelResponseChunk {
        role: Some(Role::Tool),
        content: waiting,
        ..ModelResponseChunk::default()
    };
    // Boxed, so that turns without interrupts have no room for it.
    Box::pin(turn.send_chunk(chunk)).await
}

/// Sends an empty chunk before the first model or tool runs.
///
/// All checks that can refuse a client come before it, so a server can then choose the kind of its response.
#[derive(Clone)]
pub(super) struct AcceptedInput {
    signals: Signals,
    is_reported: Arc<AtomicBool>,
}

impl AcceptedInput {
    /// Returns `None` unless the caller requested the details of turns.
    pub(super) fn of<S: CustomState>(turn: &Turn<S>) -> Option<Self> {
        turn.context().extension::<TurnDetails>()?;
        Some(Self {
            signals: turn.signals().clone(),
            is_reported: Arc::default(),
        })
    }

    fn report(&self) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            self.signals.publisher().post(AgentStreamChunk::default());
        }
    }
}

#[async_trait]
impl Middleware for AcceptedInput {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        self.report();
        Ok(next.run(call).await?)
    }

    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        self.report();
        Ok(next.run(call).await?)
    }
}

/// The metadata entry that marks the client's part of the system text.
const MARKER: &str = "_everturn_client";

/// The greatest size of an output schema, in bytes of JSON.
const LARGEST_SCHEMA: usize = 32 * 1024;

/// Returns the settings of a turn whose client chose the form of the answer.
///
/// # Errors
/// `INVALID_ARGUMENT` if the output schema is too large or none.
pub(super) fn chosen_output(input: &AgentInput) -> Result<Option<PromptOverrides>> {
    let Some(schema) = &input.output_schema else {
        return Ok(None);
    };
    let schema = Schema::from_client(Value::clone(schema), LARGEST_SCHEMA)
        .map_err(|error| error.context("the output schema of the client").with_public())?;
    Ok(Some(PromptOverrides::new().output_schema(&schema)))
}

/// Offers the client's tools to the model and puts its instructions after the agent's system text.
///
/// As a middleware: its tools are added after all others, so one that has the name of another is refused and
/// never replaces it, and the system text that it changes is never stored.
#[derive(Clone)]
pub(super) struct AddedByClient {
    tools: Vec<Tool>,
    instructions: String,
}

impl AddedByClient {
    /// Returns `None` if the client adds nothing, as most do.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a tool that no client may bring.
    pub(super) async fn of(input: &AgentInput) -> Result<Option<Self>> {
        if input.tools.is_empty() && input.instructions.is_empty() {
            return Ok(None);
        }
        let tools = match input.tools.as_slice() {
            few @ ([] | [_] | [_, _] | [_, _, _] | [_, _, _, _]) => ClientTool::prepare(few)?,
            many => {
                let many = many.to_vec();
                // Boxed, so that the future of turns without such tools stays small.
                Box::pin(offload(move || ClientTool::prepare(&many))).await?
            }
        };
        Ok(Some(Self {
            tools,
            instructions: input.instructions.join("\n\n"),
        }))
    }
}

#[async_trait]
impl Middleware for AddedByClient {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        if !self.instructions.is_empty() {
            let messages = &mut round.request.messages;
            let gap = if has_own_system_text(messages) { "\n\n" } else { "" };
            place_system_part(messages, MARKER, format!("{gap}{}", self.instructions));
        }
        Ok(next.run(round).await?)
    }

    fn tools(&self) -> Vec<Tool> {
        self.tools.clone()
    }
}

/// Returns whether there is a system text that is not the client's.
fn has_own_system_text(messages: &Messages) -> bool {
    let first = messages.next_with(Feature::System, 0);
    let is_own = |part: &Part| part.metadata_entry(MARKER).is_none();
    first
        .and_then(|index| messages.get(index))
        .is_some_and(|message| message.content().iter().any(is_own))
}
