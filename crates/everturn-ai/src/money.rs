//! Amounts of money.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, Sub};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANOS: f64 = 1e9;

/// An amount of money, in the currency of the application's [`Prices`](crate::Prices).
///
/// Amounts are whole billionths of the currency's unit, so that sums of many small costs are exact. In JSON
/// an amount is a number of units: `0.0125`.
///
/// ```
/// use everturn_ai::Money;
///
/// assert_eq!(Money::from(0.1) + Money::from(0.2), Money::from(0.3));
/// assert_eq!(Money::from(0.0125).to_string(), "0.0125");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money(u64);

impl Money {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Creates an amount of billionths of the currency's unit.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in billionths of the currency's unit.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the amount in units of the currency.
    #[expect(clippy::cast_precision_loss, reason = "costs are far below 2^53 billionths")]
    pub fn as_units(self) -> f64 {
        self.0 as f64 / NANOS
    }

    /// Returns whether the amount is zero.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// Returns the price of this many tokens, where the amount is the price of a million.
    pub(crate) fn of_a_million(self, count: u64) -> Self {
        let nanos = u128::from(self.0) * u128::from(count) / 1_000_000;
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl From<f64> for Money {
    /// Creates an amount of units of the currency, rounded to billionths. A negative amount and one that is
    /// no number are zero.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates"
    )]
    fn from(units: f64) -> Self {
        Self((units * NANOS).round() as u64)
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Money {
    type Output = Self;

    /// Returns the difference, which is zero if `other` is more.
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if nanos == 0 {
            return write!(f, "{units}");
        }
        write!(f, "{units}.{}", format!("{nanos:09}").trim_end_matches('0'))
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_units())
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_survives_json_and_reads_as_a_number_of_units() {
        let cost = Money::from_nanos(12_345_678);

        let json = serde_json::to_value(cost).unwrap();

        assert_eq!(json, 0.012_345_678);
        assert_eq!(serde_json::from_value::<Money>(json).unwrap(), cost);
    }

    #[test]
    fn amounts_that_make_no_sense_are_zero() {
        assert_eq!(Money::from(-3.0), Money::ZERO);
        assert_eq!(Money::from(f64::NAN), Money::ZERO);
        assert_eq!(Money::from(1.0) - Money::from(2.0), Money::ZERO);
    }
}
