//! Does a store keep its promises?
//!
//! [`certify`] runs the contract of [`everturn_agent::store`] against any store and reports every promise that is not
//! kept. It is what our own stores are tested with, and it is meant for yours:
//!
//! ```
//! use std::sync::Arc;
//! use everturn_agent::store::{MemoryStore, SessionStore};
//! use everturn_testkit::certify::certify;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! certify(|| async { Arc::new(MemoryStore::new()) as Arc<dyn SessionStore> }).await.assert_kept();
//! # }
//! ```
//!
//! Two more need other processes, and so a store that is kept outside of this one: [`certify_processes`] lets many
//! processes work on one store at once, [`certify_crashes`] kills them. [`certify_growth`] is for stores that keep what
//! snapshots have in common once.
//!
//! [`defects`] holds stores that break one promise each. A test shows that each is caught, so a report without
//! complaints means something.
//!
//! [`streams`] does all this for stream logs.

mod atomicity;
mod crash;
pub mod defects;
mod documents;
mod growth;
mod identity;
mod journal;
mod latest;
mod listing;
mod pending;
mod processes;
mod removal;
mod row;
pub mod streams;
mod tenancy;
mod watching;
mod worker;

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use futures::FutureExt;
use futures::future::BoxFuture;

pub use self::crash::certify_crashes;
pub use self::growth::certify_growth;
pub use self::processes::certify_processes;

/// How long one promise may take before it counts as broken: a store that hangs is not kept waiting for.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a check returns: nothing, or what it found.
type Verdict = Result<(), String>;

type Check = fn(Arc<dyn SessionStore>) -> BoxFuture<'static, Verdict>;

/// Every promise, by its name.
fn promises() -> Vec<(&'static str, Check)> {
    [
        row::promises(),
        documents::promises(),
        identity::promises(),
        latest::promises(),
        atomicity::promises(),
        listing::promises(),
        pending::promises(),
        removal::promises(),
        tenancy::promises(),
        journal::promises(),
        watching::promises(),
    ]
    .concat()
}

/// Runs every check of the contract, each on a store of its own that `make` makes.
///
/// Needs a tokio runtime; checks of atomicity are sharper on one with several threads.
pub async fn certify<F, Fut>(mut make: F) -> Certificate
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Arc<dyn SessionStore>>,
{
    let mut certificate = Certificate::default();
    for (promise, check) in promises() {
        let store = make().await;
        certificate.note(promise, examine(check(store)).await);
    }
    certificate
}

/// Runs a check; one that hangs or panics has found a promise broken.
async fn examine(check: impl Future<Output = Verdict>) -> Verdict {
    let checked = AssertUnwindSafe(tokio::time::timeout(PATIENCE, check))
        .catch_unwind()
        .await;
    match checked {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Err("it took too long".to_owned()),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// What came of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub promise: &'static str,
    /// How it was broken, if it was.
    pub broken: Option<String>,
}

/// What [`certify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificate {
    findings: Vec<Finding>,
}

impl Certificate {
    fn note(&mut self, promise: &'static str, verdict: Verdict) {
        self.findings.push(Finding {
            promise,
            broken: verdict.err(),
        });
    }

    /// Every promise and what came of it.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The promises that were broken.
    pub fn broken(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.broken.is_some())
    }

    /// Panics with the whole report if any promise was broken.
    ///
    /// # Panics
    /// That is what it is for.
    pub fn assert_kept(&self) {
        assert!(self.broken().next().is_none(), "promises are broken:\n{self}");
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { promise, broken } in &self.findings {
            match broken {
                None => writeln!(f, "kept    {promise}")?,
                Some(how) => writeln!(f, "BROKEN  {promise}: {how}")?,
            }
        }
        Ok(())
    }
}

/// Fails a check unless something holds.
macro_rules! ensure {
    ($condition:expr, $($complaint:tt)+) => {
        if !$condition {
            return Err(format!($($complaint)+));
        }
    };
}
pub(crate) use ensure;

/// Lists a module's checks under the names of their promises.
macro_rules! list_promises {
    ($($promise:literal => $check:ident,)+) => {
        pub(super) fn promises() -> Vec<(&'static str, super::Check)> {
            vec![$(($promise, |store| Box::pin($check(store)))),+]
        }
    };
}
pub(crate) use list_promises;
