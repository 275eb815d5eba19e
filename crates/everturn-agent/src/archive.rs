//! The operator's view of one tenant's sessions: list, label, compare, fork, copy, export, delete.
//!
//! An [`Archive`] holds one tenant's sessions. [`Agent::archive`](crate::Agent::archive) returns the one of
//! the current context; [`Archive::of`] creates one from a store alone, for programs without an agent.
//!
//! ```
//! use everturn_agent::{AgentSession, custom_agent, store::MemoryStore};
//! use everturn_ai::Message;
//! use everturn_core::{Registry, Result};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
//! # let chef = custom_agent(&Registry::new(), "chef", |session: AgentSession| async move {
//! #     session
//! #         .run(|turn| async move {
//! #             turn.add_message(Message::model("Soup."));
//! #             Ok(())
//! #         })
//! #         .await?;
//! #     Ok(session.result())
//! # })
//! # .store(MemoryStore::new())
//! # .define()?;
//! let soup = chef.chat().resume("dinner").run("Something with leeks?").await?;
//! let pie = chef.chat().resume("dinner").run("Or a pie?").await?;
//! let (soup, pie) = (soup.snapshot_id(), pie.snapshot_id());
//!
//! let archive = chef.archive()?;
//! archive.label(soup, "good so far").await?;
//! archive.fork(soup, "lunch").await?;
//! println!("{}", archive.tree("dinner").await?);
//! println!("{}", archive.diff(soup, pie).await?);
//!
//! let mut file = Vec::new();
//! archive.export("dinner", &mut file).await?;
//! archive.delete_session("dinner").await?;
//! archive.import(file.as_slice(), Default::default()).await?;
//! assert_eq!(Some(&archive.latest("dinner").await?.snapshot_id), pie);
//! # Ok(()) }
//! ```
//!
//! # What is seen and what is moved
//!
//! An agent's archive *shows* snapshots as the agent's clients see them: through its state transform, and
//! with a run whose worker went silent as `expired`. An archive from [`Archive::of`] shows them as they are
//! stored. Operations that *move* snapshots (forks, copies, exports) always take the whole stored snapshot:
//! an export is for people who may see everything.
//!
//! # Who may do what
//!
//! No operation reaches another tenant's snapshots, whatever ids it is given. Within a tenant there are no
//! further permissions: every holder of an archive may use all of it.

mod bounded_page;
mod copying;
mod difference;
mod export;
mod import;
mod labels;
mod look_up;
mod plain;
mod record;
mod request;
mod retention;
mod tenants;
mod tree;
mod usage;

use std::sync::Arc;

use everturn_core::stream_log::{IntoStreamLog, StreamLog};
use everturn_core::{Error, Result, Schema, Status};

pub use self::copying::FORKED_FROM;
pub use self::difference::{ArtifactChange, Difference};
pub use self::import::{Import, Imported};
pub use self::labels::{MAX_LABEL, MAX_NOTE};
pub use self::record::{EXPORT_VERSION, MAX_LINE};
pub use self::request::{
    CopyRequest, DeleteRequest, DeleteTenantRequest, Deleted, DiffRequest, Exported, ForkRequest,
    GetSessionRequest, ImportInit, LabelRequest, ListSessionsRequest, ListSnapshotsRequest,
    ListTenantsRequest, OpenQuestion, RetainRequest, Retained, SessionList, SessionView, SnapshotList,
    TenantList, TreePage, TreeRequest,
};
pub use self::retention::{Retention, RetentionReport, TrimmedSession};
pub use self::tenants::Tenants;
pub use self::tree::{SnapshotNode, SnapshotTree};
pub use self::usage::{UsageReport, UsageRequest};
use crate::policy::visibility::{Showing, not_found};
pub use crate::storage::snapshot::MAX_LABELS;
use crate::storage::stored_session::{StoredSession, TenantStore};
use crate::store::{Detail, IntoStore, Scope};
use crate::{Clock, SessionId, Snapshot, SnapshotId, Timeline};

