//! Reading and listing snapshots and sessions.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use everturn_ai::history::awaiting;
use everturn_ai::{Message, Part, Role};
use everturn_core::{Error, Result};

use super::plain::plain;
use super::{
    Archive, OpenQuestion, SessionList, SnapshotTree, TreePage, TreeRequest, named_session, named_snapshot,
};
use crate::policy::visibility::{Showing, nothing_in};
use crate::storage::clock::HEARTBEAT_EXPIRY;
use crate::storage::unfinished_call::unfinished_calls;
use crate::store::{
    Cursor, Detail, JournalQuery, MAX_PAGE, Page, PendingCursor, PendingQuery, SessionQuery, SessionSummary,
    SnapshotQuery,
};
use crate::{AgentFinishReason, SessionId, Snapshot, SnapshotId, UnfinishedCall};

/// The greatest number of snapshots on a page with excerpts: each of them is read whole.
const MAX_EXCERPTS: usize = 100;

/// The number of characters of an excerpt.
const EXCERPT: usize = 80;

impl Archive {
    /// Reads the snapshot with this id.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, `INVALID_ARGUMENT` for an empty id.
    pub async fn get(&self, id: impl Into<SnapshotId>) -> Result<Snapshot> {
        let id = named_snapshot(id)?;
        self.show(self.stored(&id, Detail::Whole).await?)
    }

    /// Reads the latest snapshot of a session: the one at which the session is resumed by its id.
    ///
    /// # Errors
    /// As [`Archive::get`].
    pub async fn latest(&self, session: impl Into<SessionId>) -> Result<Snapshot> {
        let session = named_session(session)?;
        let snapshot = self.session(&session).tip(Detail::Whole).await?;
        self.show(snapshot.ok_or_else(|| nothing_in(&session))?)
    }

    /// Returns one page of a session's snapshots; an empty one if the session does not exist. A page has
    /// fewer snapshots than the limit where turns had none.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty session id; the error of the agent's state transform.
    pub async fn list(&self, query: &SnapshotQuery) -> Result<Page<Snapshot>> {
        let session = named_session(query.session.clone())?;
        if query.after.is_none() {
            self.settle(&session).await?;
        }
        let page = self.tenant.list(query).await?;
        Ok(Page {
            items: self.show_listed(page.items)?,
            next: page.next,
        })
    }

    /// Returns one page of the tenant's sessions, ordered by their latest snapshots.
    ///
    /// # Errors
    /// The error of the agent's state transform.
    pub async fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionSummary>> {
        let mut page = self.tenant.sessions(query).await?;
        let unfinished = |summary: &&SessionSummary| summary.latest.has_unfinished_rewind();
        if page.items.iter().any(|summary| unfinished(&summary)) {
            for summary in page.items.iter().filter(unfinished) {
                self.settle(&summary.session_id).await?;
            }
            page = self.tenant.sessions(query).await?;
        }
        let shown = |summary: SessionSummary| {
            Ok(SessionSummary {
                latest: self.show(summary.latest)?,
                ..summary
            })
        };
        Ok(Page {
            items: page.items.into_iter().map(shown).collect::<Result<_>>()?,
            next: page.next,
        })
    }

    /// Returns the sessions of one page of the tenant's sessions that wait for answers, with their open
    /// questions: approvals, and calls whose outcome is unknown. The page may be empty and have a next one.
    ///
    /// The first page has also the calls whose turns died or failed before their outcomes were known, and for
    /// which there is no question yet.
    ///
    /// # Errors
    /// The error of the agent's state transform.
    pub async fn interrupted(&self, query: &SessionQuery) -> Result<SessionList> {
        let page = self.sessions(query).await?;
        let unfinished = match &query.after {
            None => self.unfinished().await?,
            Some(_) => Vec::new(),
        };
        let mut list = SessionList {
            sessions: Vec::new(),
            next: page.next,
            questions: Vec::new(),
            unfinished,
        };
        for summary in page.items {
            if summary.latest.finish_reason != Some(AgentFinishReason::Interrupted) {
                continue;
            }
            let latest = self.get(summary.latest.snapshot_id.clone()).await?;
            let messages = latest.state.map(|state| state.messages).unwrap_or_default();
            let asking = awaiting(&messages).and_then(|place| messages.get(place));
            let open = asking.into_iter().flat_map(Message::interrupts);
            list.questions.extend(open.map(|request| OpenQuestion {
                session_id: summary.session_id.clone(),
                snapshot_id: summary.latest.snapshot_id.clone(),
                outcome_unknown: request.is_outcome_unknown(),
                request: request.clone(),
            }));
            list.sessions.push(summary);
        }
        Ok(list)
    }

