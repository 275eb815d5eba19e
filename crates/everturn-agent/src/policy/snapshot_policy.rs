//! The policy that decides when a snapshot is taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use everturn_core::{Context, Result, panic_error};

use crate::{CustomState, SessionState, SnapshotEvent};

/// A moment at which a snapshot can be taken.
#[derive(Debug)]
#[non_exhaustive]
pub struct SnapshotMoment<'a> {
    /// The event.
    pub event: SnapshotEvent,
    /// The state at this moment.
    pub state: &'a SessionState,
    /// The state at the previous snapshot; `None` if there is none.
    pub previous: Option<&'a SessionState>,
    /// The number that the snapshot would have in its session.
    pub index: u64,
    /// The number of the turn among its ancestors; at the end of an invocation, that of the last turn.
    pub turn_index: u64,
    /// The context of the caller: who calls, and with which values.
    pub context: &'a Context,
}

impl SnapshotMoment<'_> {
    /// Returns the custom state now as its type.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not an `S`.
    pub fn custom<S: CustomState>(&self) -> Result<S> {
        self.state.custom_as()
    }

    /// Returns whether the state differs from the previous snapshot. The cost is that of the changes since
    /// then, not of the conversation's length.
    pub fn is_changed(&self) -> bool {
        self.previous
            .is_none_or(|previous| !self.state.is_unchanged_since(previous))
    }
}

/// Decides which moments become snapshots. Cloning is cheap.
///
/// | policy | becomes a snapshot |
/// |---|---|
/// | [`default`](Self::default) | every successful turn |
/// | [`always`](Self::always) | every moment there is |
/// | [`never`](Self::never) | nothing |
/// | [`on`](Self::on) | these events |
/// | [`on_change`](Self::on_change) | these events, if the state differs from the previous snapshot |
/// | [`when`](Self::when) | the moments that a function picks |
///
/// A snapshot is a point that is listed, labelled and branched from. The policy does not decide what is
/// stored: every successful turn is durable. A turn without a snapshot is the session's *head*: its `turnEnd`
/// names no snapshot, listings leave it out, and the next turn continues from it, in the same invocation or
/// in a later one that resumes the session or the output's
/// [`snapshotId`](crate::AgentOutput::snapshot_id). To store nothing, define the agent without a store.
///
/// A background run has its one snapshot regardless of the policy, and no others. With any policy but the
/// default, each snapshot is reported to clients: in
/// [`snapshotCreated`](crate::AgentStreamChunk::snapshot_created) chunks and in the output's
/// [`snapshotIds`](crate::AgentOutput::snapshot_ids).
///
/// ```
/// use everturn_agent::{SnapshotEvent, SnapshotPolicy};
///
/// let every_round_of_tools = SnapshotPolicy::on([SnapshotEvent::TurnEnd, SnapshotEvent::RoundEnd]);
/// let for_editors = SnapshotPolicy::when(|moment| {
///     moment.event == SnapshotEvent::TurnEnd && moment.context.value("editor").is_some()
/// });
/// let every_other_turn = SnapshotPolicy::when(|moment| {
///     moment.event == SnapshotEvent::TurnEnd && moment.turn_index % 2 == 1
/// });
/// # let _ = (every_round_of_tools, for_editors, every_other_turn);
/// ```
#[derive(Clone)]
pub struct SnapshotPolicy(Rule);

type Decide = dyn Fn(&SnapshotMoment<'_>) -> Result<bool> + Send + Sync;

#[derive(Clone)]
enum Rule {
    EveryTurn,
    Always,
    Never,
    On(Arc<[SnapshotEvent]>),
    OnChange(Arc<[SnapshotEvent]>),
    When(Arc<Decide>),
}

impl SnapshotPolicy {
    /// Takes a snapshot at every moment: the ends of turns, of rounds within them, and of invocations.
    pub fn always() -> Self {
        Self(Rule::Always)
    }

    /// Takes no snapshots: a session is its head. Background runs still have theirs.
    pub fn never() -> Self {
        Self(Rule::Never)
    }

    /// Takes a snapshot at these events.
    pub fn on(events: impl IntoIterator<Item = SnapshotEvent>) -> Self {
        Self(Rule::On(events.into_iter().collect()))
    }

    /// Takes a snapshot at these events if the state differs from the previous snapshot.
    pub fn on_change(events: impl IntoIterator<Item = SnapshotEvent>) -> Self {
        Self(Rule::OnChange(events.into_iter().collect()))
    }

    /// Takes a snapshot at the moments that `decide` selects. The invocation waits for it, so it should be
    /// fast.
    ///
    /// The custom state is JSON here; [`AgentBuilder::snapshots_when`](crate::AgentBuilder::snapshots_when)
    /// gives it as its type.
    pub fn when(decide: impl Fn(&SnapshotMoment<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Rule::When(Arc::new(move |moment| Ok(decide(moment)))))
    }

    /// Takes a snapshot at the moments that `decide` selects from the custom state of type `S`, now and at
    /// the previous snapshot.
    pub(crate) fn over_custom_state<S: CustomState>(
        decide: impl Fn(&SnapshotMoment<'_>, &S, Option<&S>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Rule::When(Arc::new(move |moment| {
            let previous = moment.previous.map(SessionState::custom_as).transpose()?;
            Ok(decide(moment, &moment.custom()?, previous.as_ref()))
        })))
    }

    /// Returns whether this is the default policy of an agent with a store.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.0, Rule::EveryTurn)
    }

    /// Returns whether the policy compares a moment with the previous snapshot.
    pub(crate) fn compares(&self) -> bool {
        matches!(self.0, Rule::OnChange(_) | Rule::When(_))
    }

    /// Returns whether a moment of this kind can become a snapshot.
    pub(crate) fn listens_to(&self, event: SnapshotEvent) -> bool {
        match &self.0 {
            Rule::EveryTurn => event == SnapshotEvent::TurnEnd,
            Rule::Always | Rule::When(_) => true,
            Rule::Never => false,
            Rule::On(events) | Rule::OnChange(events) => events.contains(&event),
        }
    }

    /// Returns whether this moment becomes a snapshot.
    ///
    /// # Errors
    /// `INTERNAL` if the policy panics; `INVALID_ARGUMENT` if it expects another custom state than the stored
    /// one.
    pub(crate) fn wants(&self, moment: &SnapshotMoment<'_>) -> Result<bool> {
        match &self.0 {
            Rule::OnChange(_) => Ok(self.listens_to(moment.event) && moment.is_changed()),
            Rule::When(decide) => catch_unwind(AssertUnwindSafe(|| decide(moment)))
                .unwrap_or_else(|payload| Err(panic_error("the snapshot policy", payload.as_ref())))
                .map_err(|error| error.context("the snapshot policy failed")),
            _ => Ok(self.listens_to(moment.event)),
        }
    }
}

