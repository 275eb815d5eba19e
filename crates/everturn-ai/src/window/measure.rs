//! Counting the tokens of messages.

use std::fmt;
use std::ops::Sub;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::messages::Segment;
use crate::{History, Message, Messages};

/// A function that counts the tokens of a message.
pub(super) type CountTokens = dyn Fn(&Message) -> u64 + Send + Sync;

/// The tokens of a run of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) tokens: u64,
    /// How many of them are outputs of tools.
    pub(super) outputs: u64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.outputs += other.outputs;
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            outputs: self.outputs.saturating_sub(other.outputs),
        }
    }
}

/// The way in which tokens are counted.
#[derive(Clone, Default)]
pub(super) enum Measure {
    /// By the length of the content. Running totals are kept with every history.
    #[default]
    Estimate,
    /// By a function of the application. Running totals are attached to each lineage.
    Function(Arc<CountTokens>),
}

impl Measure {
    /// Returns the cost of one message.
    pub(super) fn of(&self, message: &Message) -> Cost {
        let stats = message.stats();
        match self {
            Self::Estimate => Cost {
                tokens: stats.tokens,
                outputs: stats.tool_output_tokens,
            },
            Self::Function(count) => {
                let tokens = count(message);
                // The function does not count parts, so the outputs have their estimated share.
                let share = tokens.saturating_mul(stats.tool_output_tokens) / stats.tokens.max(1);
                Cost {
                    tokens,
                    outputs: share,
                }
            }
        }
    }

    /// Returns the cost of the first `len` messages.
    pub(super) fn before(&self, messages: &Messages, len: usize) -> Cost {
        let Self::Function(count) = self else {
            let stats = messages.stats_before(len);
            return Cost {
                tokens: stats.tokens,
                outputs: stats.tool_output_tokens,
            };
        };
        let mut cost = Cost::default();
        let mut left = len;
        for segment in messages.segments() {
            if left == 0 {
                break;
            }
            left -= match segment {
                Segment::Run(run) => {
                    let within = left.min(run.len());
                    run[..within]
                        .iter()
                        .for_each(|message| cost.add(self.of(message)));
                    within
                }
                Segment::History { history, from } => {
                    let within = left.min(history.len() - from);
                    let counted = |len| self.counted(count, history, len);
                    cost.add(counted(from + within) - counted(from));
                    within
                }
            };
        }
        cost
    }

    /// Returns the cost of the first `len` messages of a history, of which only those are counted that were
    /// not before.
    fn counted(&self, count: &Arc<CountTokens>, history: &History, len: usize) -> Cost {
        // The address identifies the function: the window keeps the function, and the totals are not used
        // without it.
        let function = Arc::as_ptr(count).cast::<()>() as usize;
        let mut positions = Vec::new();
        let mut position = Some(history.truncate_to(len));
        let mut cost = Cost::default();
        while let Some(history) = position.filter(|history| !history.is_empty()) {
            if let Some(known) = totals(&history).get(function, &history) {
                cost = known;
                break;
            }
            position = history.lineage().parent().cloned();
            positions.push(history);
        }
        for history in positions.iter().rev() {
            let totals = totals(history);
            let (mut next, last) = totals.last(function, history);
            cost = last.unwrap_or(cost);
            // The function is called without the lock.
            for message in history.since(next) {
                cost.add(self.of(message));
                totals.keep(function, next - history.lineage().base(), cost);
                next += 1;
            }
        }
        cost
    }
}

impl fmt::Debug for Measure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Estimate => "Estimate",
            Self::Function(_) => "Function",
        })
    }
}

/// The running totals of a lineage's own messages, for each counting function.
#[derive(Default)]
struct Totals(Mutex<Vec<(usize, Vec<Cost>)>>);

fn totals(history: &History) -> Arc<Totals> {
    history.lineage().extension()
}

impl Totals {
    fn with<T>(&self, function: usize, access: impl FnOnce(&mut Vec<Cost>) -> T) -> T {
        let mut all = self.0.lock();
        let found = all.iter().position(|(of, _)| *of == function);
        let found = found.unwrap_or_else(|| {
            all.push((function, Vec::new()));
            all.len() - 1
        });
        access(&mut all[found].1)
    }

    /// Returns the total up to this position.
    fn get(&self, function: usize, history: &History) -> Option<Cost> {
        let own = history.len() - history.lineage().base();
        self.with(function, |totals| totals.get(own.checked_sub(1)?).copied())
    }

    /// Returns the index of the first message of the lineage without a total, and the total before it.
    fn last(&self, function: usize, history: &History) -> (usize, Option<Cost>) {
        let base = history.lineage().base();
        self.with(function, |totals| (base + totals.len(), totals.last().copied()))
    }

    fn keep(&self, function: usize, own: usize, total: Cost) {
        self.with(function, |totals| {
            // Another request may have counted the message meanwhile.
            if totals.len() == own {
                totals.push(total);
            }
        });
    }
}
