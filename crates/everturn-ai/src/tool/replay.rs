//! A tool's declaration of how it may be called again.

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

/// A function that determines the outcome of a call.
pub(super) type Reconcile =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, HandlerResult<Reconciliation<Value>>> + Send + Sync;

impl Tool {
    /// Declares how the tool may be called again when a turn is replayed after a crash. The default is
    /// [`Replay::Once`].
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

    /// Returns how the tool may be called again.
    pub fn replay(&self) -> Replay {
        // A tool that always interrupts has no effect.
        let undeclared = || {
            if self.0.restartable {
                Replay::default()
            } else {
                Replay::Pure
            }
        };
        self.0.replay.unwrap_or_else(undeclared)
    }

    /// Returns whether the author of the tool states that it must not run twice, by its declaration or by a
    /// function that reconciles calls.
    pub(crate) fn declares_once(&self) -> bool {
        self.0.replay == Some(Replay::Once) || self.0.reconcile.is_some()
    }

    /// Sets the function that determines the outcome of a started call whose end is unknown: its process
    /// died, it failed without stating that [nothing happened](everturn_core::Error::nothing_happened), or it
    /// returned [`ToolContext::outcome_unknown`].
    ///
    /// It gets the call's input and context, including [`ToolContext::effect_id`], and its result replaces
    /// the tool's. It must change the session as the tool does, because the changes of a call whose process
    /// died are lost with the process. The changes of a call that failed are still present, so it checks
    /// before it adds. It returns [`Reconciliation::NeverHappened`] only if the call can no longer take
    /// effect.
    ///
    /// If it fails, the turn fails with its error and can be retried; the call is reconciled then.
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

    /// Determines the outcome of a call; it stays unknown for a tool without a reconcile function.
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
