//! The model of the harness.

use std::sync::{Arc, Mutex, PoisonError};

use everturn_ai::{Model, ModelRequest, ModelResponse, ModelResponseChunk};
use everturn_core::{Context, Emitter, Result};
use everturn_testkit::{Reply, ScriptedModel};

/// A model that gives the answers it was last programmed with, one per call. A clone is another handle to it.
#[derive(Debug, Clone, Default)]
pub struct ProgrammableModel(Arc<Mutex<ScriptedModel>>);

impl ProgrammableModel {
    /// The name under which the harness registers it.
    pub const NAME: &str = "programmableModel";

    /// Replaces its answers; those not given yet are forgotten.
    pub fn program(&self, replies: impl IntoIterator<Item = Reply>) {
        let script = ScriptedModel::new().replies(replies);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = script;
    }

    /// What it was last programmed with, and what it was asked since.
    pub fn script(&self) -> ScriptedModel {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for ProgrammableModel {
    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> Result<ModelResponse> {
        self.script().generate(request, emitter, context).await
    }
}
