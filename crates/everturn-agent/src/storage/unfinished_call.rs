//! Calls that must not be made twice, whose turn died or failed before their outcome was known.

use everturn_core::Result;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::{Detail, JournalQuery, Scope, SessionStore};
use crate::{SessionId, SnapshotId, SnapshotStatus};

/// A call of a tool that must not run twice, whose turn died or failed before the outcome was known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnfinishedCall {
    /// The agent whose turn it was.
    pub agent: String,
    /// The session of the turn. It has no snapshot if its first turn died.
    pub session_id: SessionId,
    /// The name of the tool, or of the turn's own effect.
    pub tool: String,
    /// The identity of the call, as its tool sees it.
    pub effect_id: String,
    /// The moment at which the call began.
    #[schemars(with = "String")]
    pub began_at: Timestamp,
}

/// Returns at most this many of the calls with an unknown outcome in the journals that a query selects.
///
/// # Errors
/// The store's own errors.
pub(crate) async fn unfinished_calls(
    store: &dyn SessionStore,
    mut query: JournalQuery,
    at_most: usize,
) -> Result<Vec<(Scope, UnfinishedCall)>> {
    let mut calls = Vec::new();
    let Some(journal) = store.journal() else {
        return Ok(calls);
    };
    while calls.len() < at_most {
        let page = journal.unfinished(&query).await?;
        for turn in page.items {
            for (effect_id, begun) in turn.unknown_outcomes() {
                if settles_itself(store, &turn.scope, &begun.snapshot).await? {
                    continue;
                }
                let call = UnfinishedCall {
                    agent: begun.agent,
                    session_id: turn.key.session().clone(),
                    tool: begun.name,
                    effect_id: effect_id.to_string(),
                    began_at: begun.began_at,
                };
                calls.push((turn.scope.clone(), call));
            }
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    calls.truncate(at_most);
    Ok(calls)
}

/// Returns whether the turn for which a snapshot is reserved settles its calls itself: it is part of a
/// background run, which is taken over if its worker dies, or it was committed.
pub(crate) async fn settles_itself(
    store: &dyn SessionStore,
    scope: &Scope,
    reserved: &SnapshotId,
) -> Result<bool> {
    let snapshot = store.get(scope, reserved, Detail::Metadata).await?;
    let status = snapshot.map(|snapshot| snapshot.status);
    Ok(matches!(
        status,
        Some(SnapshotStatus::Pending | SnapshotStatus::Completed)
    ))
}
