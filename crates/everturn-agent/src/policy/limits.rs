//! Limits on what the turns of an agent may use.

use std::sync::Arc;

use everturn_ai::Budget;
use everturn_core::{Context, Registry};

/// The number of equal tool calls in a turn, unless the agent sets another. It ends loops, and lets a tool be
/// polled.
const REPEATED_CALLS: u32 = 50;

/// How much the models and tools of an agent may use: in a turn, an invocation, a session, and for a tenant.
///
/// Each [`Budget`] is compared with what was used before each call of a model and of a tool. A call that a
/// limit forbids is not made; the turn fails with `RESOURCE_EXHAUSTED` and
/// [`LIMIT_REACHED`](everturn_ai::reason::LIMIT_REACHED), and its details name the limit. The session stays
/// as it was before the turn, so the turn can be tried again once the limit is raised; what its journal
/// recorded is not paid for again.
///
/// - [`per_turn`](Limits::per_turn): the turn, with all attempts at it.
/// - [`per_invocation`](Limits::per_invocation): all turns of the invocation, including those of a background
///   run.
/// - [`per_session`](Limits::per_session): everything from the session's beginning up to the turn, including
///   turns that failed or were superseded. A branch starts with the usage of the turns before it.
/// - [`per_tenant`](Limits::per_tenant): everything that the tenant's sessions have used in the agent's
///   store.
///
/// Usage includes delegated agents. For the tenant each call counts once: where the delegated agent counts
/// its tenant, else at the agent that delegates.
///
/// All of this is counted in the store while a turn runs, so neither a crash nor a failed turn, a takeover or
/// another host resets it. A call is entered before it is made; its tokens and its cost when it has ended.
///
/// ```
/// use std::time::Duration;
///
/// use everturn_agent::{Limits, agent};
/// use everturn_ai::Budget;
/// # use everturn_core::{Registry, Result};
/// # fn main() -> Result<()> {
/// # let registry = Registry::new();
/// agent(&registry, "support")
///     .limits(
///         Limits::new()
///             .per_turn(Budget::new().model_calls(20).time(Duration::from_mins(5)))
///             .per_session(Budget::new().tokens(200_000))
///             .repeated_calls(3),
///     )
///     .define()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    pub(crate) turn: Budget,
    pub(crate) invocation: Budget,
    pub(crate) session: Budget,
    pub(crate) tenant: Option<Budget>,
    repeated_calls: Option<u32>,
}

impl Limits {
    /// Creates limits that limit nothing but endless repetition.
    pub fn new() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Limits each turn.
        pub fn per_turn(mut self, budget: Budget) { self.turn = budget }

        /// Limits each invocation: all turns of one call of the agent.
        pub fn per_invocation(mut self, budget: Budget) { self.invocation = budget }

        /// Limits each session, along the branch that a turn continues.
        pub fn per_session(mut self, budget: Budget) { self.session = budget }

        /// Limits each tenant: what all its sessions with agents of this store, which count tenants too, have
        /// used since the tenant was last deleted. A budget without limits only counts.
        ///
        /// The agent needs a store that keeps a ledger, as all stores of Everturn do.
        pub fn per_tenant(mut self, budget: Budget) { self.tenant = Some(budget) }

        /// Sets how often a model may make the same tool call, with the same arguments, in a turn; 50 times
        /// by default.
        ///
        /// The next such call is not made, and the model receives an answer with the reason. If the model
        /// makes the call once more, the turn fails with `RESOURCE_EXHAUSTED` and
        /// [`REPEATED_CALL`](everturn_ai::reason::REPEATED_CALL). Equal calls in one message of the model
        /// count once.
        pub fn repeated_calls(mut self, at_most: u32) { self.repeated_calls = Some(at_most) }
    }

    /// Returns these limits with those of `other` where these set none.
    pub fn or(self, other: &Self) -> Self {
        Self {
            turn: self.turn.or(other.turn),
            invocation: self.invocation.or(other.invocation),
            session: self.session.or(other.session),
            tenant: match (self.tenant, other.tenant) {
                (Some(own), Some(other)) => Some(own.or(other)),
                (own, other) => own.or(other),
            },
            repeated_calls: self.repeated_calls.or(other.repeated_calls),
        }
    }

    /// Returns whether anything is to be counted.
    pub(crate) fn any(&self) -> bool {
        let budgets = [self.turn, self.invocation, self.session];
        self.tenant.is_some() || budgets.iter().any(|budget| !budget.is_unlimited())
    }

    pub(crate) fn most_repeated_calls(&self) -> u32 {
        self.repeated_calls.unwrap_or(REPEATED_CALLS)
    }
}

const KEY: &str = "everturn/limits";

/// Sets the limits of all agents of a registry, for agents that set none. They hold for invocations that
/// begin later.
pub fn set_limits(registry: &Registry, limits: Limits) {
    registry.set_value(KEY, limits);
}

/// The limits that an agent chose: for all callers, or for each.
#[derive(Clone, Default)]
pub(crate) struct ChosenLimits(Option<Arc<LimitsOf>>);

type LimitsOf = dyn Fn(&Context) -> Limits + Send + Sync;

impl ChosenLimits {
    pub(crate) fn new(limits: impl Fn(&Context) -> Limits + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(limits)))
    }

    /// Returns the limits of an invocation in this context.
    pub(crate) fn for_call(&self, context: &Context, registry: &Registry) -> Limits {
        let own = self.0.as_ref().map(|limits| limits(context)).unwrap_or_default();
        match registry.value::<Limits>(KEY) {
            Some(general) => own.or(&general),
            None => own,
        }
    }
}

everturn_core::opaque_debug!(ChosenLimits);
