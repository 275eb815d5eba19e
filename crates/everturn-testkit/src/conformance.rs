//! The published conformance cases of the protocols, read in place.
//!
//! The environment variable `CONFORMANCE_DIR` names the folder of the cases; the default is
//! `shared/conformance` next to the repository. A test without its data prints `skipped: ` with the reason
//! and passes. With `CI=true` it fails instead, so that no test is skipped unnoticed.
//!
//! ```
//! use everturn_testkit::conformance;
//!
//! let Some(cases) = conformance::cases("generate.yaml") else { return };
//! for case in cases {
//!     let _replies = conformance::replies(&case).expect("the case has model responses");
//! }
//! ```

mod data;
mod location;

use serde::Serialize;
use serde_json::Value;

pub use self::data::{cases, load, replies};
pub use self::location::{directory, skip};
use crate::{contains, contains_each};

/// Checks that a value [`contains`] what a case expects.
///
/// # Panics
/// If it does not. The message contains the location and the whole value.
#[track_caller]
pub fn assert_contains(actual: &impl Serialize, expected: &Value) {
    let actual = serde_json::to_value(actual).expect("the value has a JSON form");
    if let Err(difference) = contains(&actual, expected) {
        panic!("{difference}\nthe value was {actual:#}");
    }
}

/// Checks chunks against `expectChunks`: the same number, in the same order, each containing the expected
/// JSON.
///
/// # Panics
/// If they differ. The message contains the location and all chunks.
#[track_caller]
pub fn assert_chunks(actual: &[impl Serialize], expected: &Value) {
    let actual: Vec<Value> = actual
        .iter()
        .map(|chunk| serde_json::to_value(chunk).expect("a chunk has a JSON form"))
        .collect();
    let expected = expected.as_array().expect("`expectChunks` is a list");
    if let Err(difference) = contains_each(&actual, expected) {
        panic!("{difference}\nthe chunks were {:#}", Value::from(actual));
    }
}
