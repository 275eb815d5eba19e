//! Sessions in memory stay usable, whatever happens to them.

use std::sync::Arc;

use everturn_agent::WhileInterrupted;
use everturn_agent::store::MemoryStore;
use everturn_testkit::mishaps::{Endured, Mishap, endure};
use proptest::prelude::*;

fn endured(policy: WhileInterrupted, program: &[Mishap]) -> Result<Endured, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(endure(Arc::new(MemoryStore::new()), policy, program))
}

/// A program in which every mishap happens to a session with an open interrupt.
fn program() -> Vec<Mishap> {
    let asked = [Mishap::Say { at: 0, reply: 0 }, Mishap::Say { at: 0, reply: 6 }];
    let flags = [false, true];
    let mishaps = [
        Mishap::Say { at: 0, reply: 2 },
        Mishap::Say { at: 1, reply: 3 },
        Mishap::Rewind { at: 1, reply: 3 },
        Mishap::Retry { at: 0 },
        Mishap::Detach { at: 0, reply: 5 },
        Mishap::Move,
    ];
    let answers = (0..8).map(|how| Mishap::Answer { at: 0, how });
    let turns = (0..14).map(|reply| Mishap::Say { at: 0, reply });
    let ends = flags.into_iter().flat_map(|after_tool| {
        let kill = |is_detached| Mishap::Kill {
            at: 0,
            after_tool,
            is_detached,
        };
        [
            Mishap::Abort { at: 0, after_tool },
            Mishap::Leave { at: 0, after_tool },
            kill(false),
            kill(true),
        ]
    });
    let meddling = (0..12).map(|kind| Mishap::Meddle {
        at: 0,
        messages: 1 + (kind << 2),
    });
    let all = mishaps
        .into_iter()
        .chain(answers)
        .chain(turns)
        .chain(ends)
        .chain(meddling);
    all.flat_map(|mishap| asked.into_iter().chain([mishap, mishap]))
        .collect()
}

#[test]
fn every_mishap_leaves_a_session_that_every_provider_takes() {
    for policy in [
        WhileInterrupted::CloseAll,
        WhileInterrupted::Reject,
        WhileInterrupted::Ask,
    ] {
        let endured = endured(policy, &program()).unwrap();

        // Much was checked, and much of it needed mending.
        assert!(endured.requests > 400, "{policy:?}: {endured:?}");
        assert!(endured.faulty > 50, "{policy:?}: {endured:?}");
        assert!(endured.failures > 5, "{policy:?}: {endured:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn random_mishaps_leave_a_session_that_every_provider_takes(
        numbers in proptest::collection::vec(any::<u64>(), 1..24),
        policy in prop::sample::select(vec![WhileInterrupted::CloseAll, WhileInterrupted::Reject, WhileInterrupted::Ask]),
    ) {
        let program: Vec<Mishap> = numbers.into_iter().map(Mishap::from_random).collect();

        endured(policy, &program).map_err(TestCaseError::fail)?;
    }
}