    /// Returns the calls of the tenant's dead turns whose outcomes are unknown.
    async fn unfinished(&self) -> Result<Vec<UnfinishedCall>> {
        let expiry = self.showing.as_ref().map_or(HEARTBEAT_EXPIRY, Showing::expiry);
        let query = JournalQuery::of_tenant(self.scope().clone()).before(self.clock.before(expiry));
        let calls = unfinished_calls(&**self.tenant.store(), query, MAX_PAGE).await?;
        Ok(calls.into_iter().map(|(_, call)| call).collect())
    }

    /// Returns one page of the tenant's background runs that are not over, the earliest first: their
    /// snapshots without states, also those that are not their session's latest.
    ///
    /// It costs what is pending in the store, not what is stored.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if the store cannot find them; the error of the agent's state transform.
    pub async fn pending_runs(&self, limit: usize, after: Option<Cursor>) -> Result<Page<Snapshot>> {
        let (store, scope) = (self.tenant.store(), self.tenant.scope());
        let limit = limit.clamp(1, MAX_PAGE);
        let mut query = PendingQuery {
            limit: MAX_PAGE,
            after: after.map(|end| PendingCursor {
                created_at: end.created_at,
                snapshot_id: end.snapshot_id,
                scope: scope.clone(),
            }),
            ..PendingQuery::default()
        };
        let mut items: Vec<Snapshot> = Vec::new();
        loop {
            let page = store.pending(&query).await?.ok_or_else(cannot_find_runs)?;
            for run in page.items.into_iter().filter(|run| run.scope == *scope) {
                if items.len() == limit {
                    let next = items.last().map(Cursor::at);
                    return Ok(Page { items, next });
                }
                items.push(self.show(run.snapshot)?);
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(Page { items, next: None }),
            }
        }
    }

    /// Returns the snapshots that lead to this one, without their states: its parent first, the root last.
    ///
    /// The list ends early where a snapshot was deleted, and where stored parents form a circle. It never
    /// leaves the session.
    ///
    /// # Errors
    /// As [`Archive::get`].
    pub async fn ancestors(&self, id: impl Into<SnapshotId>) -> Result<Vec<Snapshot>> {
        let snapshot = self.stored(&named_snapshot(id)?, Detail::Metadata).await?;
        let mut next = snapshot.listed_parent().cloned();
        let mut seen = HashSet::from([snapshot.snapshot_id]);
        let mut ancestors = Vec::new();
        while let Some(id) = next.take()
            && seen.insert(id.clone())
            && let Some(ancestor) = self.tenant.get(&id, Detail::Metadata).await?
            && ancestor.session_id == snapshot.session_id
        {
            next = ancestor.listed_parent().cloned();
            ancestors.push(self.show(ancestor)?);
        }
        Ok(ancestors)
    }

    /// Returns the snapshots that follow this one, without their states, oldest first; also those of a
    /// deleted one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty id; the error of the agent's state transform.
    pub async fn children(&self, id: impl Into<SnapshotId>) -> Result<Vec<Snapshot>> {
        let mut children = Vec::new();
        // The snapshots after a head follow the snapshot before it.
        let mut parents = vec![named_snapshot(id)?];
        while let Some(parent) = parents.pop() {
            let (heads, listed): (Vec<_>, Vec<_>) = self
                .tenant
                .children(&parent)
                .await?
                .into_iter()
                .partition(Snapshot::is_head);
            parents.extend(heads.into_iter().map(|head| head.snapshot_id));
            children.extend(self.show_listed(listed)?);
        }
        children.sort_by(|a, b| a.position().cmp(&b.position()));
        Ok(children)
    }

    /// Returns all of a session's snapshots as a tree, without their states, superseded ones included. A tree
    /// of at most [`SnapshotTree::MAX_EXCERPTS`] snapshots has excerpts.
    ///
    /// # Errors
    /// `NOT_FOUND` if the session has none, `INVALID_ARGUMENT` for an empty id.
    pub async fn tree(&self, session: impl Into<SessionId>) -> Result<SnapshotTree> {
        let session = named_session(session)?;
        let snapshots = self.stored_snapshots(&session).await?;
        if snapshots.is_empty() {
            return Err(nothing_in(&session));
        }
        let tree = SnapshotTree::of(session, self.show_listed(snapshots)?);
        if tree.snapshots().len() > SnapshotTree::MAX_EXCERPTS {
            return Ok(tree);
        }
        let excerpts = self.excerpts(tree.session_id()).await?;
        Ok(tree.with_excerpts(excerpts))
    }

    /// Returns an excerpt of each snapshot of a session, as a client may see it.
    async fn excerpts(&self, session: &SessionId) -> Result<BTreeMap<SnapshotId, String>> {
        let mut query = all_of(session).oldest_first();
        let mut excerpts = BTreeMap::new();
        loop {
            let (page, more) = self.excerpted_page(&query).await?;
            excerpts.extend(more);
            let Some(next) = page.next else {
                return Ok(excerpts);
            };
            query.after = Some(next);
        }
    }

