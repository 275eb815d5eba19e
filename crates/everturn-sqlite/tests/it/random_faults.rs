//! Sessions in SQLite stay usable, whatever happens to them.

use std::sync::Arc;

use everturn_agent::WhileInterrupted;
use everturn_testkit::mishaps::{Mishap, endure};
use proptest::prelude::*;

use crate::support::Fixture;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_faults_leave_a_session_that_every_provider_takes(
        numbers in proptest::collection::vec(any::<u64>(), 1..24),
        policy in prop::sample::select(vec![WhileInterrupted::CloseAll, WhileInterrupted::Reject, WhileInterrupted::Ask]),
    ) {
        let program: Vec<Mishap> = numbers.into_iter().map(Mishap::from_random).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

        let endured = runtime.block_on(async {
            let Fixture { folder: _folder, store } = Fixture::new().await;
            endure(Arc::new(store), policy, &program).await
        });

        endured.map_err(TestCaseError::fail)?;
    }
}
