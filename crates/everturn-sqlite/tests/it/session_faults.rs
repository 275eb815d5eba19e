//! Sessions in SQLite stay usable after any sequence of faults.

use std::sync::Arc;

use everturn_agent::WhileInterrupted;
use everturn_testkit::session_faults::{Fault, check_program};
use proptest::prelude::*;

use crate::support::Fixture;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn random_faults_leave_a_session_that_every_provider_accepts(
        numbers in proptest::collection::vec(any::<u64>(), 1..24),
        policy in prop::sample::select(vec![WhileInterrupted::CloseAll, WhileInterrupted::Reject, WhileInterrupted::Ask]),
    ) {
        let program: Vec<Fault> = numbers.into_iter().map(Fault::from_random).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

        let summary = runtime.block_on(async {
            let Fixture { folder: _folder, store } = Fixture::new().await;
            check_program(Arc::new(store), policy, &program).await
        });

        summary.map_err(TestCaseError::fail)?;
    }
}