    /// Returns one page of a session's tree.
    ///
    /// # Errors
    /// As [`Archive::tree`].
    pub(crate) async fn tree_page(&self, request: TreeRequest) -> Result<TreePage> {
        let session = named_session(request.session_id)?;
        let tip = self.session(&session).tip(Detail::Metadata).await?;
        let mut query = all_of(&session).oldest_first();
        query.limit = request.limit.unwrap_or(query.limit);
        query.after = request.after;
        let (page, excerpts) = if request.excerpts {
            query.limit = query.limit.min(MAX_EXCERPTS);
            let (page, excerpts) = self.excerpted_page(&query).await?;
            (page, Some(excerpts))
        } else {
            (self.list(&query).await?, None)
        };
        if tip.is_none() && page.items.is_empty() && query.after.is_none() {
            return Err(nothing_in(&session));
        }
        Ok(TreePage {
            session_id: session,
            latest: tip.and_then(|tip| tip.listed().cloned()),
            snapshots: page.items,
            excerpts,
            next: page.next,
        })
    }

    /// Returns all snapshots of a session as they are stored, without their states, oldest first, including
    /// superseded ones.
    pub(super) async fn stored_snapshots(&self, session: &SessionId) -> Result<Vec<Snapshot>> {
        self.gather(session, |snapshot| snapshot).await
    }

    /// Returns the ids of all snapshots of a session, oldest first, including superseded ones.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none.
    pub(super) async fn stored_ids(&self, session: &SessionId) -> Result<Vec<SnapshotId>> {
        let ids = self.gather(session, |snapshot| snapshot.snapshot_id).await?;
        if ids.is_empty() {
            return Err(nothing_in(session));
        }
        Ok(ids)
    }

    /// Returns the number of the tenant's snapshots, including superseded ones.
    pub(super) async fn count(&self) -> Result<u64> {
        let mut query = SessionQuery {
            limit: MAX_PAGE,
            ..SessionQuery::default()
        };
        let mut count = 0;
        loop {
            let page = self.tenant.sessions(&query).await?;
            for session in page.items {
                count += self.gather(&session.session_id, |_| ()).await?.len() as u64;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(count),
            }
        }
    }

    /// Finishes an unfinished rewind of the session.
    async fn settle(&self, session: &SessionId) -> Result<()> {
        self.session(session).tip(Detail::Metadata).await.map(drop)
    }

    /// Applies `take` to each snapshot of a session, oldest first.
    async fn gather<T>(
        &self,
        session: &SessionId,
        take: impl Fn(Snapshot) -> T + Send + Sync,
    ) -> Result<Vec<T>> {
        self.settle(session).await?;
        let mut query = all_of(session).oldest_first();
        let mut taken = Vec::new();
        loop {
            let page = self.tenant.list(&query).await?;
            taken.extend(page.items.into_iter().map(&take));
            let Some(next) = page.next else {
                return Ok(taken);
            };
            query.after = Some(next);
        }
    }

    /// Returns whether a session has any snapshot, superseded or not.
    pub(super) async fn exists(&self, session: &SessionId) -> Result<bool> {
        let page = self.tenant.list(&all_of(session).limit(1)).await?;
        Ok(!page.items.is_empty())
    }
}

fn cannot_find_runs() -> Error {
    Error::unimplemented("the store cannot find background runs: list the sessions instead").with_public()
}

/// Creates the query for all snapshots of a session, in large pages without states.
pub(super) fn all_of(session: &SessionId) -> SnapshotQuery {
    SnapshotQuery::of(session.clone()).with_orphaned().limit(MAX_PAGE)
}

/// Returns the first words of the last user message at a snapshot, and the names of the tools that the model
/// asked for since.
pub(super) fn excerpt(snapshot: &Snapshot) -> Option<(SnapshotId, String)> {
    let mut tools = Vec::new();
    let mut text = String::new();
    for message in snapshot.state.as_ref()?.messages.iter().rev() {
        if message.role() == Role::User {
            text = plain(&message.text(), EXCERPT).to_string();
            break;
        }
        let asked = message.content().iter().rev().filter_map(Part::as_tool_request);
        tools.extend(asked.map(|request| request.name.clone()));
    }
    if !tools.is_empty() {
        tools.reverse();
        let separator = if text.is_empty() { "" } else { " " };
        let tools = tools.join(", ");
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}→ {}", plain(&tools, EXCERPT));
    }
    (!text.is_empty()).then(|| (snapshot.snapshot_id.clone(), text))
}
