//! Sessions in memory stay usable after any sequence of faults.

use std::sync::Arc;

use everturn_agent::WhileInterrupted;
use everturn_agent::store::MemoryStore;
use everturn_testkit::session_faults::{Checked, Fault, check_program};
use proptest::prelude::*;

fn summary(policy: WhileInterrupted, program: &[Fault]) -> Result<Checked, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check_program(Arc::new(MemoryStore::new()), policy, program))
}

/// A program in which every fault happens to a session with an open interrupt.
fn program() -> Vec<Fault> {
    let asked = [Fault::Say { at: 0, reply: 0 }, Fault::Say { at: 0, reply: 6 }];
    let flags = [false, true];
    let faults = [
        Fault::Say { at: 0, reply: 2 },
        Fault::Say { at: 1, reply: 3 },
        Fault::Rewind { at: 1, reply: 3 },
        Fault::Retry { at: 0 },
        Fault::Detach { at: 0, reply: 5 },
        Fault::Move,
    ];
    let answers = (0..8).map(|how| Fault::Answer { at: 0, how });
    let turns = (0..14).map(|reply| Fault::Say { at: 0, reply });
    let ends = flags.into_iter().flat_map(|after_tool| {
        let kill = |is_detached| Fault::Kill {
            at: 0,
            after_tool,
            is_detached,
        };
        [
            Fault::Abort { at: 0, after_tool },
            Fault::Leave { at: 0, after_tool },
            kill(false),
            kill(true),
        ]
    });
    let added_messages = (0..12).map(|kind| Fault::AddMessages {
        at: 0,
        messages: 1 + (kind << 2),
    });
    let all = faults
        .into_iter()
        .chain(answers)
        .chain(turns)
        .chain(ends)
        .chain(added_messages);
    all.flat_map(|fault| asked.into_iter().chain([fault, fault]))
        .collect()
}

#[test]
fn every_fault_leaves_a_session_that_every_provider_accepts() {
    for policy in [
        WhileInterrupted::CloseAll,
        WhileInterrupted::Reject,
        WhileInterrupted::Ask,
    ] {
        let summary = summary(policy, &program()).unwrap();

        // Many requests were checked, and many of them needed a repair.
        assert!(summary.requests > 400, "{policy:?}: {summary:?}");
        assert!(summary.faulty > 50, "{policy:?}: {summary:?}");
        assert!(summary.failures > 5, "{policy:?}: {summary:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn random_faults_leave_a_session_that_every_provider_accepts(
        numbers in proptest::collection::vec(any::<u64>(), 1..24),
        policy in prop::sample::select(vec![WhileInterrupted::CloseAll, WhileInterrupted::Reject, WhileInterrupted::Ask]),
    ) {
        let program: Vec<Fault> = numbers.into_iter().map(Fault::from_random).collect();

        summary(policy, &program).map_err(TestCaseError::fail)?;
    }
}
