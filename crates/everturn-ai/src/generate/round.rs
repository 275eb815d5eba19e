//! One round: call the model, run the requested tools, and run the next round inside this one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use everturn_core::{Emitter, Error, Result, SpanKind, in_span, panic_error};
use futures::future::BoxFuture;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tracing::instrument::{Instrument, WithSubscriber};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::interrupts::Resolved;
use super::partial::round_end;
use super::recorded::Reply;
use super::tool_table::ToolTable;
use crate::resource::expand_resources;
use crate::{GenerateRound, Message, ModelResponse, ModelResponseChunk, NextRound, Role, reason};

/// The number of rounds that run on one stack.
const ROUNDS_PER_STACK: u32 = 4;

impl Call {
    /// Runs a round in its own span.
    pub(super) fn round(self: Arc<Self>, round: GenerateRound) -> BoxFuture<'static, Result<ModelResponse>> {
        // Boxed to keep the futures below small.
        let mut round = Box::new(round);
        Box::pin(async move {
            let context = round.context.clone();
            let name = self.step_name.clone();
            in_span(&name, SpanKind::Util, context, |context, recorder| async move {
                recorder.input(&RoundInput {
                    call: &self,
                    round: &round,
                });
                round.context = context;
                let response = self.round_in_current_span(round).await?;
                recorder.output(&response);
                Ok(response)
            })
            .await
        })
    }

    /// Runs a round through the generate hooks.
    pub(super) fn round_in_current_span(
        self: Arc<Self>,
        round: Box<GenerateRound>,
    ) -> BoxFuture<'static, Result<ModelResponse>> {
        // Hooks stream through one emitter for all rounds, which reads the current index here.
        self.message_index.store(round.message_index, Ordering::Relaxed);
        let chain = Arc::clone(&self.chain);
        NextRound::around_round(&chain, move |round| {
            Box::pin(Arc::clone(&self).step(Box::new(round)))
        })
        .run(*round)
    }

    async fn step(self: Arc<Self>, mut round: Box<GenerateRound>) -> Result<ModelResponse> {
        if let Some(answers) = round.answers.take() {
            // Large futures are boxed here and below, because rounds nest and each would contain the next
            // one.
            return match Box::pin(self.resolve(*round, answers)).await? {
                Resolved::Next(following) => self.round(*following).await,
                Resolved::Open(response, round) => Ok(complete(*response, *round)),
            };
        }
        // Repeated in every round, because a tool's answer or a hook may have added a link.
        expand_resources(
            &mut round.request.messages,
            &self.resources,
            &self.registry,
            &round.context,
        )
        .await?;
        let index = ChunkIndex::starting_at(round.message_index);
        self.progress.reach(&round);
        let Reply { response, effect } = Box::pin(self.reply(&round, &index)).await?;
        self.progress.count(&response);
        let Some(asking) = self.message_with_work(&response) else {
            return Ok(complete(response, *round));
        };
        // Checked here, because the round in which the model answers without tools does not count.
        if round.index >= self.max_rounds {
            return Err(too_many_rounds(self.max_rounds));
        }
        let tools = Box::pin(self.run_tools(&round, &asking, effect.as_ref(), &index)).await?;
        if tools.is_interrupted() {
            return Ok(complete(tools.interrupted(response), *round));
        }
        let following = Box::pin(self.proceed(*round, asking, tools.message(), &index)).await?;
        Box::pin(self.deeper(following)).await
    }

    /// Runs a round inside another. Each nested round uses a part of the thread's stack while it is polled,
    /// so every few rounds one is spawned as a task with its own stack.
    async fn deeper(self: Arc<Self>, round: GenerateRound) -> Result<ModelResponse> {
        let is_due = round.index.is_multiple_of(ROUNDS_PER_STACK);
        let work = self.round(round);
        // Without a runtime the depth of a generation is bounded by the thread's stack.
        let Some(runtime) = Handle::try_current().ok().filter(|_| is_due) else {
            return work.await;
        };
        // A task does not inherit the span and the subscriber of the code that spawns it.
        let work = runtime.spawn(work.in_current_span().with_current_subscriber());
        match AbortOnDropHandle::new(work).await {
            Ok(result) => result,
            Err(error) => Err(match error.try_into_panic() {
                Ok(payload) => panic_error("generate", payload.as_ref()),
                Err(_) => Error::cancelled("the generation was dropped before it completed"),
            }),
        }
    }

    /// Returns the model's message if it requests tools that this call is to run.
    fn message_with_work(&self, response: &ModelResponse) -> Option<Message> {
        let message = response
            .message
            .as_ref()
            .filter(|_| !self.returns_tool_requests)?;
        let is_blocked = response.finish_reason == Some(crate::FinishReason::Blocked);
        (!is_blocked && message.tool_requests().next().is_some()).then(|| message.clone())
    }

    /// Returns the round that follows the answers of the tools.
    async fn proceed(
        &self,
        mut round: GenerateRound,
        asking: Message,
        answers: Message,
        index: &ChunkIndex,
    ) -> Result<GenerateRound> {
        round.request.messages.push(asking);
        round.request.messages.push(answers.clone());
        self.progress.reach(&round);
        // Called before the answers are streamed, so that a client never sees answers that could still be
        // lost.
        round_end(&round.context, &round.request.messages).await?;
        send_answers(&round.emitter, &answers, index).await?;
        round.index += 1;
        round.message_index = index.following();
        Ok(round)
    }
}

