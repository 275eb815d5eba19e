//! What the turns of an invocation use, as far as the driver must remember it.

use std::sync::Arc;

use everturn_ai::{UsageMeter, UsageTotal};

/// The meter of an invocation, and where it stood at moments that count.
pub(super) struct TurnUsage {
    meter: Arc<UsageMeter>,
    /// Where it stood at the end of the last turn.
    at_turn_end: UsageTotal,
    /// What the conversation had used at the snapshot that the invocation continued from, and where the meter stood then.
    before: (UsageTotal, UsageTotal),
}

impl TurnUsage {
    /// Begins at a snapshot up to which the conversation had used this much.
    pub(super) fn new(meter: Arc<UsageMeter>, before: Option<UsageTotal>) -> Self {
        Self {
            meter,
            at_turn_end: UsageTotal::default(),
            before: (before.unwrap_or_default(), UsageTotal::default()),
        }
    }

    /// Continues from the snapshot of another invocation, up to which the conversation had used this much.
    pub(super) fn moved_to(&mut self, before: Option<UsageTotal>) {
        self.before = (before.unwrap_or_default(), self.meter.total());
    }

    /// Returns what the invocation has used; `None` if it asked no model and ran no tool.
    pub(super) fn of_invocation(&self) -> Option<UsageTotal> {
        Some(self.meter.total()).filter(|total| !total.is_zero())
    }

    /// Returns what the conversation has used, this invocation included.
    pub(super) fn of_session(&self) -> UsageTotal {
        let (before, since) = self.before;
        before + (self.meter.total() - since)
    }

    /// Returns what was used since the turn before ended; `None` if nothing was.
    pub(super) fn end_turn(&mut self) -> Option<UsageTotal> {
        let total = self.meter.total();
        let turn = total - std::mem::replace(&mut self.at_turn_end, total);
        Some(turn).filter(|turn| !turn.is_zero())
    }
}
