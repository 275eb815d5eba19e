//! One turn: ask the model, run what it asks for, and take the next turn inside this one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use everturn_core::{Emitter, Error, Result, SpanKind, in_span, panic_error};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use tracing::instrument::{Instrument, WithSubscriber};

use super::call::Call;
use super::chunk_index::ChunkIndex;
use super::observer::tool_iteration_end;
use super::recorded::Reply;
use super::turn_input::TurnInput;
use crate::middleware::{GenerateTurn, NextTurn};
use crate::resource::expand_resources;
use crate::{Message, ModelResponse, ModelResponseChunk, Role, reason};

/// How many turns nest on one stack.
const TURNS_PER_STACK: u32 = 4;

impl Call {
    /// Takes a turn in a span of its own.
    pub(super) fn turn(self: Arc<Self>, turn: GenerateTurn) -> BoxFuture<'static, Result<ModelResponse>> {
        Box::pin(async move {
            let context = turn.context.clone();
            let name = self.step_name.clone();
            in_span(&name, SpanKind::Util, context, |context, recorder| async move {
                recorder.input(&TurnInput {
                    call: &self,
                    turn: &turn,
                });
                let response = self
                    .turn_in_current_span(GenerateTurn { context, ..turn })
                    .await?;
                recorder.output(&response);
                Ok(response)
            })
            .await
        })
    }

    /// Takes a turn, through the generate hooks.
    pub(super) fn turn_in_current_span(
        self: Arc<Self>,
        turn: GenerateTurn,
    ) -> BoxFuture<'static, Result<ModelResponse>> {
        self.message_index.store(turn.message_index, Ordering::Relaxed);
        let chain = Arc::clone(&self.chain);
        NextTurn::around_turn(&chain, move |turn| Box::pin(Arc::clone(&self).step(turn))).run(turn)
    }

    async fn step(self: Arc<Self>, mut turn: GenerateTurn) -> Result<ModelResponse> {
        if let Some(answers) = turn.answers.take() {
            let following = Box::pin(self.settle(turn, answers)).await?;
            return self.turn(following).await;
        }
        expand_resources(
            &mut turn.request.messages,
            &self.resources,
            &self.registry,
            &turn.context,
        )
        .await?;
        let index = ChunkIndex::starting_at(turn.message_index);
        let Reply { response, effect } = Box::pin(self.reply(&turn, &index)).await?;
        let Some(asking) = self.message_with_work(&response) else {
            return Ok(complete(response, turn));
        };
        if turn.turn >= self.max_turns {
            return Err(too_many_turns(self.max_turns));
        }
        let round = Box::pin(self.run_tools(&turn, &asking, effect.as_ref(), &index)).await?;
        if round.is_interrupted() {
            return Ok(complete(round.interrupted(response), turn));
        }
        let following = Box::pin(proceed(turn, asking, round.message(), &index)).await?;
        self.deeper(following).await
    }

    /// Takes a turn inside another. Each takes its share of the thread's stack while it is polled, so every few turns
    /// one gets a task, and with it a stack, of its own.
    async fn deeper(self: Arc<Self>, turn: GenerateTurn) -> Result<ModelResponse> {
        let is_due = turn.turn.is_multiple_of(TURNS_PER_STACK);
        let work = self.turn(turn);
        let Some(runtime) = Handle::try_current().ok().filter(|_| is_due) else {
            return work.await;
        };
        let work = runtime.spawn(work.in_current_span().with_current_subscriber());
        match AbortOnDropHandle::new(work).await {
            Ok(result) => result,
            Err(error) => Err(match error.try_into_panic() {
                Ok(payload) => panic_error("generate", payload.as_ref()),
                Err(_) => Error::cancelled("the generation was dropped before it completed"),
            }),
        }
    }

    /// The model's message, if it asks for tools that this call is to run.
    fn message_with_work(&self, response: &ModelResponse) -> Option<Message> {
        let message = response
            .message
            .as_ref()
            .filter(|_| !self.returns_tool_requests)?;
        let is_blocked = response.finish_reason == Some(crate::FinishReason::Blocked);
        (!is_blocked && message.tool_requests().next().is_some()).then(|| message.clone())
    }
}

/// The turn after the tools of `asking` have answered.
async fn proceed(
    mut turn: GenerateTurn,
    asking: Message,
    answers: Message,
    index: &ChunkIndex,
) -> Result<GenerateTurn> {
    turn.request.messages.push(asking);
    turn.request.messages.push(answers.clone());
    tool_iteration_end(&turn.context, &turn.request.messages).await?;
    send_answers(&turn.emitter, &answers, index).await?;
    turn.turn += 1;
    turn.message_index = index.following();
    Ok(turn)
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

/// The response as callers get it: with the request that it answers, so that both together are the conversation.
fn complete(mut response: ModelResponse, turn: GenerateTurn) -> ModelResponse {
    response.usage.get_or_insert_default();
    response.custom.get_or_insert_with(|| serde_json::json!({}));
    response.request = Some(Box::new(turn.request));
    response
}

fn too_many_turns(max_turns: u32) -> Error {
    Error::aborted(format!("exceeded maximum tool call iterations ({max_turns})"))
        .with_reason(reason::MAX_TURNS_EXCEEDED)
        .with_public()
}