/// Streams the tools' answers as one chunk.
pub(super) async fn send_answers(
    emitter: &Emitter<ModelResponseChunk>,
    answers: &Message,
    index: &ChunkIndex,
) -> Result<()> {
    if !emitter.is_streaming() {
        return Ok(());
    }
    let chunk = ModelResponseChunk {
        role: Some(Role::Tool),
        ..ModelResponseChunk::new(answers.content())
    };
    emitter.send(index.stamped(chunk)).await
}

/// Adds the request to the response, so that the two together are the whole conversation.
fn complete(mut response: ModelResponse, round: GenerateRound) -> ModelResponse {
    // Genkit's other runtimes have these two fields in every response.
    response.usage.get_or_insert_default();
    response.custom.get_or_insert_with(|| json!({}));
    response.request = Some(Box::new(round.request));
    response
}

fn too_many_rounds(max_rounds: u32) -> Error {
    Error::aborted(format!("exceeded maximum tool call iterations ({max_rounds})"))
        .with_reason(reason::MAX_ROUNDS_EXCEEDED)
        .with_details(json!({
            "limit": { "per": "turn", "of": "toolRounds", "max": max_rounds },
            "reason": reason::MAX_ROUNDS_EXCEEDED.name(),
            "retryable": false,
        }))
        .with_public()
}

/// The input of a round's span, in the shape of the generate action's input.
struct RoundInput<'a> {
    call: &'a Call,
    round: &'a GenerateRound,
}

impl Serialize for RoundInput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = &self.round.request;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &self.call.model_name)?;
        map.serialize_entry("messages", &request.messages)?;
        map.serialize_entry("tools", &Keys(&self.call.tools))?;
        map.serialize_entry("maxTurns", &self.call.max_rounds)?;
        if let Some(config) = &request.config {
            map.serialize_entry("config", config)?;
        }
        if let Some(docs) = &request.docs {
            map.serialize_entry("docs", docs)?;
        }
        if let Some(choice) = request.tool_choice {
            map.serialize_entry("toolChoice", &choice)?;
        }
        if let Some(output) = &request.output {
            map.serialize_entry("output", output)?;
        }
        if let Some(answers) = &self.round.answers {
            map.serialize_entry("resume", answers)?;
        }
        map.end()
    }
}

struct Keys<'a>(&'a ToolTable);

impl Serialize for Keys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.keys())
    }
}
