//! The archive of a remote agent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everturn_agent::archive::{
    CopyRequest, DeleteRequest, Deleted, DiffRequest, Difference, ForkRequest, GetSessionRequest, Import,
    ImportInit, Imported, LabelRequest, ListSessionsRequest, ListSnapshotsRequest, ListTenantsRequest,
    SessionList, SnapshotList, SnapshotTree, TenantList, TreePage, TreeRequest, UsageReport, UsageRequest,
};
use everturn_agent::store::{Cursor, Page, SessionQuery, SessionSummary, SnapshotQuery};
use everturn_agent::{GetSnapshotRequest, SNAPSHOT_NOT_FOUND, SessionId, Snapshot, SnapshotId};
use everturn_core::{Context, Error, Result, Status};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::{RemoteAgent, Routes, below};
use crate::events::Event;
use crate::request::{Repeat, decoded, result_in};

/// The size of the pieces in which a file is sent, in bytes.
const PIECE: usize = 64 * 1024;

/// The stored conversations of an agent on another server, with the methods of
/// [`Archive`](everturn_agent::Archive), so that a program can use either.
///
/// Only Everturn servers have an archive. Every caller may read the sessions of their tenant. Labelling,
/// forking, copying, exporting, importing and deleting require permission on the server, and fail with
/// `PERMISSION_DENIED` or `NOT_FOUND` without it.
#[derive(Clone)]
pub struct RemoteArchive {
    routes: Arc<Routes>,
}

everturn_core::opaque_debug!(RemoteArchive, routes.run);

impl<S, T, O> RemoteAgent<S, T, O> {
    /// Returns the agent's stored conversations.
    pub fn archive(&self) -> RemoteArchive {
        RemoteArchive {
            routes: Arc::clone(&self.routes),
        }
    }
}

impl RemoteArchive {
    /// Reads the snapshot with this id.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; the server's own error.
    pub async fn get(&self, id: impl Into<SnapshotId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest::snapshot(id);
        self.routes.read(request, &Context::current()).await
    }

    /// Reads the latest snapshot of a session.
    ///
    /// # Errors
    /// As [`RemoteArchive::get`].
    pub async fn latest(&self, session: impl Into<SessionId>) -> Result<Snapshot> {
        let request = GetSnapshotRequest::latest(session);
        self.routes.read(request, &Context::current()).await
    }

    /// Returns one page of a session's snapshots; an empty one if the session does not exist.
    ///
    /// # Errors
    /// The server's own error.
    pub async fn list(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let request = ListSnapshotsRequest::from(query.clone());
        let list: SnapshotList = self.ask("listSnapshots", &request).await?;
        Ok(list.into())
    }

