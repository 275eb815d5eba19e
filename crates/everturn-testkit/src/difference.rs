//! Differences between two JSON values, and whether one contains the other.

use std::fmt;

use serde_json::Value;

/// The maximum length of a value in a message.
const MAX_SHOWN_CHARS: usize = 200;

/// The text for a missing value, which is not valid JSON.
const NOTHING: &str = "nothing";

/// One difference between an actual and an expected value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The JSON pointer of the location in the actual value; `-` stands for a missing element.
    pub path: String,
    /// The expected value, shortened; `nothing` if no value was expected.
    pub expected: String,
    /// The actual value, shortened; `nothing` if there is no value.
    pub actual: String,
    /// The number of values that differ at the location.
    weight: usize,
}

impl Difference {
    fn new(path: &str, expected: Option<&Value>, actual: Option<&Value>) -> Self {
        Self {
            path: path.to_owned(),
            expected: shown(expected),
            actual: shown(actual),
            weight: expected.map_or(0, leaves).max(actual.map_or(0, leaves)),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() {
            "the top"
        } else {
            &self.path
        };
        let Self { expected, actual, .. } = self;
        write!(formatter, "at {place}: expected {expected}, found {actual}")
    }
}

impl std::error::Error for Difference {}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else {
        return NOTHING.to_owned();
    };
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Checks that `actual` contains `expected`: objects have at least the expected members, arrays have the
/// expected elements in that order with any others between, and everything else is equal. A member that is
/// expected to be `null` may be absent.
///
/// ```
/// use everturn_testkit::contains;
/// use serde_json::json;
///
/// let actual = json!({"messages": [{"role": "user"}, {"role": "model", "text": "Soup."}], "usage": {}});
///
/// assert!(contains(&actual, &json!({"messages": [{"role": "model"}]})).is_ok());
///
/// let difference = contains(&actual, &json!({"messages": [{"text": "Stew."}]})).unwrap_err();
/// assert_eq!(difference.to_string(), r#"at /messages/1/text: expected "Stew.", found "Soup.""#);
/// ```
///
/// # Errors
/// The first difference.
pub fn contains(actual: &Value, expected: &Value) -> Result<(), Difference> {
    contained("", Some(actual), expected)
}

fn contained(path: &str, actual: Option<&Value>, expected: &Value) -> Result<(), Difference> {
    let differ = || Err(Difference::new(path, Some(expected), actual));
    match (expected, actual) {
        (Value::Null, None) => Ok(()),
        (Value::Object(expected), Some(Value::Object(actual))) => expected
            .iter()
            .try_for_each(|(key, expected)| contained(&member(path, key), actual.get(key), expected)),
        (Value::Array(expected), Some(Value::Array(actual))) => subsequence(path, actual, expected),
        (expected, Some(actual)) if is_equal(actual, expected) => Ok(()),
        _ => differ(),
    }
}

/// Finds each expected element after the previous one. Taking the first match never prevents a later one.
fn subsequence(path: &str, actual: &[Value], expected: &[Value]) -> Result<(), Difference> {
    let mut next = 0;
    for wanted in expected {
        let fits = |candidate: &Value| contained("", Some(candidate), wanted).is_ok();
        match actual[next..].iter().position(fits) {
            Some(skipped) => next += skipped + 1,
            None => return Err(nearest_miss(path, actual, next, wanted)),
        }
    }
    Ok(())
}

/// Returns the difference of the candidate that is nearest to the expected element.
fn nearest_miss(path: &str, actual: &[Value], start: usize, wanted: &Value) -> Difference {
    let candidates = actual.iter().enumerate().skip(start);
    let nearest = candidates
        .filter_map(|(index, candidate)| {
            let difference = contained(&format!("{path}/{index}"), Some(candidate), wanted).err()?;
            Some((misses(Some(candidate), wanted), difference))
        })
        // Of two equally distant candidates, one with another value is more informative than one without a
        // value.
        .min_by_key(|(misses, difference)| (*misses, difference.actual == NOTHING));
    nearest.map_or_else(
        || Difference::new(&format!("{path}/-"), Some(wanted), None),
        |(_, difference)| difference,
    )
}

/// Counts the expected values that are missing.
fn misses(actual: Option<&Value>, expected: &Value) -> usize {
    match (expected, actual) {
        (Value::Object(expected), Some(Value::Object(actual))) => expected
            .iter()
            .map(|(key, expected)| misses(actual.get(key), expected))
            .sum(),
        _ if contained("", actual, expected).is_ok() => 0,
        _ => leaves(expected),
    }
}

/// Checks that there are exactly as many elements as expected, and that each contains the expected element at
/// its index.
///
/// # Errors
/// The first difference.
pub fn contains_each(actual: &[Value], expected: &[Value]) -> Result<(), Difference> {
    for index in 0..actual.len().max(expected.len()) {
        let place = format!("/{index}");
        match (actual.get(index), expected.get(index)) {
            (actual, Some(expected)) => contained(&place, actual, expected)?,
            (actual, None) => return Err(Difference::new(&place, None, actual)),
        }
    }
    Ok(())
}

/// Returns the distance of two values from their differences: a missing message counts more than a different
/// word.
pub(crate) fn distance(differences: &[Difference]) -> usize {
    differences.iter().map(|difference| difference.weight).sum()
}

fn leaves(value: &Value) -> usize {
    match value {
        Value::Array(elements) => elements.iter().map(leaves).sum::<usize>().max(1),
        Value::Object(members) => members.values().map(leaves).sum::<usize>().max(1),
        _ => 1,
    }
}

/// Returns every difference of two values.
pub(crate) fn differences(expected: &Value, actual: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(expected), Some(actual), &mut found);
    found
}

