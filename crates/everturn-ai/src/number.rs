//! JSON numbers in the form of the other runtimes: whole numbers are written without a fraction and read from
//! either form.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use serde_json::Number;

/// The bound up to which every whole number is exact as a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[expect(clippy::cast_possible_truncation, reason = "whole numbers below 2^53 fit")]
#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
pub(crate) fn serialize<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match *number {
        Some(number) if number.fract() == 0.0 && number.abs() <= EXACT => {
            serializer.serialize_i64(number as i64)
        }
        Some(number) => serializer.serialize_f64(number),
        None => serializer.serialize_none(),
    }
}

/// Reads a count that may have been written as a double, such as `12.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be in range"
)]
pub(crate) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    if let Some(count) = number.as_u64() {
        return Ok(Some(count));
    }
    match number.as_f64() {
        Some(count) if (0.0..=EXACT).contains(&count) => Ok(Some(count.round() as u64)),
        _ => Err(D::Error::custom(format!("`{number}` is not a count"))),
    }
}
