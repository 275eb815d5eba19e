//! What the turns of an invocation use, and what they may use.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use everturn_ai::{Budget, MeterReading, NextCall, SpendingGate, UsageMeter, UsageTotal, async_trait};
use everturn_core::{Context, Error, Result};
use tokio::time::Instant;

use crate::Limits;
use crate::cursor::UsedBefore;
use crate::lock::lock;

/// The meter of an invocation, its limits, and where the meter stood at moments that count.
pub(super) struct Spending {
    meter: Arc<UsageMeter>,
    limits: Limits,
    marks: Mutex<Marks>,
}

#[derive(Default)]
struct Marks {
    /// The reading at the end of the last turn.
    at_turn_end: UsageTotal,
    /// The reading at the beginning of the turn under way.
    at_turn_begin: UsageTotal,
    /// What the conversation had used at the snapshot that the invocation continued from, and the reading then.
    session_before: (UsageTotal, UsageTotal),
    invocation_before: UsageTotal,
    /// When the turn under way began.
    turn_began: Option<Instant>,
    /// The time that turns took which are over.
    turn_time: Duration,
}

impl Marks {
    /// Completes the count of models and tools by the time of turns.
    fn reading(&self, counted: UsageTotal) -> UsageTotal {
        // A turn that used nothing is not told of, so its time is not either.
        if counted.is_zero() {
            return counted;
        }
        let under_way = self.turn_began.map(|began| began.elapsed()).unwrap_or_default();
        let mut reading = counted;
        reading.turn_time = self.turn_time + under_way;
        reading
    }

    fn of_session(&self, reading: UsageTotal) -> UsageTotal {
        let (before, since) = self.session_before;
        before + (reading - since)
    }
}

impl Spending {
    /// Begins an invocation that is made in this context.
    pub(super) fn begin(caller: &Context, limits: Limits, before: UsedBefore) -> Arc<Self> {
        let meter = UsageMeter::within(caller);
        let spending = Arc::new(Self {
            meter: Arc::clone(&meter),
            limits,
            marks: Mutex::new(Marks {
                session_before: (before.session, UsageTotal::default()),
                invocation_before: before.invocation,
                ..Marks::default()
            }),
        });
        // Weak by way of a gate of its own: the meter must not keep itself.
        meter.set_gate(Arc::new(Gate(Arc::downgrade(&spending))));
        spending
    }

    /// Makes the invocation's calls of models and tools count here.
    pub(super) fn enter(&self, context: Context) -> Context {
        context.with_extension(Arc::clone(&self.meter))
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.marks)
    }

    fn reading(&self, marks: &Marks) -> UsageTotal {
        marks.reading(self.meter.reading().total())
    }

    /// Returns what the invocation's own models and tools used, without those of agents that it called.
    pub(super) fn own(&self) -> UsageTotal {
        self.meter.reading().own
    }

    /// Continues from the snapshot of another invocation, up to which the conversation had used this much.
    pub(super) fn moved_to(&self, before: Option<UsageTotal>) {
        let mut marks = self.marks();
        let since = self.reading(&marks);
        marks.session_before = (before.unwrap_or_default(), since);
    }

    /// Notes that a turn begins.
    pub(super) fn begin_turn(&self) {
        let mut marks = self.marks();
        marks.at_turn_begin = self.reading(&marks);
        marks.turn_began = Some(Instant::now());
    }

    /// Stops the clock of the turn under way.
    pub(super) fn turn_is_over(&self) {
        let mut marks = self.marks();
        if let Some(began) = marks.turn_began.take() {
            marks.turn_time += began.elapsed();
        }
    }

    /// Returns what the invocation has used; `None` if it asked no model and ran no tool.
    pub(super) fn of_invocation(&self) -> Option<UsageTotal> {
        Some(self.reading(&self.marks())).filter(|total| !total.is_zero())
    }

    /// Returns what the conversation has used, this invocation included.
    pub(super) fn of_session(&self) -> UsageTotal {
        let marks = self.marks();
        marks.of_session(self.reading(&marks))
    }

    /// Returns what the conversation had used when the invocation began, earlier workers of the invocation apart.
    pub(super) fn before_invocation(&self) -> UsageTotal {
        let marks = self.marks();
        let reading = self.reading(&marks);
        marks.of_session(reading) - (reading + marks.invocation_before)
    }

    /// Returns what was used since the turn before ended; `None` if nothing was.
    pub(super) fn end_turn(&self) -> Option<UsageTotal> {
        let mut marks = self.marks();
        let reading = self.reading(&marks);
        let turn = reading - std::mem::replace(&mut marks.at_turn_end, reading);
        Some(turn).filter(|turn| !turn.is_zero())
    }

    /// Returns the budgets, each with its name and what counts towards it at this reading.
    fn levels(&self, counted: UsageTotal) -> [(&'static str, Budget, UsageTotal); 3] {
        let marks = self.marks();
        let reading = marks.reading(counted);
        let turn = reading - marks.at_turn_begin;
        [
            ("turn", self.limits.turn, turn),
            (
                "invocation",
                self.limits.invocation,
                marks.invocation_before + reading,
            ),
            ("session", self.limits.session, marks.of_session(reading)),
        ]
    }

    fn check(&self, call: &NextCall<'_>, used: MeterReading) -> Result<()> {
        for (per, budget, used) in self.levels(used.total()) {
            if let NextCall::Model {
                name,
                is_priced: false,
                ..
            } = call
                && budget.limits_money()
            {
                return Err(no_price(name));
            }
            if let Some(exceeded) = budget.exceeded(call, &used) {
                return Err(exceeded.error(per));
            }
        }
        Ok(())
    }
}

/// Refuses the calls that the limits of an invocation forbid.
struct Gate(std::sync::Weak<Spending>);

#[async_trait]
impl SpendingGate for Gate {
    async fn admit(&self, call: &NextCall<'_>, used: MeterReading) -> Result<()> {
        match self.0.upgrade() {
            Some(spending) => spending.check(call, used),
            // The invocation is over, and work that it left behind counts for nobody.
            None => Ok(()),
        }
    }

    async fn settle(&self, _used: MeterReading) {}
}

fn no_price(model: &str) -> Error {
    Error::failed_precondition(format!(
        "model '{model}' has no price, and money is limited: add its price to the application's prices \
         (`Price::free()` if it costs nothing)"
    ))
}
