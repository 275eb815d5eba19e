//! An agent's archive as actions. Actions that change or export sessions are for operators: the server
//! decides who may call them.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use everturn_core::offload::{HEAVY, is_heavy, offload};
use everturn_core::{
    Action, ActionType, BidiAction, Context, DynAction, Emitter, Error, HandlerResult, Inputs, Result, Schema,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use crate::Snapshot;
use crate::archive::{
    Archive, CopyRequest, DeleteRequest, Deleted, DiffRequest, Difference, Exported, ForkRequest,
    GetSessionRequest, Import, ImportInit, Imported, LabelRequest, ListSessionsRequest, SessionList,
    TreePage, TreeRequest, UsageReport, UsageRequest,
};
use crate::invocation::Definition;
use crate::policy::visibility::nothing_in;
use crate::store::{DEFAULT_PAGE, Detail, SessionSummary};

/// The greatest size of an export that is not streamed, in bytes.
const MAX_GATHERED: usize = 16 * 1024 * 1024;

/// How much of an export or an import is on its way between its writer and its reader, in bytes.
const IN_TRANSIT: usize = 64 * 1024;

/// The actions of an agent's archive; none without a store.
pub(super) fn archive_actions(definition: &Arc<Definition>) -> Vec<Arc<dyn DynAction>> {
    if definition.store.is_none() {
        return Vec::new();
    }
    let name = &definition.name;
    vec![
        Arc::new(
            action(definition, ActionType::AGENT_SESSIONS, list_sessions)
                .with_description(format!("Lists the sessions of agent '{name}'."))
                .with_output_schema(Schema::lenient::<SessionList>()),
        ),
        Arc::new(
            action(definition, ActionType::AGENT_TREE, tree)
                .with_description(format!(
                    "Shows the snapshots of a session of agent '{name}' as a tree."
                ))
                .with_output_schema(Schema::lenient::<TreePage>()),
        ),
        Arc::new(
            action(definition, ActionType::AGENT_DIFF, diff)
                .with_description(format!("Compares two snapshots of agent '{name}'."))
                .with_output_schema(Schema::lenient::<Difference>()),
        ),
        Arc::new(
            action(definition, ActionType::AGENT_USAGE, usage)
                .with_description(format!(
                    "Tells what the tenant, and a session, of agent '{name}' have used."
                ))
                .with_output_schema(Schema::lenient::<UsageReport>()),
        ),
        Arc::new(
            action(definition, ActionType::AGENT_LABEL, label)
                .with_description(format!("Writes labels and notes on snapshots of agent '{name}'."))
                .with_output_schema(Schema::lenient::<Snapshot>()),
        ),
        Arc::new(
            action(definition, ActionType::AGENT_FORK, fork)
                .with_description(format!("Begins a session of agent '{name}' at a snapshot."))
                .with_output_schema(Schema::lenient::<Snapshot>()),
        ),
        Arc::new(
            lasting_action(definition, ActionType::AGENT_COPY, Definition::archive, copy)
                .with_description(format!("Copies a session of agent '{name}'.")),
        ),
        Arc::new(
            lasting_action(definition, ActionType::AGENT_DELETE, Definition::archive, delete)
                .with_description(format!(
                    "Deletes sessions and snapshots of agent '{name}' for good."
                )),
        ),
        Arc::new(export_action(definition)),
        Arc::new(import_action(definition)),
    ]
}

fn action<I, O, F, Fut>(definition: &Arc<Definition>, action_type: ActionType, answer: F) -> Action<I, O>
where
    I: everturn_core::Payload,
    O: everturn_core::Payload,
    F: Fn(Archive, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let this = Arc::clone(definition);
    Action::new(action_type, &definition.name, move |request, context: Context| {
        let archive = this.archive(&context);
        async move { Ok(answer(archive?, request).await?) }
    })
}

/// An action that is carried out to its end even if its caller leaves: half of it would be worse than all or
/// nothing. `subject` returns the part of the store that it works on.
pub(super) fn lasting_action<T, I, O, F, Fut>(
    definition: &Arc<Definition>,
    action_type: ActionType,
    subject: fn(&Definition, &Context) -> Result<T>,
    answer: F,
) -> Action<I, O>
where
    T: Send + 'static,
    I: everturn_core::Payload,
    O: everturn_core::Payload,
    F: Fn(T, I) -> Fut + Copy + Send + Sync + 'static,
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let this = Arc::clone(definition);
    Action::new(action_type, &definition.name, move |request, context: Context| {
        let subject = subject(&this, &context);
        let this = Arc::clone(&this);
        async move { Ok(this.invocations.spawn(answer(subject?, request)).await??) }
    })
}

