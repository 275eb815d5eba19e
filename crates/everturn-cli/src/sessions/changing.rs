//! Commands that change sessions.

use clap::Args;
use everturn_core::Error;
use serde_json::{Value, json};

use crate::answers::confirm;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, clean};
use crate::target::{AnyArchive, on};
use crate::transcript;

#[derive(Debug, Args)]
pub(super) struct LabelArguments {
    /// The snapshot
    snapshot: String,

    /// The label to add
    #[arg(required_unless_present_any = ["remove", "note"])]
    label: Option<String>,

    /// A label to remove
    #[arg(long, value_name = "LABEL")]
    remove: Option<String>,

    /// The new note; an empty one removes the note
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct DeleteArguments {
    /// The session
    #[arg(required_unless_present = "snapshot")]
    session: Option<String>,

    /// One snapshot instead of a session; later snapshots stay
    #[arg(long, value_name = "ID", conflicts_with = "session")]
    snapshot: Option<String>,

    /// With --snapshot: also delete all snapshots that follow it
    #[arg(long, requires = "snapshot")]
    branch: bool,

    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn fork(
    archive: &AnyArchive,
    snapshot: &str,
    session: &str,
    custom: Option<&str>,
    output: Output,
) -> Outcome {
    let forked = match custom {
        None => on!(archive, archive => archive.fork(snapshot, session).await)?,
        Some(custom) => {
            let custom: Value = serde_json::from_str(custom)
                .map_err(|error| Failure::wrong(format!("the custom state is not JSON: {error}")))?;
            on!(archive, archive => archive.fork_with_custom(snapshot, session, custom).await)?
        }
    };
    output.show(&forked, || format!("{}\n", clean(forked.snapshot_id.as_str())))?;
    Ok(Exit::Done)
}

pub(super) async fn label(archive: &AnyArchive, arguments: &LabelArguments, output: Output) -> Outcome {
    let id = arguments.snapshot.as_str();
    let mut changed = None;
    if let Some(label) = &arguments.label {
        changed = Some(on!(archive, archive => archive.label(id, label).await)?);
    }
    if let Some(label) = &arguments.remove {
        changed = Some(on!(archive, archive => archive.unlabel(id, label).await)?);
    }
    if let Some(note) = &arguments.note {
        changed = Some(on!(archive, archive => archive.annotate(id, note).await)?);
    }
    let Some(mut changed) = changed else {
        return Err(Failure::wrong("give a label, --remove or --note"));
    };
    // A server returns the snapshot without its state.
    changed.state = None;
    output.show(&changed, || transcript::snapshot(&changed))?;
    Ok(Exit::Done)
}

pub(super) async fn delete(archive: &AnyArchive, arguments: &DeleteArguments, output: Output) -> Outcome {
    let (session, snapshot) = (arguments.session.as_deref(), arguments.snapshot.as_deref());
    let doomed = doomed(archive, session, snapshot, arguments.branch).await?;
    if !arguments.yes {
        match confirm(&format!("Delete {doomed}, for good?")) {
            Some(true) => {}
            Some(false) => return Err(Error::cancelled("nothing was deleted").into()),
            None => {
                return Err(Failure::wrong(format!("this would permanently delete {doomed}"))
                    .or_next("confirm with --yes"));
            }
        }
    }
    let deleted = match (session, snapshot) {
        (_, Some(snapshot)) if arguments.branch => {
            on!(archive, archive => archive.delete_branch(snapshot).await)?
        }
        (_, Some(snapshot)) => u64::from(on!(archive, archive => archive.delete_snapshot(snapshot).await)?),
        (session, None) => {
            on!(archive, archive => archive.delete_session(session.unwrap_or_default()).await)?
        }
    };
    output.show(&json!({ "snapshots": deleted }), || match deleted {
        1 => "1 snapshot deleted\n".to_owned(),
        count => format!("{count} snapshots deleted\n"),
    })?;
    Ok(Exit::Done)
}

/// Describes the snapshots that would be deleted.
///
/// # Errors
/// `NOT_FOUND` if there is no such session or snapshot.
async fn doomed(
    archive: &AnyArchive,
    session: Option<&str>,
    snapshot: Option<&str>,
    is_branch: bool,
) -> Outcome<String> {
    let counted = |count: usize| match count {
        1 => "its only snapshot".to_owned(),
        count => format!("its {count} snapshots"),
    };
    let Some(id) = snapshot else {
        let session = session.unwrap_or_default();
        let tree = on!(archive, archive => archive.tree(session).await)?;
        return Ok(format!(
            "the session '{session}' with {}",
            counted(tree.snapshots().len())
        ));
    };
    let found = on!(archive, archive => archive.get(id).await)?;
    if !is_branch {
        return Ok(format!("the snapshot '{id}'"));
    }
    let session = found
        .session_id
        .ok_or_else(|| Error::failed_precondition(format!("snapshot '{id}' is in no session")))?;
    let tree = on!(archive, archive => archive.tree(session.clone()).await)?;
    let following = tree.find(&id.into()).map_or(0, |node| node.branch().len() - 1);
    Ok(format!("the snapshot '{id}' and the {following} that follow it"))
}
