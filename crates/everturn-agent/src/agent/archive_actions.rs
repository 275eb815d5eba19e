//! An agent's archive as actions. Actions that change or export sessions are for operators, and those on all
//! tenants for the store's operator: the server decides who may call them.

use std::convert::Infallible;
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::offload::{HEAVY, is_heavy, offload};
use everturn_core::{
    Action, ActionType, BidiAction, Context, DynAction, Emitter, Error, HandlerResult, Inputs, Payload,
    Principal, Result, Schema,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::actions::companion;
use crate::Snapshot;
use crate::archive::{
    Archive, CopyRequest, DeleteRequest, DeleteTenantRequest, Deleted, DiffRequest, Difference, Exported,
    ForkRequest, GetSessionRequest, Import, ImportInit, Imported, LabelRequest, ListSessionsRequest,
    ListTenantsRequest, RetainRequest, Retained, Retention, SessionList, TenantList, Tenants, TreePage,
    TreeRequest, UsageReport, UsageRequest,
};
use crate::invocation::Definition;
use crate::policy::visibility::nothing_in;
use crate::store::{DEFAULT_PAGE, Detail, Scope, SessionSummary};

/// The greatest size of an export that is not streamed, in bytes.
const MAX_GATHERED: usize = 16 * 1024 * 1024;

/// How much of an export or an import is on its way between its writer and its reader, in bytes.
const IN_TRANSIT: usize = 64 * 1024;

/// The actions of an agent's archive.
pub(super) fn archive_actions(agent: &Arc<Definition>) -> Vec<Arc<dyn DynAction>> {
    let sessions = "Lists the sessions of agent '{}'.";
    let snapshots = "Shows the snapshots of a session of agent '{}' as a tree.";
    let used = "Tells what the tenant, and a session, of agent '{}' have used.";
    let labels = "Writes labels and notes on snapshots of agent '{}'.";
    let forks = "Begins a session of agent '{}' at a snapshot.";
    let copies = "Copies a session of agent '{}'.";
    let deletes = "Deletes sessions and snapshots of agent '{}' for good.";
    vec![
        archive_action(agent, ActionType::AGENT_SESSIONS, sessions, list_sessions),
        archive_action(agent, ActionType::AGENT_TREE, snapshots, tree),
        archive_action(
            agent,
            ActionType::AGENT_DIFF,
            "Compares two snapshots of agent '{}'.",
            diff,
        ),
        archive_action(agent, ActionType::AGENT_USAGE, used, usage),
        archive_action(agent, ActionType::AGENT_LABEL, labels, label),
        archive_action(agent, ActionType::AGENT_FORK, forks, fork),
        lasting_action(agent, ActionType::AGENT_COPY, copies, Definition::archive, copy),
        lasting_action(
            agent,
            ActionType::AGENT_DELETE,
            deletes,
            Definition::archive,
            delete,
        ),
        Arc::new(export_action(agent)),
        Arc::new(import_action(agent)),
    ]
}

/// Creates an action on the archive of its caller's tenant.
fn archive_action<I: Payload, O: Payload, Fut>(
    definition: &Arc<Definition>,
    action_type: ActionType,
    description: &str,
    answer: fn(Archive, I) -> Fut,
) -> Arc<dyn DynAction>
where
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let action = companion(
        definition,
        action_type,
        description,
        move |this, request, context| async move { Ok(answer(this.archive(&context)?, request).await?) },
    );
    Arc::new(action.with_output_schema(Schema::lenient::<O>()))
}

/// Creates an action that is carried out to its end even if its caller leaves: half of it would be worse than
/// all or nothing. `subject` returns the part of the store that it works on.
pub(super) fn lasting_action<T: Send + 'static, I: Payload, O: Payload, Fut>(
    definition: &Arc<Definition>,
    action_type: ActionType,
    description: &str,
    subject: fn(&Definition, &Context) -> Result<T>,
    answer: fn(T, I) -> Fut,
) -> Arc<dyn DynAction>
where
    Fut: Future<Output = Result<O>> + Send + 'static,
{
    let work = move |this: Arc<Definition>, request, context: Context| async move {
        let answering = answer(subject(&this, &context)?, request);
        HandlerResult::Ok(this.invocations.spawn(answering).await??)
    };
    Arc::new(companion(definition, action_type, description, work))
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

/// Returns the actions on all tenants.
pub(super) fn tenant_actions(agent: &Arc<Definition>) -> Vec<Arc<dyn DynAction>> {
    let lists = "Lists the tenants of agent '{}'.";
    let deletes = "Deletes everything of a tenant of agent '{}' for good.";
    let retains = "Applies rules of retention to all tenants of agent '{}'.";
    vec![
        lasting_action(agent, ActionType::AGENT_TENANTS, lists, tenants, list_tenants),
        lasting_action(
            agent,
            ActionType::AGENT_DELETE_TENANT,
            deletes,
            tenants,
            delete_tenant,
        ),
        lasting_action(agent, ActionType::AGENT_RETAIN, retains, tenants, retain),
    ]
}

fn tenants(definition: &Definition, _: &Context) -> Result<Tenants> {
    definition.tenants()
}

async fn list_tenants(tenants: Tenants, request: Option<ListTenantsRequest>) -> Result<TenantList> {
    let after = request.unwrap_or_default().after.map(Scope::new);
    let page = tenants.list(after.as_ref()).await?;
    let name = |tenant: &Scope| tenant.as_str().to_owned();
    let readable = |tenant: &Scope| Some((name(tenant), tenant.tenant()?.to_owned()));
    Ok(TenantList {
        tenants: page.items.iter().map(name).collect(),
        principals: page.items.iter().filter_map(readable).collect(),
        next: page.next.as_ref().map(name),
    })
}

async fn delete_tenant(tenants: Tenants, request: DeleteTenantRequest) -> Result<Deleted> {
    let scope = match (request.tenant, request.principal) {
        (Some(tenant), None) => Scope::new(tenant),
        (None, Some(principal)) => Principal::new(principal).scope(),
        _ => {
            let message = "say whose sessions to delete: a 'tenant' by its name in the list, or a 'principal' by its id";
            return Err(Error::invalid_argument(message).with_public());
        }
    };
    let snapshots = tenants.delete(&scope, request.request_id.as_deref()).await?;
    Ok(Deleted { snapshots })
}

async fn retain(tenants: Tenants, request: RetainRequest) -> Result<Retained> {
    let mut rules = Retention::default();
    if let Some(seconds) = request.max_age_seconds {
        rules = rules.no_older_than(Duration::from_secs(seconds));
    }
    if let Some(count) = request.newest {
        rules = rules.newest(count);
    }
    if request.even_labelled {
        rules = rules.even_labelled();
    }
    let report = tenants.retain(&rules).await?;
    Ok(Retained {
        sessions: report.sessions,
        snapshots: report.snapshots,
    })
}