/// A tenant's stored sessions. Cloning is cheap, and clones share the store.
#[derive(Clone)]
pub struct Archive {
    pub(crate) tenant: TenantStore,
    pub(crate) clock: Clock,
    /// Shows snapshots as an agent's clients see them; without it they are shown as they are stored.
    pub(crate) showing: Option<Showing>,
    /// The schema that custom states must match.
    pub(crate) custom_schema: Option<Schema>,
    pub(crate) timeline: Timeline,
    /// Whether the caller named the tenant in the request, where it may be mistyped.
    pub(crate) is_named: bool,
    /// The logs from which deleted sessions are erased.
    pub(crate) streams: Vec<Arc<dyn StreamLog>>,
}

impl Archive {
    /// Creates the archive of a tenant in a store; it shows snapshots as they are stored.
    pub fn of(store: impl IntoStore, scope: Scope) -> Self {
        Self {
            tenant: TenantStore::new(store.into_store(), scope),
            clock: Clock::system(),
            showing: None,
            custom_schema: None,
            timeline: Timeline::default(),
            is_named: false,
            streams: Vec::new(),
        }
    }

    /// Fails with `NOT_FOUND` if the caller named a tenant that does not exist.
    pub(crate) async fn check_named_tenant(&self) -> Result<()> {
        if !self.is_named {
            return Ok(());
        }
        match tenants::find(&**self.tenant.store(), self.scope()).await {
            // A store that cannot list its tenants.
            Err(error) if error.status() == Status::Unimplemented => Ok(()),
            found => found.map(drop),
        }
    }

    /// Adds a log that keeps streams of the tenant: deleted sessions are erased there too. An agent's archive
    /// includes the log of its background runs, and the logs of servers in front of it.
    #[must_use]
    pub fn with_streams(mut self, log: impl IntoStreamLog) -> Self {
        self.streams.push(log.into_stream_log());
        self
    }

    everturn_core::setters! {
        pub(crate) fn with_logs(mut self, streams: Vec<Arc<dyn StreamLog>>) { self.streams = streams }

        /// Sets the clock for the times of changes and forks, and for retention by age.
        pub fn with_clock(mut self, clock: Clock) { self.clock = clock }
    }

    /// Returns the tenant whose sessions these are.
    pub fn scope(&self) -> &Scope {
        self.tenant.scope()
    }

    fn show(&self, snapshot: Snapshot) -> Result<Snapshot> {
        match &self.showing {
            Some(showing) => showing.shape(snapshot),
            None => Ok(Snapshot {
                parent_id: snapshot.listed_parent().cloned(),
                ..snapshot
            }),
        }
    }

    /// Shows the snapshots among these rows: all but the heads.
    fn show_listed(&self, rows: Vec<Snapshot>) -> Result<Vec<Snapshot>> {
        let listed = rows.into_iter().filter(|row| !row.is_head());
        listed.map(|snapshot| self.show(snapshot)).collect()
    }

    fn session(&self, session: &SessionId) -> StoredSession {
        self.tenant.session(session.clone())
    }

    /// Reads the snapshot as it is stored.
    async fn stored(&self, id: &SnapshotId, detail: Detail) -> Result<Snapshot> {
        let snapshot = self.tenant.get(id, detail).await?;
        snapshot.ok_or_else(|| not_found(id))
    }
}

/// Checks the id of a session.
///
/// # Errors
/// `INVALID_ARGUMENT` if the id is empty.
fn named_session(session: impl Into<SessionId>) -> Result<SessionId> {
    session
        .into()
        .given()
        .ok_or_else(|| Error::invalid_argument("the session id is empty").with_public())
}

/// Checks the id of a snapshot.
///
/// # Errors
/// `INVALID_ARGUMENT` if the id is empty.
fn named_snapshot(snapshot: impl Into<SnapshotId>) -> Result<SnapshotId> {
    snapshot
        .into()
        .given()
        .ok_or_else(|| Error::invalid_argument("the snapshot id is empty").with_public())
}

everturn_core::opaque_debug!(Archive, tenant);
