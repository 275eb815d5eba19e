//! Numbered lists of snapshots and sessions, so that users need not type ids.

use everturn::Result;
use everturn::agent::store::{SessionQuery, SnapshotQuery};
use everturn::prelude::*;

use crate::agents::Demo;

/// The maximum length of a printed message.
const SHOWN_CHARS: usize = 40;

/// Lists the snapshots of a session, oldest first; `current` is marked.
pub(crate) async fn snapshots(
    demo: &Demo,
    session: &SessionId,
    current: Option<&SnapshotId>,
) -> Result<Vec<String>> {
    let rows = demo.archive.list(&oldest_first(session).whole()).await?.items;
    let number_of = |id: &SnapshotId| {
        rows.iter()
            .position(|row| row.snapshot_id == *id)
            .map(|index| index + 1)
    };
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let mark = if current == Some(&row.snapshot_id) {
            '*'
        } else {
            ' '
        };
        let parent = row.parent_id.as_ref().and_then(number_of);
        let from = parent.map_or_else(|| "begins".to_owned(), |parent| format!("from {parent}"));
        let status = format!("{:?}", row.status).to_lowercase();
        let text = row
            .state
            .as_ref()
            .map_or_else(|| "in the background".to_owned(), last_user_text);
        format!(
            "{mark} {:>2}  {from:<8} {status:<10} {}  {text}",
            index + 1,
            row.snapshot_id
        )
    });
    Ok(lines.collect())
}

/// Finds the snapshot for a number in the list, or for an id.
pub(crate) async fn snapshot(demo: &Demo, session: Option<&SessionId>, typed: &str) -> Result<SnapshotId> {
    let (Some(session), Some(index)) = (session, index(typed)) else {
        return Ok(typed.into());
    };
    let rows = demo.archive.list(&oldest_first(session)).await?.items;
    let row = rows
        .get(index)
        .ok_or_else(|| Error::not_found(format!("there is no snapshot {typed}; see /history")))?;
    Ok(row.snapshot_id.clone())
}

/// Lists the sessions with an agent, latest first.
pub(crate) async fn sessions(demo: &Demo) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (index, session) in session_ids(demo).await?.into_iter().enumerate() {
        let latest = demo.archive.latest(session.clone()).await?;
        let text = latest.state.as_ref().map(last_user_text).unwrap_or_default();
        lines.push(format!("  {:>2}  {session}  {text}", index + 1));
    }
    Ok(lines)
}

/// Finds the session for a number in the list, or for an id.
pub(crate) async fn session(demo: &Demo, typed: &str) -> Result<SessionId> {
    let sessions = session_ids(demo).await?;
    let found = match index(typed) {
        Some(index) => sessions.get(index),
        None => sessions.iter().find(|session| session.as_str() == typed),
    };
    // An unknown id is rejected here, because the agent would create a session with it.
    found
        .cloned()
        .ok_or_else(|| Error::not_found(format!("there is no conversation {typed}; see /resume")))
}

fn oldest_first(session: &SessionId) -> SnapshotQuery {
    SnapshotQuery::of(session.clone()).oldest_first()
}

async fn session_ids(demo: &Demo) -> Result<Vec<SessionId>> {
    let page = demo.archive.sessions(&SessionQuery::default()).await?;
    Ok(page.items.into_iter().map(|session| session.session_id).collect())
}

/// Parses a number counted from one as an index.
fn index(typed: &str) -> Option<usize> {
    typed.parse::<usize>().ok()?.checked_sub(1)
}

fn last_user_text(state: &SessionState) -> String {
    let message = state
        .messages
        .iter()
        .rev()
        .find(|message| message.role() == Role::User);
    let text = message.map(Message::text).unwrap_or_default();
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}
