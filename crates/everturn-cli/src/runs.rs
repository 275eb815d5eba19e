//! `everturn runs`.

use clap::{Args, Subcommand};
use everturn_agent::store::{Detail, MAX_PAGE, PendingQuery};
use everturn_agent::{Abort, Snapshot, SnapshotId, SnapshotStatus};
use everturn_client::RemoteArchive;
use everturn_core::{Error, Status};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, spinner, table};
use crate::server::ServedAgent;
use crate::store::Store;
use crate::target::{Target, refuse_agent, refuse_tenant, scope};
use crate::transcript::{Transcript, coloured, time, used};

#[derive(Debug, Args)]
pub(crate) struct RunsArguments {
    #[command(flatten)]
    selection: Selection,

    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List unfinished runs, oldest first
    List,
    /// Watch a run to its end; exit code 7 if it fails or is aborted
    Watch {
        /// The id of the run: its snapshot
        run: String,
    },
    /// Abort a run
    Abort {
        /// The id of the run: its snapshot
        run: String,
    },
}

pub(crate) async fn run(arguments: RunsArguments, target: &Target, output: Output) -> Outcome {
    let selection = &arguments.selection;
    match target {
        Target::Server(server) => {
            refuse_tenant(selection)?;
            let agent = server.agent_or_only(selection.agent.as_deref()).await?;
            match &arguments.command {
                RunsCommand::List => list(&served_runs(&agent.agent.archive(), output).await?, output),
                RunsCommand::Watch { run } => watch_served(&agent, run, output).await,
                RunsCommand::Abort { run } => aborted(run, agent.agent.abort(run.as_str()).await?, output),
            }
        }
        Target::Store(store) => {
            refuse_agent(selection)?;
            match &arguments.command {
                RunsCommand::List => list(&stored_runs(store, selection).await?, output),
                RunsCommand::Watch { run } => watch_stored(store, selection, run, output).await,
                RunsCommand::Abort { run } => aborted(run, store.abort(scope(selection), run).await?, output),
            }
        }
    }
}

async fn served_runs(archive: &RemoteArchive, output: Output) -> Outcome<Vec<Snapshot>> {
    let sign_of_life = spinner(output, "looking for runs");
    let (mut runs, mut after) = (Vec::new(), None);
    loop {
        let page = archive.pending_runs(MAX_PAGE, after).await?;
        sign_of_life.tick();
        runs.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    sign_of_life.finish_and_clear();
    Ok(runs)
}

async fn stored_runs(store: &Store, selection: &Selection) -> Outcome<Vec<Snapshot>> {
    if selection.names_tenant() {
        store.tenant(selection).await?;
    }
    let (sessions, scope) = (store.sessions().await?, scope(selection));
    let mut query = PendingQuery::default();
    query.limit = MAX_PAGE;
    let mut runs = Vec::new();
    loop {
        let page = sessions.pending(&query).await?.ok_or_else(|| {
            Failure::from(Error::unimplemented(format!(
                "the store {store} cannot find runs"
            )))
            .or_next("use the server of the agents, with --url")
        })?;
        let own = page
            .items
            .into_iter()
            .filter(|run| selection.all_tenants || run.scope == scope);
        runs.extend(own.map(|run| run.snapshot));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(runs),
        }
    }
}

