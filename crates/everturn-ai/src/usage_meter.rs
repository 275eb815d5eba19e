//! Counting what the models and tools of an invocation use, and checking budgets before each call.
//!
//! Both happen inside all middleware, immediately before the call, so each attempt of a retry is counted. The
//! meters of all invocations around this one check and count the call too.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use everturn_core::{Context, Result, SpanRecorder};
use parking_lot::{Mutex, MutexGuard};

use crate::{ModelResponse, Money, Prices, Usage, UsageTotal};

/// A call before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NextCall<'a> {
    /// A call of a model.
    #[non_exhaustive]
    Model {
        /// The model's name.
        name: &'a str,
        /// Whether the application's [`Prices`] have a price for it.
        is_priced: bool,
    },
    /// A call of a tool.
    #[non_exhaustive]
    Tool {
        /// The tool's name.
        name: &'a str,
    },
}

impl<'a> NextCall<'a> {
    /// Creates the call of a model.
    pub fn model(name: &'a str, is_priced: bool) -> Self {
        Self::Model { name, is_priced }
    }

    /// Creates the call of a tool.
    pub fn tool(name: &'a str) -> Self {
        Self::Tool { name }
    }

    /// Returns the kind of call, without a name.
    pub fn unnamed(&self) -> NextCall<'static> {
        match self {
            Self::Model { is_priced, .. } => NextCall::model("", *is_priced),
            Self::Tool { .. } => NextCall::tool(""),
        }
    }
}

/// The counts of a [`UsageMeter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MeterReading {
    /// The usage of the invocation's own models and tools.
    pub own: UsageTotal,
    /// The usage of the invocations that this one made of other agents, through its tools.
    pub delegated: UsageTotal,
    /// The usage that this invocation records for its tenant: its own, and that of invocations that it made
    /// which record nothing themselves. Zero unless its [guard](BudgetGuard::counts_tenant) counts tenants.
    pub of_tenant: UsageTotal,
}

impl MeterReading {
    /// Returns the total usage, its own and delegated.
    pub fn total(&self) -> UsageTotal {
        self.own + self.delegated
    }
}

/// Checks budgets: it decides whether calls may be made, and records their usage.
#[async_trait]
pub trait BudgetGuard: Send + Sync + 'static {
    /// Admits a call, or rejects it with the error that ends the work. `used` includes the call.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with [`reason::LIMIT_REACHED`](crate::reason::LIMIT_REACHED) if a limit is
    /// reached.
    async fn admit(&self, call: &NextCall<'_>, used: MeterReading) -> Result<()>;

    /// Records the usage up to the end of a call.
    async fn record(&self, used: MeterReading);

    /// Returns whether the guard counts the usage of tenants. Each call counts for the tenant once: at the
    /// nearest guard that does.
    fn counts_tenant(&self) -> bool {
        false
    }
}

/// Counts what the models and tools of an invocation use; an extension of the context. Calls inside find the
/// innermost one.
///
/// A call is counted before it is made and after its [guard](UsageMeter::set_budget_guard) has admitted it;
/// its tokens and its time are added when it ends.
#[derive(Default)]
pub struct UsageMeter {
    reading: Mutex<MeterReading>,
    guard: OnceLock<Arc<dyn BudgetGuard>>,
    /// The meter of the invocation that made this one.
    outer: Option<Arc<Self>>,
}

impl UsageMeter {
    /// Creates a meter at zero, for an invocation that is made in this context. Its counts are also added to
    /// the meter of the context, if there is one.
    pub fn within(context: &Context) -> Arc<Self> {
        Arc::new(Self {
            outer: context.extension::<Self>(),
            ..Self::default()
        })
    }

    /// Returns whether the tenant is counted by this meter or one around it.
    pub fn counts_tenant(&self) -> bool {
        let mut meters = std::iter::once(self).chain(self.around());
        meters.any(|meter| meter.guard.get().is_some_and(|guard| guard.counts_tenant()))
    }

    /// Sets the guard that checks each call. Only the first one counts.
    pub fn set_budget_guard(&self, guard: Arc<dyn BudgetGuard>) {
        let _ = self.guard.set(guard);
    }

    /// Returns the counts so far.
    pub fn reading(&self) -> MeterReading {
        *self.counts()
    }