async fn usage(archive: Archive, request: Option<UsageRequest>) -> Result<UsageReport> {
    archive.usage(&request.unwrap_or_default()).await
}

async fn list_sessions(archive: Archive, request: Option<ListSessionsRequest>) -> Result<SessionList> {
    let request = request.unwrap_or_default();
    let is_first = request.after.is_none();
    let list = sessions_of(&archive, request).await?;
    if is_first && list.sessions.is_empty() {
        archive.check_named_tenant().await?;
    }
    Ok(list)
}

async fn sessions_of(archive: &Archive, request: ListSessionsRequest) -> Result<SessionList> {
    if request.interrupted && request.pending {
        let message = "background runs do not wait for answers: leave out 'pending' or 'interrupted'";
        return Err(Error::invalid_argument(message).with_public());
    }
    if request.interrupted {
        return archive.interrupted(&request.query()).await;
    }
    if !request.pending {
        return Ok(archive.sessions(&request.query()).await?.into());
    }
    if request.order.is_some() {
        return Err(
            Error::invalid_argument("background runs have one order: leave out 'order'").with_public(),
        );
    }
    let runs = archive
        .pending_runs(request.limit.unwrap_or(DEFAULT_PAGE), request.after)
        .await?;
    let summary = |latest: Snapshot| {
        let session_id = latest.session_id.clone()?;
        Some(SessionSummary { session_id, latest })
    };
    Ok(SessionList {
        sessions: runs.items.into_iter().filter_map(summary).collect(),
        next: runs.next,
        questions: Vec::new(),
        unfinished: Vec::new(),
    })
}

async fn tree(archive: Archive, request: TreeRequest) -> Result<TreePage> {
    archive.tree_page(request).await
}

async fn diff(archive: Archive, request: DiffRequest) -> Result<Difference> {
    archive.diff(request.left, request.right).await
}

async fn label(archive: Archive, request: LabelRequest) -> Result<Snapshot> {
    let id = request.snapshot_id;
    let mut annotated = None;
    if let Some(label) = request.unlabel {
        annotated = Some(archive.unlabel(id.clone(), label).await?);
    }
    if let Some(label) = request.label {
        annotated = Some(archive.label(id.clone(), label).await?);
    }
    if let Some(note) = request.note {
        annotated = Some(archive.annotate(id.clone(), note).await?);
    }
    let nothing = || {
        Error::invalid_argument("nothing is to be done: give a 'label', an 'unlabel' or a 'note'")
            .with_public()
    };
    annotated
        .map(|snapshot| Detail::Metadata.cut(snapshot))
        .ok_or_else(nothing)
}

async fn fork(archive: Archive, request: ForkRequest) -> Result<Snapshot> {
    match request.custom {
        Some(custom) => {
            archive
                .fork_with_custom(request.snapshot_id, request.session_id, custom)
                .await
        }
        None => archive.fork(request.snapshot_id, request.session_id).await,
    }
}

async fn copy(archive: Archive, request: CopyRequest) -> Result<Imported> {
    let snapshots = archive.copy(request.session_id, request.to.clone()).await?;
    Ok(Imported {
        session_id: request.to,
        snapshots,
    })
}

async fn delete(archive: Archive, request: DeleteRequest) -> Result<Deleted> {
    let snapshots = match request {
        DeleteRequest {
            session_id: Some(session),
            snapshot_id: None,
            branch: false,
        } => match archive.delete_session(session.clone()).await? {
            0 => return Err(nothing_in(&session)),
            snapshots => snapshots,
        },
        DeleteRequest {
            session_id: None,
            snapshot_id: Some(snapshot),
            branch: true,
        } => archive.delete_branch(snapshot).await?,
        DeleteRequest {
            session_id: None,
            snapshot_id: Some(snapshot),
            branch: false,
        } => u64::from(archive.delete_snapshot(snapshot).await?),
        _ => {
            let message = "say what to delete: either a 'sessionId', or a 'snapshotId', with 'branch' to delete \
                           all that came of it";
            return Err(Error::invalid_argument(message).with_public());
        }
    };
    Ok(Deleted { snapshots })
}