fn list(runs: &[Snapshot], output: Output) -> Outcome {
    output.show(&json!({ "runs": runs }), || {
        let row = |run: &Snapshot| {
            [
                run.snapshot_id.to_string(),
                run.session_id
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                run.status.to_string(),
                time(run.created_at),
                run.heartbeat_at.map(time).unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = runs.iter().map(row).collect();
        table(
            ["RUN", "SESSION", "STATUS", "BEGAN (UTC)", "LAST HEARTBEAT"],
            &rows,
        )
    })?;
    Ok(Exit::Done)
}

/// Prints the chunks of a run, then its outcome.
async fn watch_served(agent: &ServedAgent, id: &str, output: Output) -> Outcome {
    let task = agent.task(id);
    // A missing run fails here, with a specific error.
    task.poll().await?;
    let mut transcript = Transcript::default();
    let mut chunks = task.attach()?;
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => transcript.chunk(output, &chunk)?,
            // Chunks of a run are kept for some minutes after its end, on servers with a stream log.
            Err(error) if matches!(error.status(), Status::NotFound | Status::Unimplemented) => break,
            Err(error) => return Err(error.into()),
        }
    }
    transcript.end_line(output)?;
    let (outcome, snapshot) = (task.wait().await, task.poll().await?);
    if let Ok(reply) = &outcome {
        transcript.reply(output, reply)?;
    }
    let before = match &snapshot.parent_id {
        Some(parent) => agent.task(parent.as_str()).poll().await.ok(),
        None => None,
    };
    remark_usage(&snapshot, before.as_ref(), output);
    ended(snapshot.status, outcome.err(), output)
}

/// Prints the usage of a run that has failed. The usage of a snapshot counts from the beginning of its
/// session, so that of its parent is subtracted.
fn remark_usage(run: &Snapshot, parent: Option<&Snapshot>, output: Output) {
    if run.status == SnapshotStatus::Completed || (run.parent_id.is_some() && parent.is_none()) {
        return;
    }
    let before = parent.and_then(Snapshot::usage).unwrap_or_default();
    let cost = used(&(run.usage().unwrap_or_default() - before));
    if !cost.is_empty() {
        output.remark(format!("The run failed. It used {cost}."));
    }
}

/// Prints each status of the run; a store has no chunks.
async fn watch_stored(store: &Store, selection: &Selection, id: &str, output: Output) -> Outcome {
    let (sessions, scope) = (store.sessions().await?, scope(selection));
    let mut statuses = sessions.watch(&scope, &id.into()).ok_or_else(|| {
        Failure::from(Error::unimplemented(format!(
            "the store {store} cannot be watched"
        )))
        .or_next("watch the run on its server, with --url")
    })?;
    let mut last = None;
    while let Some(status) = statuses.next().await {
        if last.replace(status) == Some(status) {
            continue;
        }
        output.json(&json!({ "status": status }))?;
        if !(output.is_json() || status.is_final()) {
            output.line(coloured(status))?;
        }
        if status.is_final() {
            break;
        }
    }
    match last {
        None => Err(Error::not_found(format!("there is no run '{id}'")).into()),
        Some(status) => {
            let read = async |id: &SnapshotId| sessions.get(&scope, id, Detail::Metadata).await;
            if let Some(run) = read(&id.into()).await? {
                let before = match &run.parent_id {
                    Some(parent) => read(parent).await?,
                    None => None,
                };
                remark_usage(&run, before.as_ref(), output);
            }
            ended(status, None, output)
        }
    }
}

fn ended(status: SnapshotStatus, error: Option<Error>, output: Output) -> Outcome {
    if let Some(error) = error {
        return Err(Failure::from(error).in_turn().exit_with(Exit::No));
    }
    if !output.is_json() {
        output.line(coloured(status))?;
    }
    Ok(match status {
        SnapshotStatus::Completed => Exit::Done,
        _ => Exit::No,
    })
}

fn aborted(id: &str, abort: Option<Abort>, output: Output) -> Outcome {
    let Some(abort) = abort else {
        return Err(Error::not_found(format!("there is no run '{id}'")).into());
    };
    // Servers of other runtimes report a run that is being aborted.
    if abort.status != SnapshotStatus::Aborted && !abort.status.is_under_way() {
        let message = format!("the run '{id}' has already ended: {}", abort.status);
        return Err(Error::failed_precondition(message).into());
    }
    let report: Value = json!({ "snapshotId": id, "status": abort.status });
    output.show(&report, || format!("{}\n", coloured(abort.status)))?;
    Ok(Exit::Done)
}
