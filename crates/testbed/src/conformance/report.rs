//! The results of all cases of a file.

use std::fmt;

use everturn_agent::IntoStore;
use everturn_core::Result;
use serde_json::Value;

use super::{Failure, run};
use crate::harness;

/// The result of each case. Its text has a line per case, with the problem below a failed case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    verdicts: Vec<(String, Option<Failure>)>,
}

/// Runs every case, each with a new harness and store.
///
/// # Errors
/// The error of defining the harness's agents.
pub async fn run_all<T: IntoStore>(cases: &[Value], mut store: impl FnMut() -> T) -> Result<Report> {
    let mut report = Report::default();
    for case in cases {
        let harness = harness(store())?;
        let name = case
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or("a case without a name");
        report
            .verdicts
            .push((name.to_owned(), run(case, &harness).await.err()));
    }
    Ok(report)
}

impl Report {
    /// Returns the number of cases that were run.
    pub fn cases(&self) -> usize {
        self.verdicts.len()
    }

    /// Returns the failed cases.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &Failure)> {
        self.verdicts
            .iter()
            .filter_map(|(name, failure)| Some((name.as_str(), failure.as_ref()?)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, failure)) in self.verdicts.iter().enumerate() {
            let verdict = if failure.is_some() { "FAILED" } else { "ok" };
            writeln!(f, "case {:>2} {verdict:<6} {name}", number + 1)?;
            if let Some(failure) = failure {
                writeln!(f, "        {failure}")?;
            }
        }
        Ok(())
    }
}