fn compare(path: &str, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Some(Value::Object(expected)), Some(Value::Object(actual))) => {
            let added = actual.keys().filter(|key| !expected.contains_key(*key));
            for key in expected.keys().chain(added) {
                compare(&member(path, key), expected.get(key), actual.get(key), found);
            }
        }
        (Some(Value::Array(expected)), Some(Value::Array(actual))) => {
            for index in 0..expected.len().max(actual.len()) {
                compare(
                    &format!("{path}/{index}"),
                    expected.get(index),
                    actual.get(index),
                    found,
                );
            }
        }
        (Some(expected), Some(actual)) if is_equal(expected, actual) => {}
        (expected, actual) => found.push(Difference::new(path, expected, actual)),
    }
}

/// Returns whether two values are equal; `1` and `1.0` are.
fn is_equal(one: &Value, other: &Value) -> bool {
    let is_same_number =
        || (one.is_f64() || other.is_f64()) && one.is_number() && one.as_f64() == other.as_f64();
    one == other || is_same_number()
}

fn member(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(actual: &Value, expected: &Value) -> String {
        contains(actual, expected).unwrap_err().to_string()
    }

    #[test]
    fn an_object_may_hold_more_than_expected_and_not_less() {
        assert_eq!(contains(&json!({"a": 1, "b": 2}), &json!({"a": 1})), Ok(()));
        assert_eq!(
            problem(&json!({"a": 1}), &json!({"a": 1, "b": 2})),
            "at /b: expected 2, found nothing"
        );
    }

    #[test]
    fn an_array_is_an_ordered_subsequence() {
        let actual = json!([1, 2, 3, 4]);

        assert_eq!(contains(&actual, &json!([1, 3])), Ok(()));
        assert_eq!(contains(&actual, &json!([])), Ok(()));
        assert_eq!(problem(&actual, &json!([3, 1])), "at /3: expected 1, found 4");
        assert_eq!(
            problem(&actual, &json!([4, 4])),
            "at /-: expected 4, found nothing"
        );
    }

    #[test]
    fn the_nearest_miss_in_an_array_is_named() {
        let actual = json!([{"role": "user", "text": "a"}, {"role": "model", "text": "b"}, 7]);

        let problem = problem(&actual, &json!([{"role": "model", "text": "c"}]));

        assert_eq!(problem, r#"at /1/text: expected "c", found "b""#);
    }

    #[test]
    fn an_expected_null_may_be_absent_and_not_something_else() {
        assert_eq!(contains(&json!({}), &json!({"status": null})), Ok(()));
        assert_eq!(
            problem(&json!({"status": 1}), &json!({"status": null})),
            "at /status: expected null, found 1"
        );
    }

    #[test]
    fn numbers_are_equal_by_value_and_keys_are_escaped() {
        assert_eq!(contains(&json!({"n": 1.0}), &json!({"n": 1})), Ok(()));
        assert_eq!(
            problem(&json!({"a/b~": 1}), &json!({"a/b~": "1"})),
            "at /a~1b~0: expected \"1\", found 1"
        );
    }

    #[test]
    fn each_demands_the_same_length() {
        let actual = [json!({"a": 1, "more": true}), json!({"b": 2})];

        assert_eq!(
            contains_each(&actual, &[json!({"a": 1}), json!({"b": 2})]),
            Ok(())
        );
        let short = contains_each(&actual, &[json!({"a": 1})]).unwrap_err();
        let long = contains_each(&actual, &[json!({}), json!({}), json!({"c": 3})]).unwrap_err();
        assert_eq!(short.to_string(), r#"at /1: expected nothing, found {"b":2}"#);
        assert_eq!(long.to_string(), r#"at /2: expected {"c":3}, found nothing"#);
    }

    #[test]
    fn every_difference_is_listed() {
        let found = differences(&json!({"a": 1, "b": [1, 2]}), &json!({"b": [1], "c": 3}));

        let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
        assert_eq!(paths, ["/a", "/b/1", "/c"]);
        assert_eq!(distance(&found), 3);
    }

    #[test]
    fn a_long_value_is_cut() {
        let problem = problem(&json!("é".repeat(1_000)), &json!(1));

        assert!(problem.chars().count() < 300, "{problem}");
    }
}
