//! Polling for lost runs at an interval.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use everturn_core::Registry;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Recovery, recover_all};
use crate::invocation::turn_observer::turn_observers;

/// Polls for lost runs at once and then at every interval, until it is stopped or dropped.
///
/// Dropping it ends the polling after the takeover in progress; runs that were taken over continue.
#[must_use = "dropped, it no longer polls for lost runs"]
pub struct RecoveryLoop {
    task: JoinHandle<()>,
    stop: DropGuard,
}

/// Polls for lost runs of every agent of the registry, at once and then at every interval, and takes them
/// over.
///
/// The registry may get more agents meanwhile; it is not kept alive.
///
/// # Panics
/// Outside a Tokio runtime, or if the interval is zero.
pub fn recover_every(registry: &Registry, interval: Duration) -> RecoveryLoop {
    let (registry, stop) = (registry.downgrade(), CancellationToken::new());
    let stopped = stop.clone();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let task = tokio::spawn(async move {
        let mut reported = HashSet::new();
        while stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            let Ok(registry) = registry.upgrade() else {
                return;
            };
            let mut recovery = recover_all(&registry).await;
            // A turn that takes a call over adds to its journal, so it is found again if that turn dies, too.
            recovery
                .unfinished
                .retain(|(scope, call)| reported.insert((scope.clone(), call.effect_id.clone())));
            for observer in turn_observers(&registry).all() {
                for (_, call) in &recovery.unfinished {
                    observer.call_found(call);
                }
            }
            report(&recovery);
        }
    });
    RecoveryLoop {
        task,
        stop: stop.drop_guard(),
    }
}

impl RecoveryLoop {
    /// Stops polling and waits for the current poll to finish.
    pub async fn stop(self) {
        drop(self.stop);
        // A poll that panicked has been reported.
        let _ = self.task.await;
    }
}

fn report(recovery: &Recovery) {
    for run in &recovery.taken_over {
        tracing::info!(agent = run.agent, run = %run.snapshot_id, attempt = run.attempt, "a lost run was taken over");
    }
    for run in &recovery.given_up {
        tracing::error!(agent = run.agent, session = %run.session_id, run = %run.snapshot_id, attempt = run.attempt, "a lost run was given up");
    }
    for (_, call) in &recovery.unfinished {
        tracing::warn!(
            agent = call.agent,
            tool = call.tool,
            session = %call.session_id,
            effect = call.effect_id,
            began_at = %call.began_at,
            "the turn of a tool call died, and the outcome of the call is unknown: the next turn of the session \
             reconciles it or asks"
        );
    }
    for error in &recovery.failures {
        if error.claim_report() {
            let (status, error) = (error.status(), error.with_causes());
            tracing::error!(%status, %error, "a lost run could not be recovered");
        }
    }
}

impl fmt::Debug for RecoveryLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecoveryLoop")
    }
}