    fn counts(&self) -> MutexGuard<'_, MeterReading> {
        self.reading.lock()
    }

    /// Changes the count of this meter and of all around it, the nearest first, and passes each to `counted`
    /// with its reading.
    fn count<'a>(
        &'a self,
        change: impl Fn(&mut UsageTotal),
        mut counted: impl FnMut(&'a Self, &MeterReading),
    ) {
        let mut is_tenants = false;
        for (depth, meter) in std::iter::once(self).chain(self.around()).enumerate() {
            let counts_tenant = meter.guard.get().is_some_and(|guard| guard.counts_tenant());
            let mut reading = meter.counts();
            change(if depth == 0 {
                &mut reading.own
            } else {
                &mut reading.delegated
            });
            if counts_tenant && !is_tenants {
                is_tenants = true;
                change(&mut reading.of_tenant);
            }
            counted(meter, &reading);
        }
    }

    /// Returns the meters around this one, the nearest first.
    fn around(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.outer.as_deref(), |meter| meter.outer.as_deref())
    }

    /// Counts a call in every meter, and checks it with every guard.
    async fn admit(&self, call: &NextCall<'_>) -> Result<()> {
        let one = match call {
            NextCall::Model { .. } => UsageTotal {
                model_calls: 1,
                ..UsageTotal::default()
            },
            NextCall::Tool { .. } => UsageTotal {
                tool_calls: 1,
                ..UsageTotal::default()
            },
        };
        // Of concurrent calls, each sees those that were counted before it.
        let mut guards = Vec::new();
        self.count(
            |total| *total += one,
            |meter, used| guards.extend(meter.guard.get().map(|guard| (guard, *used))),
        );
        for (guard, used) in guards {
            if let Err(refused) = guard.admit(call, used).await {
                self.count(|total| *total = *total - one, |_, _| ());
                return Err(refused);
            }
        }
        Ok(())
    }

    async fn record(&self) {
        for meter in std::iter::once(self).chain(self.around()) {
            if let Some(guard) = meter.guard.get() {
                guard.record(meter.reading()).await;
            }
        }
    }
}

impl std::fmt::Debug for UsageMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UsageMeter").field(&self.reading()).finish()
    }
}

/// A call that was counted and may be made. If it is dropped, its tokens and time are unknown and not
/// counted.
pub(crate) struct MeteredCall {
    meter: Option<Arc<UsageMeter>>,
    prices: Option<Arc<Prices>>,
    began: Instant,
}

impl MeteredCall {
    /// Counts a call of a model, if it may be made.
    pub(crate) async fn of_model(context: &Context, name: &str) -> Result<Self> {
        let prices = context.find_dep::<Prices>().map(everturn_core::Dep::into_inner);
        let is_priced = prices.as_ref().is_some_and(|prices| prices.of(name).is_some());
        Self::admitted(context, prices, &NextCall::Model { name, is_priced }).await
    }

    /// Counts a call of a tool, if it may be made.
    pub(crate) async fn of_tool(context: &Context, name: &str) -> Result<Self> {
        Self::admitted(context, None, &NextCall::Tool { name }).await
    }

    async fn admitted(context: &Context, prices: Option<Arc<Prices>>, call: &NextCall<'_>) -> Result<Self> {
        let meter = context.extension::<UsageMeter>();
        if let Some(meter) = &meter {
            meter.admit(call).await?;
        }
        Ok(Self {
            meter,
            prices,
            began: Instant::now(),
        })
    }

    /// Counts the usage of a model, if the model reports it.
    pub(crate) async fn model_answered(self, name: &str, usage: Option<&Usage>) {
        let took = self.began.elapsed();
        // A failed call has no known cost except a price per call.
        let usage = usage.cloned().unwrap_or_default();
        let cost = self.prices.as_ref().and_then(|prices| prices.cost(name, &usage));
        self.ended(|total| {
            total.model_time += took;
            total.add_tokens(&usage);
            total.cost = total.cost + cost.unwrap_or(Money::ZERO);
        })
        .await;
    }

    /// Counts the time of a tool.
    pub(crate) async fn tool_answered(self) {
        let took: Duration = self.began.elapsed();
        self.ended(|total| total.tool_time += took).await;
    }

    async fn ended(&self, change: impl Fn(&mut UsageTotal)) {
        if let Some(meter) = &self.meter {
            meter.count(change, |_, _| ());
            meter.record().await;
        }
    }
}

/// A round that was counted.
pub(crate) struct MeteredRound(Option<Arc<UsageMeter>>);

impl MeteredRound {
    pub(crate) fn begin(context: &Context) -> Self {
        let meter = context.extension::<UsageMeter>();
        if let Some(meter) = &meter {
            meter.count(|total| total.rounds += 1, |_, _| ());
        }
        Self(meter)
    }

    /// Reverts the count, because no model was called.
    pub(crate) fn take_back(self) {
        if let Some(meter) = self.0 {
            meter.count(|total| total.rounds = total.rounds.saturating_sub(1), |_, _| ());
        }
    }
}

/// Records the usage of a model call on its span, under OpenTelemetry's names, and its cost.
pub(crate) fn record_usage(
    recorder: &SpanRecorder,
    model: &str,
    prices: Option<&Prices>,
    response: &ModelResponse,
) {
    if let Some(usage) = &response.usage {
        if let Some(cost) = prices.and_then(|prices| prices.cost(model, usage)) {
            recorder.attribute("everturn.usage.cost", cost.as_units());
        }
        let counts = [
            ("gen_ai.usage.input_tokens", usage.input_tokens),
            ("gen_ai.usage.output_tokens", usage.output_tokens),
            (
                "gen_ai.usage.cache_read.input_tokens",
                usage.cached_content_tokens,
            ),
            ("gen_ai.usage.reasoning.output_tokens", usage.thoughts_tokens),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                recorder.attribute(name, count);
            }
        }
    }
    if let Some(reason) = response.finish_reason {
        let reason = serde_json::to_value(reason).unwrap_or_default();
        recorder.attribute("gen_ai.response.finish_reasons", vec![reason]);
    }
}
