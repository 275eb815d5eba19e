//! Commands that only read.

use everturn_agent::archive::Tenants;
use everturn_agent::store::{MAX_PAGE, SessionQuery, SessionSummary};
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{GREEN, Output, RED, YELLOW, table};
use crate::target::{AnyArchive, on};
use crate::tenants;
use crate::transcript::{self, time};

/// Lists the sessions of one tenant, and returns their number.
pub(super) async fn list(archive: &AnyArchive, limit: usize, output: Output) -> Outcome<usize> {
    let (sessions, has_more) = newest(archive, limit).await?;
    output.show(&json!({ "sessions": sessions }), || {
        let rows: Vec<_> = sessions.iter().map(row).collect();
        table(COLUMNS, &rows)
    })?;
    if has_more {
        output.remark(MORE);
    }
    Ok(sessions.len())
}

/// Lists the sessions of all tenants of a store.
pub(super) async fn list_all(tenants: &Tenants, limit: usize, output: Output) -> Outcome {
    let (mut json, mut rows, mut has_more) = (Vec::new(), Vec::new(), false);
    for tenant in tenants::all(tenants).await? {
        let archive = AnyArchive::Stored(tenants.archive(tenant.clone()));
        let (sessions, more) = newest(&archive, limit - rows.len()).await?;
        has_more |= more;
        let name = tenant.tenant().unwrap_or(tenant.as_str());
        rows.extend(sessions.iter().map(|session| {
            let [id, latest, status, changed, labels] = row(session);
            [name.to_owned(), id, latest, status, changed, labels]
        }));
        json.push(json!({ "tenant": tenant.as_str(), "principal": tenant.tenant(), "sessions": sessions }));
    }
    output.show(&json!({ "tenants": json }), || {
        let [session, latest, status, changed, labels] = COLUMNS;
        table(["TENANT", session, latest, status, changed, labels], &rows)
    })?;
    if has_more {
        output.remark(MORE);
    }
    Ok(Exit::Done)
}

const MORE: &str = "There are more: --limit COUNT, or --all.";

const COLUMNS: [&str; 5] = ["SESSION", "LATEST SNAPSHOT", "STATUS", "CHANGED (UTC)", "LABELS"];

fn row(session: &SessionSummary) -> [String; 5] {
    let latest = &session.latest;
    [
        session.session_id.to_string(),
        latest.snapshot_id.to_string(),
        latest.status.to_string(),
        time(latest.updated_at.unwrap_or(latest.created_at)),
        latest.labels.join(", "),
    ]
}

/// Returns the sessions with the newest snapshots, and whether there are more.
async fn newest(archive: &AnyArchive, limit: usize) -> Outcome<(Vec<SessionSummary>, bool)> {
    let mut query = SessionQuery::default();
    let mut sessions: Vec<SessionSummary> = Vec::new();
    loop {
        let missing = limit - sessions.len();
        if missing == 0 {
            return Ok((sessions, query.after.is_some()));
        }
        query.limit = missing.min(MAX_PAGE);
        let page = on!(archive, archive => archive.sessions(&query).await)?;
        sessions.extend(page.items);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok((sessions, false)),
        }
    }
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

/// Colours a line of a comparison by its sign.
fn coloured(line: &str) -> String {
    let style = match line.trim_start().chars().next() {
        Some('+') => GREEN,
        Some('-') => RED,
        Some('~') => YELLOW,
        _ => return format!("{line}\n"),
    };
    format!("{style}{line}{style:#}\n")
}
