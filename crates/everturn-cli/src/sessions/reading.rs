//! Commands that change nothing.

use everturn_agent::store::{MAX_PAGE, SessionQuery, SessionSummary};
use serde_json::json;

use crate::archive::{AnyArchive, on};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{GREEN, Output, RED, YELLOW, table};
use crate::transcript::{self, time};

pub(super) async fn list(archive: &AnyArchive, limit: usize, output: Output) -> Outcome {
    let mut query = SessionQuery::default();
    let mut sessions: Vec<SessionSummary> = Vec::new();
    let has_more = loop {
        let missing = limit - sessions.len();
        if missing == 0 {
            break query.after.is_some();
        }
        query.limit = missing.min(MAX_PAGE);
        let page = on!(archive, archive => archive.sessions(&query).await)?;
        sessions.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break false,
        }
    };
    output.show(&json!({ "sessions": sessions }), || {
        let row = |session: &SessionSummary| {
            let latest = &session.latest;
            [
                session.session_id.to_string(),
                latest.snapshot_id.to_string(),
                latest.status.to_string(),
                time(latest.updated_at.unwrap_or(latest.created_at)),
                latest.labels.join(", "),
            ]
        };
        let rows: Vec<_> = sessions.iter().map(row).collect();
        table(
            ["SESSION", "LATEST SNAPSHOT", "STATUS", "CHANGED (UTC)", "LABELS"],
            &rows,
        )
    })?;
    if has_more {
        output.remark("There are more: --limit COUNT, or --all.");
    }
    Ok(Exit::Done)
}

pub(super) async fn show(
    archive: &AnyArchive,
    session: Option<String>,
    snapshot: Option<String>,
    output: Output,
) -> Outcome {
    let found = match (session, snapshot) {
        (_, Some(snapshot)) => on!(archive, archive => archive.get(snapshot).await)?,
        (Some(session), None) => on!(archive, archive => archive.latest(session).await)?,
        (None, None) => return Err(Failure::wrong("name a session, or a snapshot with --snapshot")),
    };
    output.show(&found, || transcript::snapshot(&found))?;
    Ok(Exit::Done)
}

pub(super) async fn tree(archive: &AnyArchive, session: &str, output: Output) -> Outcome {
    let tree = on!(archive, archive => archive.tree(session).await)?;
    let latest = tree.latest().map(|latest| latest.snapshot().snapshot_id.clone());
    let whole = json!({
        "sessionId": tree.session_id(),
        "latest": latest,
        "snapshots": tree.snapshots(),
    });
    output.show(&whole, || tree.to_string())?;
    Ok(Exit::Done)
}

pub(super) async fn diff(
    archive: &AnyArchive,
    left: &str,
    right: &str,
    exit_code: bool,
    output: Output,
) -> Outcome {
    let difference = on!(archive, archive => archive.diff(left, right).await)?;
    output.show(&difference, || {
        difference.to_string().lines().map(coloured).collect()
    })?;
    Ok(if exit_code && !difference.is_empty() {
        Exit::No
    } else {
        Exit::Done
    })
}

/// Colours a line of a difference by its sign.
fn coloured(line: &str) -> String {
    let style = match line.trim_start().chars().next() {
        Some('+') => GREEN,
        Some('-') => RED,
        Some('~') => YELLOW,
        _ => return format!("{line}\n"),
    };
    format!("{style}{line}{style:#}\n")
}
