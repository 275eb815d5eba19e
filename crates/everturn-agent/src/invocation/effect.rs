//! Effects that a turn's own code has and that must not happen twice.

use std::future::Future;
use std::sync::Arc;

use everturn_ai::effect::without_journal;
use everturn_ai::{
    EffectId, EffectJournal, MultipartToolResponse, Reconciliation, Replay, ToolOutcome, ToolRecord, reason,
};
use everturn_core::{Context, Error, HandlerResult, Result};
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::journal::TurnJournal;
use crate::{CustomState, SessionHandle, Turn};

impl<S: CustomState> Turn<S> {
    /// Begins an effect of this turn that must not happen twice. Where the agent's store keeps journals, its
    /// outcome is recorded, and a turn that runs again is given the outcome instead of repeating the effect.
    ///
    /// Effects of one name are distinguished by their order, so every attempt at the turn must run them in
    /// the same order.
    ///
    /// ```
    /// use everturn_agent::{AgentSession, custom_agent, store::MemoryStore};
    /// use everturn_ai::{Message, Replay};
    /// use everturn_core::{Registry, Result};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
    /// let waiter = custom_agent(&Registry::new(), "waiter", |session: AgentSession| async move {
    ///     session
    ///         .run(|turn| async move {
    ///             let table: u32 = turn
    ///                 .effect("reserve", Replay::Keyed)
    ///                 .run(|key| async move { Ok(book_a_table(key.as_str())) })
    ///                 .await?;
    ///             turn.add_message(Message::model(format!("Table {table} is yours.")));
    ///             Ok(())
    ///         })
    ///         .await?;
    ///     Ok(session.result())
    /// })
    /// .store(MemoryStore::new())
    /// .define()?;
    /// # fn book_a_table(_key: &str) -> u32 { 7 }
    ///
    /// assert_eq!(waiter.run_text("For two, please.").await?.text(), "Table 7 is yours.");
    /// # Ok(()) }
    /// ```
    pub fn effect(&self, name: impl Into<String>, replay: Replay) -> TurnEffect {
        TurnEffect {
            name: name.into(),
            replay,
            context: self.context().clone(),
            journal: TurnJournal::of(self.context(), self.session_id()),
            is_of_tool: false,
            reconcile: None,
        }
    }
}

type Reconcile = Box<dyn FnOnce(EffectId) -> BoxFuture<'static, HandlerResult<Reconciliation<Value>>> + Send>;

/// An effect of a turn that must not happen twice; see [`Turn::effect`].
#[must_use = "an effect does not take place until it is run"]
pub struct TurnEffect {
    name: String,
    replay: Replay,
    context: Context,
    journal: Option<Arc<TurnJournal>>,
    /// Whether it is part of a tool call, whose identity is in its name.
    is_of_tool: bool,
    reconcile: Option<Reconcile>,
}

impl TurnEffect {
    /// Creates an effect of the turn that a context belongs to, for a tool that does several things of which
    /// each must not be done twice. If the context belongs to no turn, nothing is recorded.
    ///
    /// As with [`Turn::effect`], effects of one name are distinguished by their order; a tool makes its names
    /// unique with [`ToolContext::effect_id`](everturn_ai::ToolContext::effect_id). If the turn was cut
    /// short, the turn that reconciles the call finds the recorded outcomes of its effects by their names.
    pub fn within(context: &Context, name: impl Into<String>, replay: Replay) -> Self {
        let session = SessionHandle::of(context);
        Self {
            name: name.into(),
            replay,
            context: context.clone(),
            journal: session.and_then(|session| TurnJournal::of(context, session.session_id())),
            is_of_tool: true,
            reconcile: None,
        }
    }

    /// Sets the function that finds out the outcome of an effect that must not be repeated, if its process
    /// died during it.
    pub fn reconcile<T, F, Fut>(self, reconcile: F) -> Self
    where
        T: Serialize,
        F: FnOnce(EffectId) -> Fut + Send + 'static,
        Fut: Future<Output = HandlerResult<Reconciliation<T>>> + Send + 'static,
    {
        let erased: Reconcile = Box::new(move |id| {
            Box::pin(async move { Ok(reconcile(id).await?.try_map(serde_json::to_value)?) })
        });
        Self {
            reconcile: Some(erased),
            ..self
        }
    }

