//! Running the cases of `agent.yaml`.
//!
//! A case is a list of steps against one agent: send inputs and check the stream and the output, read a
//! snapshot, abort a background run, wait for one. Later steps use the values that a step captures as
//! `{{name}}`. An unknown field is a failure, because an unknown expectation cannot be checked.

mod captures;
mod exchange;
mod expectation;
mod report;
mod step;

use std::fmt;

use everturn_testkit::conformance::replies;
use serde::Deserialize;
use serde_json::Value;

use self::captures::Captures;
pub use self::report::{Report, run_all};
use self::step::perform;
use crate::Harness;

/// A failed expectation of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The number of the step, from one; zero if the case itself is wrong.
    pub step: usize,
    /// The difference from the expectation.
    pub problem: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.problem)
    }
}

impl std::error::Error for Failure {}

#[derive(Deserialize)]
struct Case {
    agent: String,
    steps: Vec<Value>,
}

/// Runs one case.
///
/// # Errors
/// The first difference from the case's expectations.
pub async fn run(case: &Value, harness: &Harness) -> Result<(), Failure> {
    let program = |step: &Value| {
        harness.model().program(replies(step)?);
        Ok(())
    };
    run_programmed(case, harness, &program).await
}

/// Runs one case against agents with another model than the harness's. `program` receives every step that
/// sends inputs, and makes the model return the step's answers.
///
/// # Errors
/// As [`run`].
pub async fn run_programmed(
    case: &Value,
    harness: &Harness,
    program: &(dyn Fn(&Value) -> everturn_core::Result<()> + Sync),
) -> Result<(), Failure> {
    let wrong = |problem: String| Failure { step: 0, problem };
    let case = Case::deserialize(case).map_err(|error| wrong(format!("this is not a case: {error}")))?;
    let agent = harness.agent(&case.agent);
    let agent = agent.ok_or_else(|| wrong(format!("the harness has no agent '{}'", case.agent)))?;
    let mut captures = Captures::default();
    for (index, step) in case.steps.iter().enumerate() {
        let step = captures.filled(step);
        perform(step, agent, program, &mut captures)
            .await
            .map_err(|problem| Failure {
                step: index + 1,
                problem,
            })?;
    }
    Ok(())
}
