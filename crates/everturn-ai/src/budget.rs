//! Budgets: limits on usage.

use std::fmt;
use std::time::Duration;

use everturn_core::Error;
use serde_json::{Value, json};

use crate::{Money, NextCall, UsageTotal, reason};

/// A limit on what models and tools may use. Amounts that are not set are not limited.
///
/// A budget is compared with a [`UsageTotal`] before each call of a model and of a tool. Tokens and money are
/// known only after a call, so the call that reaches the limit is made, and the next one is rejected.
///
/// ```
/// use std::time::Duration;
///
/// use everturn_ai::Budget;
///
/// let budget = Budget::new().tokens(200_000).money(5.0).model_calls(50).time(Duration::from_mins(10));
/// # let _ = budget;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    tokens: Option<u64>,
    money: Option<Money>,
    model_calls: Option<u64>,
    tool_calls: Option<u64>,
    rounds: Option<u64>,
    time: Option<Duration>,
}

impl Budget {
    /// Creates a budget that limits nothing.
    pub fn new() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Limits the tokens of requests and answers together.
        pub fn tokens(mut self, tokens: u64) { self.tokens = Some(tokens) }

        /// Limits the cost of model calls, in the currency of the application's [`Prices`](crate::Prices). A
        /// call of a model without a price is then rejected.
        pub fn money(mut self, money: impl Into<Money>) { self.money = Some(money.into()) }

        /// Limits the number of model calls, including failed ones.
        pub fn model_calls(mut self, calls: u64) { self.model_calls = Some(calls) }

        /// Limits the number of tool calls, including failed ones.
        pub fn tool_calls(mut self, calls: u64) { self.tool_calls = Some(calls) }

        /// Limits the number of rounds: model calls with the tool calls that they request.
        pub fn rounds(mut self, rounds: u64) { self.rounds = Some(rounds) }

        /// Limits the wall-clock time of turns. A call in progress is not interrupted when the time is up.
        pub fn time(mut self, time: Duration) { self.time = Some(time) }
    }

    /// Returns whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns this budget with the amounts of `other` where this one sets none.
    pub fn or(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.or(other.tokens),
            money: self.money.or(other.money),
            model_calls: self.model_calls.or(other.model_calls),
            tool_calls: self.tool_calls.or(other.tool_calls),
            rounds: self.rounds.or(other.rounds),
            time: self.time.or(other.time),
        }
    }

    /// Returns whether money is limited.
    pub fn limits_money(&self) -> bool {
        self.money.is_some()
    }

    /// Returns the limit that a call exceeds. `used` includes everything before the call, and the call
    /// itself.
    pub fn exceeded(&self, call: &NextCall<'_>, used: &UsageTotal) -> Option<Exceeded> {
        // The call is already counted, so the limit itself is still allowed.
        let number = |of, used: u64, max: Option<u64>| {
            let max = max.filter(|max| used > *max)?;
            Some(Exceeded::new(of, used - 1, max))
        };
        let calls = match call {
            NextCall::Model { .. } => number("modelCalls", used.model_calls, self.model_calls)
                .or_else(|| number("rounds", used.rounds, self.rounds)),
            NextCall::Tool { .. } => number("toolCalls", used.tool_calls, self.tool_calls),
        };
        let tokens = || {
            let max = self.tokens.filter(|max| used.tokens() >= *max)?;
            Some(Exceeded::new("tokens", used.tokens(), max))
        };
        let money = || {
            let max = self.money.filter(|max| used.cost >= *max)?;
            Some(Exceeded::new("money", used.cost, max))
        };
        let time = || {
            let max = self.time.filter(|max| used.turn_time >= *max)?;
            Some(Exceeded::new(
                "seconds",
                used.turn_time.as_secs_f64().floor(),
                max.as_secs_f64(),
            ))
        };
        calls.or_else(tokens).or_else(money).or_else(time)
    }
}

/// A limit that was reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Exceeded {
    of: &'static str,
    used: (String, Value),
    max: (String, Value),
}

