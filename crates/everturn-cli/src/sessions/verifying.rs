//! `everturn sessions verify`.

use std::collections::BTreeSet;
use std::fmt::Write;

use everturn_agent::archive::{Archive, SnapshotTree, Tenants};
use everturn_agent::store::SessionQuery;
use everturn_agent::{Snapshot, SnapshotId, SnapshotStatus};
use everturn_ai::history::{FaultKind, checked};
use everturn_core::Error;

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{GREEN, Output, RED, bar, clean, spinner};
use crate::store::Checked;
use crate::target::{AnyArchive, Target, on, refuse_agent};
use crate::tenants;

/// Checks a whole store.
pub(super) async fn store(target: &Target, selection: &Selection, repairs: bool, output: Output) -> Outcome {
    let Target::Store(store) = target else {
        return Err(Failure::wrong("a whole store can be verified only with --store")
            .or_next("name the session to verify, or use the store directly with --store"));
    };
    refuse_agent(selection)?;
    let sign_of_life = spinner(output, "checking");
    let tenants = Tenants::of(store.sessions().await?);
    let meant = if selection.names_tenant() {
        vec![store.tenant(selection).await?]
    } else {
        tenants::all(&tenants).await?
    };
    let mut checked = store.verify(&meant).await?;
    for tenant in meant {
        conversations(&tenants.archive(tenant), repairs, &mut checked).await?;
    }
    sign_of_life.finish_and_clear();
    report(&checked, output)
}

/// Verifies the conversations of a tenant.
async fn conversations(archive: &Archive, repairs: bool, found: &mut Checked) -> Outcome<()> {
    let repairing = Some(archive).filter(|_| repairs);
    let mut query = SessionQuery::default();
    loop {
        let page = archive.sessions(&query).await?;
        for session in page.items {
            let tree = archive.tree(session.session_id).await?;
            for end in ends(&tree) {
                // The check of the store has reported unreadable snapshots.
                if let Ok(snapshot) = archive.get(end).await {
                    conversation(repairing, &snapshot, found).await?;
                }
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Reads every snapshot of a session, and verifies content-addressed ids and the conversations at the ends of
/// branches.
pub(super) async fn session(archive: &AnyArchive, session: &str, repairs: bool, output: Output) -> Outcome {
    let repairing = match archive {
        _ if !repairs => None,
        AnyArchive::Stored(archive) => Some(archive),
        AnyArchive::Remote(_) => {
            return Err(Failure::wrong("a server does not repair stored sessions")
                .or_next("use the store directly with --store; agents repair their requests anyway"));
        }
    };
    let tree = on!(archive, archive => archive.tree(session).await)?;
    let bar = bar(output, "checking", tree.snapshots().len() as u64);
    let ends = ends(&tree);
    let mut checked = Checked::default();
    for listed in tree.snapshots() {
        let id = &listed.snapshot_id;
        match on!(archive, archive => archive.get(id).await) {
            Ok(snapshot) if id.is_content_addressed() && !snapshot.verify()? => {
                checked
                    .problems
                    .push(format!("snapshot '{id}' has other contents than its id states"));
            }
            Ok(snapshot) if ends.contains(id) => conversation(repairing, &snapshot, &mut checked).await?,
            Ok(_) => {}
            Err(error) => checked.problems.push(unreadable(id.as_str(), &error)),
        }
        checked.snapshots += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report(&checked, output)
}

/// Returns the last snapshot of each branch, which the next turn may continue.
fn ends(tree: &SnapshotTree) -> BTreeSet<&SnapshotId> {
    let completed = tree
        .snapshots()
        .iter()
        .filter(|snapshot| snapshot.status == SnapshotStatus::Completed);
    let mut ends: BTreeSet<&SnapshotId> = completed
        .clone()
        .filter(|snapshot| !snapshot.orphaned)
        .map(|snapshot| &snapshot.snapshot_id)
        .collect();
    for parent in completed.filter_map(|snapshot| snapshot.parent_id.as_ref()) {
        ends.remove(parent);
    }
    ends
}

/// Verifies the conversation of a snapshot, and repairs it if an archive is given.
async fn conversation(repairing: Option<&Archive>, snapshot: &Snapshot, found: &mut Checked) -> Outcome<()> {
    let id = &snapshot.snapshot_id;
    let messages = snapshot.state.as_ref().map(|state| &state.messages);
    let faults = messages.map(checked).unwrap_or_default();
    // A tool request that waits for its answer is valid.
    let faults = faults
        .iter()
        .filter(|fault| !matches!(fault.kind, FaultKind::Waiting { .. }));
    let faults: Vec<String> = faults.map(|fault| format!("snapshot '{id}', {fault}")).collect();
    match repairing.filter(|_| !faults.is_empty()) {
        Some(archive) => match archive.repair(id).await? {
            Some(without_faults) => found.repaired.push(format!(
                "snapshot '{id}' is repaired in '{}'",
                without_faults.snapshot_id
            )),
            None => found.problems.extend(faults),
        },
        None => found.problems.extend(faults),
    }
    Ok(())
}

fn unreadable(id: &str, error: &Error) -> String {
    format!("snapshot '{id}' cannot be read: {}", error.message())
}

fn report(checked: &Checked, output: Output) -> Outcome {
    output.show(checked, || {
        let mut text = String::new();
        for problem in &checked.problems {
            let _ = writeln!(text, "{RED}{}{RED:#}", clean(problem));
        }
        for repaired in &checked.repaired {
            let _ = writeln!(text, "{GREEN}{}{GREEN:#}", clean(repaired));
        }
        if text.is_empty() {
            text = format!("{GREEN}no problem{GREEN:#} in {} snapshots\n", checked.snapshots);
        }
        text
    })?;
    Ok(if checked.problems.is_empty() {
        Exit::Done
    } else {
        Exit::No
    })
}
