//! The model of the harness.

use std::sync::Arc;
use std::time::Duration;

use everturn_ai::{Model, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Context, Emitter, HandlerResult};
use everturn_testkit::{Reply, ScriptedModel};
use parking_lot::Mutex;

/// A model with programmed answers, one per call. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ProgrammableModel(Arc<Mutex<Program>>);

#[derive(Debug, Default)]
struct Program {
    script: ScriptedModel,
    delay: Duration,
}

impl ProgrammableModel {
    /// The name under which the harness registers it.
    pub const NAME: &str = "programmableModel";

    /// Replaces the answers, including unused ones.
    pub fn program(&self, replies: impl IntoIterator<Item = Reply>) {
        self.play(ScriptedModel::new().replies(replies));
    }

    /// Replaces the answers, and repeats the last one.
    pub fn program_without_end(&self, replies: impl IntoIterator<Item = Reply>) {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let last = replies.last().cloned();
        let script = ScriptedModel::new().replies(replies);
        self.play(match last {
            Some(last) => script.otherwise(move |_| last.clone()),
            None => script,
        });
    }

    fn play(&self, script: ScriptedModel) {
        self.0.lock().script = script;
    }

    /// Makes the model wait before each answer.
    pub fn delay(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    /// Returns the current script with the requests since it was set.
    pub fn script(&self) -> ScriptedModel {
        self.0.lock().script.clone()
    }
}

impl Model for ProgrammableModel {
    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> HandlerResult<ModelResponse> {
        // The answer is chosen when the model is called, before any delay.
        let delay = self.0.lock().delay;
        let script = self.script();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        script.generate(request, emitter, context).await
    }
}