impl Exceeded {
    fn new<A: fmt::Display + serde::Serialize>(of: &'static str, used: A, max: A) -> Self {
        let both = |amount: A| (amount.to_string(), json!(amount));
        Self {
            of,
            used: both(used),
            max: both(max),
        }
    }

    /// Returns the amount that is limited: `tokens`, `money`, `modelCalls`, `toolCalls`, `rounds` or
    /// `seconds`.
    pub fn of(&self) -> &'static str {
        self.of
    }

    /// Returns the error for a call that the limit forbids, where `per` is the scope of the limit: a turn, a
    /// session.
    ///
    /// It is `RESOURCE_EXHAUSTED` with [`reason::LIMIT_REACHED`], and its details name the limit: `{"limit":
    /// {"per": "session", "of": "tokens", "used": 2100, "max": 2000}, "reason": "limit-reached", "retryable":
    /// false}`.
    pub fn error(&self, per: &str) -> Error {
        let Self { of, used, max } = self;
        let what = match *of {
            "modelCalls" => "model calls used",
            "toolCalls" => "tool calls used",
            "money" => "spent",
            "seconds" => "seconds taken",
            "rounds" => "rounds used",
            _ => "tokens used",
        };
        Error::resource_exhausted(format!(
            "the limit of the {per} is reached: {} of {} {what}; it can go on once the limit is raised",
            used.0, max.0
        ))
        .with_reason(reason::LIMIT_REACHED)
        .with_details(json!({
            "limit": { "per": per, "of": of, "used": used.1, "max": max.1 },
            "reason": reason::LIMIT_REACHED.name(),
            // A retry cannot succeed, so middleware must not try.
            "retryable": false,
        }))
        .with_public()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: NextCall<'static> = NextCall::Model {
        name: "m",
        is_priced: true,
    };
    const TOOL: NextCall<'static> = NextCall::Tool { name: "t" };

    fn used(json: Value) -> UsageTotal {
        serde_json::from_value(json).unwrap()
    }

    fn forbids(budget: Budget, call: &NextCall<'_>, total: Value) -> Option<&'static str> {
        budget.exceeded(call, &used(total)).map(|exceeded| exceeded.of())
    }

    #[test]
    fn as_many_calls_as_the_limit_are_made_and_no_more() {
        let budget = Budget::new().model_calls(2).tool_calls(1);

        assert_eq!(forbids(budget, &MODEL, json!({"modelCalls": 2})), None);
        assert_eq!(
            forbids(budget, &MODEL, json!({"modelCalls": 3})),
            Some("modelCalls")
        );
        assert_eq!(
            forbids(budget, &TOOL, json!({"modelCalls": 3, "toolCalls": 1})),
            None
        );
        assert_eq!(forbids(budget, &TOOL, json!({"toolCalls": 2})), Some("toolCalls"));
        assert_eq!(
            forbids(Budget::new().rounds(1), &MODEL, json!({"rounds": 2})),
            Some("rounds")
        );
    }

    #[test]
    fn amounts_that_are_known_after_a_call_forbid_the_next_call_of_either_kind() {
        for (budget, total, of) in [
            (
                Budget::new().tokens(10),
                json!({"inputTokens": 7, "outputTokens": 3}),
                "tokens",
            ),
            (Budget::new().money(0.5), json!({"cost": 0.5}), "money"),
            (
                Budget::new().time(Duration::from_secs(2)),
                json!({"turnMs": 2000.0}),
                "seconds",
            ),
        ] {
            for call in [MODEL, TOOL] {
                assert_eq!(forbids(budget, &call, total.clone()), Some(of));
                assert_eq!(forbids(budget, &call, json!({})), None);
            }
        }
    }

    #[test]
    fn the_error_names_the_limit_in_words_and_in_its_details() {
        let exceeded = Budget::new()
            .model_calls(2)
            .exceeded(&MODEL, &used(json!({"modelCalls": 3})));

        let error = exceeded.unwrap().error("turn");

        assert!(
            error
                .message()
                .starts_with("the limit of the turn is reached: 2 of 2 model calls used")
        );
        let limit = json!({"per": "turn", "of": "modelCalls", "used": 2, "max": 2});
        assert_eq!(error.details().unwrap()["limit"], limit);
    }
}
