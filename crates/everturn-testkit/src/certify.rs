//! The certification kit for stores.
//!
//! [`certify`] checks a store against the contract of [`everturn_agent::store`] and reports every broken
//! promise. Everturn's own stores are tested with it, and yours can be:
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
//! Two more functions start other processes, and so need a store outside this process: [`certify_processes`]
//! runs many processes on one store, and [`certify_crashes`] kills them. [`certify_growth`] is for stores
//! that deduplicate the contents of snapshots.
//!
//! [`certify_faults`] checks the store's behaviour when something outside it fails: see [`faults`].
//!
//! [`defects`] contains stores that each break one promise. A test shows that the kit detects each of them.
//!
//! [`streams`] is the kit for stream logs.

mod atomicity;
mod branches;
mod crash;
pub mod defects;
mod documents;
pub mod faults;
mod growth;
mod identity;
mod journal;
mod latest;
mod ledger;
mod listing;
mod pending;
mod processes;
mod removal;
mod row;
pub mod streams;
mod tenancy;
mod turn_locks;
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
pub use self::faults::certify_faults;
pub use self::growth::certify_growth;
pub use self::processes::certify_processes;

/// The timeout of one check. A store that hangs breaks the promise.
const PATIENCE: Duration = Duration::from_mins(1);

/// The result of a check: success, or a description of the broken promise.
type Verdict = Result<(), String>;

type Check = fn(Arc<dyn SessionStore>) -> BoxFuture<'static, Verdict>;

/// Returns every promise by its name.
fn promises() -> Vec<(&'static str, Check)> {
    [
        row::promises(),
        documents::promises(),
        identity::promises(),
        latest::promises(),
        branches::promises(),
        atomicity::promises(),
        listing::promises(),
        pending::promises(),
        removal::promises(),
        tenancy::promises(),
        journal::promises(),
        ledger::promises(),
        turn_locks::promises(),
        watching::promises(),
    ]
    .concat()
}

/// Runs every check of the contract, each on a new store from `make`.
///
/// Needs a tokio runtime. A runtime with several threads finds more defects of atomicity.
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

/// Runs a check. A check that hangs or panics has found a broken promise.
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

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub promise: &'static str,
    /// The description of the failure; `None` if the promise was kept.
    pub broken: Option<String>,
    /// The reason why this store cannot break the promise; `None` if it was checked.
    pub excused: Option<&'static str>,
}

/// The report of [`certify`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificate {
    findings: Vec<Finding>,
}

impl Certificate {
    fn note(&mut self, promise: &'static str, verdict: Verdict) {
        self.findings.push(Finding {
            promise,
            broken: verdict.err(),
            excused: None,
        });
    }

    fn note_or_excuse(&mut self, promise: &'static str, examined: faults::Examined) {
        let (broken, excused) = match examined {
            Ok(excuse) => (None, excuse),
            Err(how) => (Some(how), None),
        };
        self.findings.push(Finding {
            promise,
            broken,
            excused,
        });
    }

    /// Returns every promise with its outcome.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the broken promises.
    pub fn broken(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.broken.is_some())
    }

    /// Asserts that all promises were kept.
    ///
    /// # Panics
    /// With the whole report, if any promise was broken.
    pub fn assert_kept(&self) {
        assert!(self.broken().next().is_none(), "promises are broken:\n{self}");
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding {
            promise,
            broken,
            excused,
        } in &self.findings
        {
            match (broken, excused) {
                (None, None) => writeln!(f, "kept    {promise}")?,
                (None, Some(reason)) => writeln!(f, "excused {promise}: {reason}")?,
                (Some(how), _) => writeln!(f, "BROKEN  {promise}: {how}")?,
            }
        }
        Ok(())
    }
}

/// Fails a check unless the condition holds.
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
            vec![$(($promise, |subject| Box::pin($check(subject)))),+]
        }
    };
}
pub(crate) use list_promises;