    /// Runs `work` with the effect's identity, unless its outcome is known already.
    ///
    /// An error of an effect that is [`Replay::Once`] leaves its outcome unknown, unless it states that
    /// [nothing happened](Error::nothing_happened): the reconcile function is called, and without one that
    /// determines the outcome no later attempt repeats the effect.
    ///
    /// # Errors
    /// The error of `work`; `FAILED_PRECONDITION` with [`reason::OUTCOME_UNKNOWN`] if the effect began in an
    /// earlier attempt, must not be repeated, and has an unknown outcome; `INTERNAL` if its outcome is not
    /// plain data, or is no `T`.
    pub async fn run<T, F, Fut>(self, work: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(EffectId) -> Fut,
        Fut: Future<Output = HandlerResult<T>>,
    {
        // Without a journal there is nothing to replay; the identity is still unique.
        let Some(journal) = self.journal else {
            return Ok(work(EffectId::random()).await?);
        };
        let (id, record) = journal
            .calling_own(&self.name, self.replay, self.is_of_tool)
            .await?;
        let mut reconcile = self.reconcile;
        let known = match record {
            ToolRecord::Nothing => None,
            ToolRecord::Ended(outcome) => Some(outcome),
            // Only approved calls are known from other resumptions.
            ToolRecord::StartedElsewhere | ToolRecord::AlreadyMade | ToolRecord::CutShort => {
                return Err(unknown(&self.name, &id));
            }
            ToolRecord::Started => match reconciled(reconcile.take(), &id).await? {
                Reconciliation::NeverHappened => None,
                Reconciliation::Unknown => return Err(unknown(&self.name, &id)),
                Reconciliation::Happened(output) => {
                    let outcome = finished(output);
                    // Recorded like a live outcome, so that a further attempt does not reconcile again.
                    journal.ended(&id, &outcome).await?;
                    Some(outcome)
                }
            },
        };
        match known {
            Some(ToolOutcome::Finished(response)) => {
                Ok(serde_json::from_value(response.output.unwrap_or_default())?)
            }
            Some(ToolOutcome::Interrupted(_)) => Err(Error::internal("an effect of a turn cannot interrupt")),
            None => self::live(&journal, (self.context, self.replay), id, work, reconcile).await,
        }
    }
}

async fn live<T, F, Fut>(
    journal: &Arc<TurnJournal>,
    (context, replay): (Context, Replay),
    id: EffectId,
    work: F,
    reconcile: Option<Reconcile>,
) -> Result<T>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(EffectId) -> Fut,
    Fut: Future<Output = HandlerResult<T>>,
{
    journal.started(&id).await?;
    // Generations inside the effect are part of it and need no separate journal.
    let inside = journal.enter(&id, without_journal(context));
    let error = match inside.clone().scope(async { work(id.clone()).await }).await {
        Ok(output) => {
            let outcome = finished(serde_json::to_value(&output)?);
            journal.ended(&id, &outcome).await?;
            return Ok(output);
        }
        Err(error) => Error::from(error),
    };
    let mut had_no_effect = replay != Replay::Once || error.had_no_effect();
    if !had_no_effect && !inside.is_over() {
        match inside.scope(reconciled(reconcile, &id)).await? {
            Reconciliation::Happened(output) => {
                journal.ended(&id, &finished(output.clone())).await?;
                return Ok(serde_json::from_value(output)?);
            }
            Reconciliation::NeverHappened => had_no_effect = true,
            Reconciliation::Unknown => {}
        }
    }
    journal.failed(&id, &error, had_no_effect).await;
    Err(error)
}

async fn reconciled(reconcile: Option<Reconcile>, id: &EffectId) -> Result<Reconciliation<Value>> {
    match reconcile {
        Some(reconcile) => Ok(reconcile(id.clone()).await?),
        None => Ok(Reconciliation::Unknown),
    }
}

fn finished(output: Value) -> ToolOutcome {
    ToolOutcome::Finished(MultipartToolResponse {
        output: Some(output),
        ..MultipartToolResponse::default()
    })
}

fn unknown(name: &str, id: &EffectId) -> Error {
    Error::failed_precondition(format!(
        "the effect '{name}' was begun and it is not known whether it took place; give it a 'reconcile' function that \
         finds out"
    ))
    .with_reason(reason::OUTCOME_UNKNOWN)
    .with_details(json!({ "effect": name, "effectId": id }))
}