    /// Returns one page of the tenant's sessions, ordered by their latest snapshots.
    ///
    /// # Errors
    /// The server's own error.
    pub async fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let request = ListSessionsRequest::from(query.clone());
        let list: SessionList = self.ask("listSessions", &request).await?;
        Ok(list.into())
    }

    /// Returns the usage of the tenant, and of a session if one is given.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such session; the server's own error.
    pub async fn usage(&self, request: &UsageRequest) -> Result<UsageReport> {
        self.ask("usage", request).await
    }

    /// Returns one page of the tenants of the agent's store. Only the server's operators may call it.
    ///
    /// # Errors
    /// The server's own error.
    pub async fn tenants(&self, request: &ListTenantsRequest) -> Result<TenantList> {
        self.ask("listTenants", request).await
    }

    /// Returns one page of the tenant's unfinished background runs, the earliest first, as their snapshots
    /// without states.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the server's store does not support it; the server's own error.
    pub async fn pending_runs(&self, limit: usize, after: Option<Cursor>) -> Result<Page<Snapshot>> {
        let request = ListSessionsRequest::pending(limit, after);
        let list: SessionList = self.ask("listSessions", &request).await?;
        Ok(Page {
            items: list.sessions.into_iter().map(|run| run.latest).collect(),
            next: list.next,
        })
    }

    /// Returns the ancestors of a snapshot without their states, from its parent to the root.
    ///
    /// # Errors
    /// As [`RemoteArchive::get`].
    pub async fn ancestors(&self, id: impl Into<SnapshotId>) -> Result<Vec<Snapshot>> {
        let id = id.into();
        let tree = self.tree_around(&id).await?;
        let mut ancestors: Vec<Snapshot> = Vec::new();
        let mut next = tree.find(&id).and_then(|node| node.parent());
        while let Some(node) = next {
            ancestors.push(node.snapshot().clone());
            next = node.parent();
        }
        Ok(ancestors)
    }

    /// Returns the snapshots that follow this one, without their states, oldest first.
    ///
    /// # Errors
    /// As [`RemoteArchive::get`].
    pub async fn children(&self, id: impl Into<SnapshotId>) -> Result<Vec<Snapshot>> {
        let id = id.into();
        let tree = self.tree_around(&id).await?;
        let children = tree.find(&id).into_iter().flat_map(|node| node.children());
        Ok(children.map(|node| node.snapshot().clone()).collect())
    }

    async fn tree_around(&self, id: &SnapshotId) -> Result<SnapshotTree> {
        let snapshot = self.get(id.clone()).await?;
        let session = snapshot
            .session_id
            .ok_or_else(|| Error::failed_precondition(format!("snapshot '{id}' belongs to no session")))?;
        self.tree(session).await
    }

    /// Returns all snapshots of a session as a tree, without their states, including superseded ones. A tree
    /// of at most [`SnapshotTree::MAX_EXCERPTS`] snapshots has excerpts.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has no snapshots; the server's own error.
    pub async fn tree(&self, session: impl Into<SessionId>) -> Result<SnapshotTree> {
        let mut request = TreeRequest {
            session_id: session.into(),
            limit: None,
            after: None,
            excerpts: true,
        };
        let mut snapshots = Vec::new();
        let mut excerpts = BTreeMap::new();
        loop {
            let page: TreePage = self.ask("tree", &request).await?;
            snapshots.extend(page.snapshots);
            excerpts.extend(page.excerpts.into_iter().flatten());
            if snapshots.len() > SnapshotTree::MAX_EXCERPTS {
                request.excerpts = false;
                excerpts.clear();
            }
            if page.next.is_none() {
                return Ok(SnapshotTree::of(request.session_id, snapshots).with_excerpts(excerpts));
            }
            request.after = page.next;
        }
    }

    /// Compares two snapshots, of one session or of two.
    ///
    /// # Errors
    /// As [`RemoteArchive::get`], for either.
    pub async fn diff(
        &self,
        left: impl Into<SnapshotId>,
        right: impl Into<SnapshotId>,
    ) -> Result<Difference> {
        let (left, right) = (left.into(), right.into());
        self.ask("diff", &DiffRequest { left, right }).await
    }

    /// Adds a label to a snapshot, after its existing labels. Returns the snapshot without its state.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot; the server's own error.
    pub async fn label(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let mut request = LabelRequest::of(id);
        request.label = Some(label.into());
        self.ask("label", &request).await
    }

    /// Removes a label from a snapshot. Returns the snapshot without its state.
    ///
    /// # Errors
    /// As [`RemoteArchive::label`].
    pub async fn unlabel(&self, id: impl Into<SnapshotId>, label: impl Into<String>) -> Result<Snapshot> {
        let mut request = LabelRequest::of(id);
        request.unlabel = Some(label.into());
        self.ask("label", &request).await
    }

    /// Sets the note of a snapshot; an empty note removes it. Returns the snapshot without its state.
    ///
    /// # Errors
    /// As [`RemoteArchive::label`].
    pub async fn annotate(&self, id: impl Into<SnapshotId>, note: impl Into<String>) -> Result<Snapshot> {
        let mut request = LabelRequest::of(id);
        request.note = Some(note.into());
        self.ask("label", &request).await
    }

    /// Creates a session with the state of a snapshot, and returns the only snapshot of the new session.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such snapshot, `FAILED_PRECONDITION` if it is not completed,
    /// `ALREADY_EXISTS` if the new session has snapshots; the server's own error.
    pub async fn fork(&self, id: impl Into<SnapshotId>, session: impl Into<SessionId>) -> Result<Snapshot> {
        self.act("fork", &forking(id, session, None)).await
    }

    /// Like [`RemoteArchive::fork`], with another custom state.
    ///
    /// # Errors
    /// As [`RemoteArchive::fork`]; `INVALID_ARGUMENT` if the custom state does not match the agent's type.
    pub async fn fork_with_custom(
        &self,
        id: impl Into<SnapshotId>,
        session: impl Into<SessionId>,
        custom: impl Into<Value>,
    ) -> Result<Snapshot> {
        self.act("fork", &forking(id, session, Some(custom.into()))).await
    }

    /// Copies all snapshots of a session into a new session and returns their number.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has no snapshots, `ALREADY_EXISTS` if the new session has some; the
    /// server's own error.
    pub async fn copy(&self, session: impl Into<SessionId>, to: impl Into<SessionId>) -> Result<u64> {
        let request = CopyRequest {
            session_id: session.into(),
            to: to.into(),
        };
        let copied: Imported = self.act("copy", &request).await?;
        Ok(copied.snapshots)
    }

    /// Exports a session to a writer, line by line as it arrives, and returns the number of snapshots.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has no snapshots; the server's own error; the error of the writer.
    pub async fn export(
        &self,
        session: impl Into<SessionId>,
        mut to: impl AsyncWrite + Unpin + Send,
    ) -> Result<u64> {
        let context = Context::current();
        let request = GetSessionRequest {
            session_id: session.into(),
        };
        let opening = self.routes.start_repeatable("export", &request, &context);
        let mut events = opening.await.map_err(named)?;
        loop {
            match context.guard(events.next()).await? {
                Event::Chunk(line) => to.write_all(format!("{line}\n").as_bytes()).await?,
                Event::Output(output) => {
                    to.flush().await?;
                    return Ok(decoded::<everturn_agent::archive::Exported>(output)?.snapshots);
                }
                Event::Failure(error) => return Err(named(error)),
            }
        }
    }

    /// Imports a session that was written by [`RemoteArchive::export`] or
    /// [`Archive::export`](everturn_agent::Archive::export). The file is sent while it is read, and only
    /// once: if the connection breaks, nothing is imported.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the line, for a file that is not a complete export; `ALREADY_EXISTS` if the
    /// session or a snapshot exists; the server's own error; the error of the reader.
    pub async fn import(&self, mut from: impl AsyncBufRead + Unpin + Send, how: Import) -> Result<Imported> {
        let context = Context::current();
        let (pieces, body) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let reading = async move {
            let mut buffer = vec![0; PIECE];
            loop {
                let piece = match from.read(&mut buffer).await {
                    Ok(0) => return Ok(()),
                    Ok(length) => Bytes::copy_from_slice(&buffer[..length]),
                    Err(error) => {
                        // A body that ends with an error is not accepted as complete.
                        let broken = std::io::Error::new(error.kind(), "the file cannot be read");
                        let _ = pieces.send(Err(broken)).await;
                        return Err(Error::from(error));
                    }
                };
                if pieces.send(Ok(piece)).await.is_err() {
                    // The server has answered.
                    return Ok(());
                }
            }
        };
        let sending = self.send_file(body, ImportInit::from(how), &context);
        let (read, imported) = tokio::join!(reading, context.guard(sending));
        read?;
        decoded(imported?)
    }

    async fn send_file(
        &self,
        mut pieces: mpsc::Receiver<Result<Bytes, std::io::Error>>,
        init: ImportInit,
        context: &Context,
    ) -> Result<Value> {
        let settings = &self.routes.client.0;
        let mut url = below(&self.routes.run, "import");
        url.query_pairs_mut()
            .append_pair("init", &serde_json::to_string(&init)?);
        let mut headers = settings.headers.get(context).await?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        let body = futures::stream::poll_fn(move |cx| pieces.poll_recv(cx));
        let post = settings
            .http
            .post(url.clone())
            .headers(headers)
            .body(reqwest::Body::wrap_stream(body));
        let answer: Result<_, crate::request::Failed> = async {
            let mut response = settings.answered(&url, post).await?;
            settings.read(&mut response).await
        }
        .await;
        result_in(&answer.map_err(|failed| failed.error)?)
    }

    /// Deletes a snapshot permanently and returns whether it existed.
    ///
    /// # Errors
    /// The server's own error.
    pub async fn delete_snapshot(&self, id: impl Into<SnapshotId>) -> Result<bool> {
        let request = DeleteRequest {
            snapshot_id: Some(id.into()),
            ..DeleteRequest::default()
        };
        Ok(self.delete(&request).await? > 0)
    }

    /// Permanently deletes a snapshot and all snapshots of its session that descend from it. Returns their
    /// number.
    ///
    /// # Errors
    /// The server's own error.
    pub async fn delete_branch(&self, id: impl Into<SnapshotId>) -> Result<u64> {
        let request = DeleteRequest {
            snapshot_id: Some(id.into()),
            branch: true,
            ..DeleteRequest::default()
        };
        self.delete(&request).await
    }

    /// Permanently deletes a session with all its snapshots. Returns their number.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session does not exist; the server's own error.
    pub async fn delete_session(&self, session: impl Into<SessionId>) -> Result<u64> {
        let request = DeleteRequest {
            session_id: Some(session.into()),
            ..DeleteRequest::default()
        };
        self.delete(&request).await
    }

    async fn delete(&self, request: &DeleteRequest) -> Result<u64> {
        let deleted: Deleted = self.act("delete", request).await?;
        Ok(deleted.snapshots)
    }

    /// Calls an idempotent action.
    async fn ask<T: DeserializeOwned>(&self, name: &str, request: &(impl Serialize + Sync)) -> Result<T> {
        let settings = &self.routes.client.0;
        self.call(name, request, Repeat::Always, Some(settings.timeout))
            .await
    }

    /// Calls an action that is not idempotent. A change may take longer than a read.
    async fn act<T: DeserializeOwned>(&self, name: &str, request: &(impl Serialize + Sync)) -> Result<T> {
        self.call(name, request, Repeat::Unsent, None).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        name: &str,
        request: &(impl Serialize + Sync),
        repeat: Repeat,
        timeout: Option<Duration>,
    ) -> Result<T> {
        let url = below(&self.routes.run, name);
        let context = Context::current();
        let asking = self.routes.call(&url, request, &context, repeat, timeout);
        decoded(Box::pin(asking).await.map_err(named)?)
    }
}

fn forking(id: impl Into<SnapshotId>, session: impl Into<SessionId>, custom: Option<Value>) -> ForkRequest {
    ForkRequest {
        snapshot_id: id.into(),
        session_id: session.into(),
        custom,
    }
}

/// Adds the reason that a missing snapshot has in the agent's own process.
pub(super) fn named(error: Error) -> Error {
    match error.status() {
        Status::NotFound => error.with_reason(SNAPSHOT_NOT_FOUND),
        _ => error,
    }
}