impl Default for SnapshotPolicy {
    /// Takes a snapshot of every successful turn.
    fn default() -> Self {
        Self(Rule::EveryTurn)
    }
}

everturn_core::opaque_debug!(SnapshotPolicy);

#[cfg(test)]
mod tests {
    use SnapshotEvent::{InvocationEnd, RoundEnd, TurnEnd};
    use everturn_ai::Message;

    use super::*;

    const EVENTS: [SnapshotEvent; 3] = [TurnEnd, RoundEnd, InvocationEnd];

    /// The relation of the conversation to the snapshot before.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum State {
        First,
        Changed,
        Unchanged,
    }

    const STATES: [State; 3] = [State::First, State::Changed, State::Unchanged];

    fn wants(policy: &SnapshotPolicy, event: SnapshotEvent, state: State) -> bool {
        let previous = SessionState {
            messages: [Message::user("a")].into_iter().collect(),
            ..SessionState::default()
        };
        let mut now = previous.clone();
        if state == State::Changed {
            now.messages.push(Message::model("b"));
        }
        let moment = SnapshotMoment {
            event,
            state: &now,
            previous: (state != State::First).then_some(&previous),
            index: 3,
            turn_index: 2,
            context: &Context::new(),
        };
        policy.wants(&moment).unwrap()
    }

    #[test]
    fn every_policy_decides_as_its_name_says_at_every_event_and_for_every_state() {
        type Expected = fn(SnapshotEvent, State) -> bool;
        let table: [(SnapshotPolicy, Expected); 9] = [
            (SnapshotPolicy::default(), |event, _| event == TurnEnd),
            (SnapshotPolicy::always(), |_, _| true),
            (SnapshotPolicy::never(), |_, _| false),
            (SnapshotPolicy::on([]), |_, _| false),
            (SnapshotPolicy::on([RoundEnd]), |event, _| event == RoundEnd),
            (SnapshotPolicy::on([TurnEnd, InvocationEnd]), |event, _| {
                event != RoundEnd
            }),
            (SnapshotPolicy::on_change(EVENTS), |_, state| {
                state != State::Unchanged
            }),
            (SnapshotPolicy::on_change([InvocationEnd]), |event, state| {
                event == InvocationEnd && state != State::Unchanged
            }),
            (
                SnapshotPolicy::when(|moment| {
                    (moment.index, moment.turn_index) == (3, 2)
                        && moment.event != TurnEnd
                        && moment.is_changed()
                }),
                |event, state| event != TurnEnd && state != State::Unchanged,
            ),
        ];

        for (policy, expected) in table {
            for event in EVENTS {
                for state in STATES {
                    let wants = wants(&policy, event, state);

                    assert_eq!(
                        wants,
                        expected(event, state),
                        "{policy:?} at {event:?}, {state:?}"
                    );
                    assert!(
                        !wants || policy.listens_to(event),
                        "{policy:?} is not asked at {event:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_part_of_a_state_can_change() {
        let before = SessionState::default();
        let change = |change: fn(&mut SessionState)| {
            let mut after = before.clone();
            change(&mut after);
            after.is_unchanged_since(&before)
        };

        assert!(change(|_| {}));
        assert!(change(|state| state.artifacts = Arc::default()));
        assert!(!change(|state| state.messages.push(Message::user("a"))));
        assert!(!change(|state| state.custom = Some(Arc::default())));
        assert!(!change(
            |state| state.artifacts = Arc::new(vec![crate::Artifact::text("a", "b")])
        ));
        assert!(!change(|state| state.prompt_input = Some(Arc::default())));
    }
}
