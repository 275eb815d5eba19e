//! What a tool says about being called again.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{HandlerResult, Result};
use futures::TryFutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Tool, ToolContext, body};
use crate::{MultipartToolResponse, Reconciliation, Replay};

/// Finds out what came of a call.
pub(super) type Reconcile =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, HandlerResult<Reconciliation<Value>>> + Send + Sync;

impl Tool {
    /// The same tool, saying how it may be called again when a turn is taken up after a crash. A tool that says nothing
    /// is taken for [`Replay::Once`].
    ///
    /// ```
    /// use everturn_ai::{Replay, Tool, ToolContext};
    ///
    /// let pay = Tool::new("pay", "Moves money.", |amount: u32, cx: ToolContext| async move {
    ///     // The bank ignores a second order with the same key.
    ///     Ok(format!("order {}: {amount}", cx.effect_id()))
    /// })
    /// .with_replay(Replay::Keyed);
    ///
    /// assert_eq!(pay.replay(), Replay::Keyed);
    /// ```
    pub fn with_replay(self, replay: Replay) -> Self {
        self.edit(|inner| inner.replay = Some(replay))
    }

    /// How the tool may be called again.
    pub fn replay(&self) -> Replay {
        // A tool that always interrupts does nothing else.
        let undeclared = || {
            if self.is_restartable() {
                Replay::default()
            } else {
                Replay::Pure
            }
        };
        self.0.replay.unwrap_or_else(undeclared)
    }

    /// The same tool, with a function that finds out what came of a call whose process died.
    ///
    /// It is given the call's input and its circumstances, [`ToolContext::effect_id`] among them, and is asked only about
    /// calls of a [`Replay::Once`] tool that began and whose end nobody knows. If it fails, the turn fails with its error
    /// and can be tried again; what it returns stands in the tool's place.
    pub fn with_reconcile<I, O, F, Fut>(self, reconcile: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        F: Fn(I, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Reconciliation<O>>> + Send + 'static,
    {
        let reconcile = Arc::new(reconcile);
        let erased: Arc<Reconcile> = Arc::new(move |input, context| {
            let reconcile = Arc::clone(&reconcile);
            Box::pin(async move {
                let found = reconcile(body::decode(input)?, context).await?;
                Ok(found.try_map(serde_json::to_value)?)
            })
        });
        self.edit(|inner| inner.reconcile = Some(erased))
    }

    /// Finds out what came of a call; nobody can tell for a tool that does not know how.
    pub(crate) async fn reconcile(
        &self,
        input: Option<Value>,
        context: ToolContext,
    ) -> Result<Reconciliation<MultipartToolResponse>> {
        let Some(reconcile) = &self.0.reconcile else {
            return Ok(Reconciliation::Unknown);
        };
        let input = body::completed(input, self.input_schema());
        let current = context.context().clone();
        let found = current
            .clone()
            .scope(current.guard(reconcile(input, context).err_into()))
            .await?;
        let found = found.try_map(|output| Ok::<_, everturn_core::Error>(body::plain(output)))?;
        if let Reconciliation::Happened(response) = &found {
            body::check_output(self, response)?;
        }
        Ok(found)
    }
}