fn export_action(definition: &Arc<Definition>) -> Action<GetSessionRequest, Exported, Value> {
    let this = Arc::clone(definition);
    Action::streaming(
        ActionType::AGENT_EXPORT,
        &definition.name,
        move |request: GetSessionRequest, context: Context, emitter| {
            let archive = this.archive(&context);
            async move { Ok(export(&archive?, request, &emitter).await?) }
        },
    )
    .with_description(format!(
        "Exports a session of agent '{}', line by line.",
        definition.name
    ))
    .with_output_schema(Schema::lenient::<Exported>())
}

/// Streams the lines of an export, or gathers them for a caller who takes no stream.
async fn export(archive: &Archive, request: GetSessionRequest, emitter: &Emitter<Value>) -> Result<Exported> {
    let (writer, reader) = tokio::io::duplex(IN_TRANSIT);
    let sending = async {
        let mut lines = BufReader::new(reader).lines();
        let (mut gathered, mut bytes) = (Vec::new(), 0);
        while let Some(line) = lines.next_line().await? {
            let length = line.len();
            let out = emitter.clone();
            // Sending serialises the value.
            let parse = move || {
                let value = serde_json::from_str::<Value>(&line)?;
                Ok::<_, Error>(if out.is_streaming() {
                    ControlFlow::Break(out.send(value))
                } else {
                    ControlFlow::Continue(value)
                })
            };
            let parsed = if length > HEAVY {
                offload(parse).await
            } else {
                parse()
            };
            let value = match parsed? {
                ControlFlow::Break(sending) => {
                    sending.await?;
                    continue;
                }
                ControlFlow::Continue(value) => value,
            };
            bytes += length;
            if bytes > MAX_GATHERED {
                return Err(Error::resource_exhausted(format!(
                    "the export is larger than {MAX_GATHERED} bytes: ask for it as a stream"
                ))
                .with_public());
            }
            gathered.push(value);
        }
        Ok(gathered)
    };
    let (snapshots, lines) = tokio::try_join!(archive.export(request.session_id, writer), sending)?;
    Ok(Exported {
        snapshots,
        lines: (!emitter.is_streaming()).then_some(lines),
    })
}

/// The action that imports a session: each input is a line of an export, or a list of lines.
fn import_action(definition: &Arc<Definition>) -> BidiAction<ImportInit, Value, Imported, ()> {
    let this = Arc::clone(definition);
    BidiAction::new(
        ActionType::AGENT_IMPORT,
        &definition.name,
        move |init: ImportInit, inputs: Inputs<Value>, _emitter, context: Context| {
            let archive = this.archive(&context);
            let this = Arc::clone(&this);
            async move {
                let importing = import(archive?, Import::from(init), inputs);
                // A caller who leaves ends the lines, and an import that is cut off takes away what had
                // arrived.
                HandlerResult::Ok(this.invocations.spawn(importing).await??)
            }
        },
    )
    .with_description(format!(
        "Imports a session of agent '{}' from the lines of an export.",
        definition.name
    ))
}

async fn import(archive: Archive, how: Import, inputs: Inputs<Value>) -> Result<Imported> {
    let (writer, reader) = tokio::io::duplex(IN_TRANSIT);
    tokio::select! {
        imported = archive.import(BufReader::new(reader), how) => imported,
        never = feed(writer, inputs) => match never {},
    }
}

/// Writes the lines and never returns: the end of the import ends it.
async fn feed(mut writer: DuplexStream, mut inputs: Inputs<Value>) -> Infallible {
    while let Some(input) = inputs.next().await {
        let lines = match input {
            Value::Array(lines) => lines,
            line => vec![line],
        };
        for line in lines {
            let is_heavy = is_heavy(&line);
            let print = move || format!("{line}\n");
            let line = if is_heavy { offload(print).await } else { print() };
            if writer.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
    }
    drop(writer);
    std::future::pending().await
}
