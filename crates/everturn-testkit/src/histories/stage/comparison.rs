//! Comparing the store with the model through every read.

use everturn_agent::archive::ArtifactChange;
use everturn_agent::store::{SessionQuery, SnapshotQuery};
use everturn_agent::{Artifact, SessionId, Snapshot, SnapshotId};
use everturn_core::Status;

use super::{Played, Stage, same_failure, text};
use crate::certify::ensure;

/// The page size when everything is compared: small, so that there are several pages.
const PAGE: usize = 4;

impl Stage {
    /// Returns a session's snapshots in the store, oldest first.
    pub(super) async fn listed(&self, session: &SessionId) -> Result<Vec<Snapshot>, String> {
        let mut query = SnapshotQuery::of(session.clone())
            .oldest_first()
            .with_orphaned()
            .whole()
            .limit(PAGE);
        let mut snapshots = Vec::new();
        loop {
            let page = self.archive.list(&query).await.map_err(text)?;
            ensure!(
                page.items.len() <= PAGE,
                "a page has {} snapshots",
                page.items.len()
            );
            snapshots.extend(page.items);
            let Some(next) = page.next else {
                return Ok(snapshots);
            };
            query.after = Some(next);
        }
    }

    /// Checks that the store has exactly the snapshots of the model.
    pub(in crate::histories) async fn compare(&self) -> Played {
        for session in &self.sessions {
            let snapshots = self.listed(session).await?;
            let expected = self.model.session(session);
            ensure!(
                snapshots.iter().eq(expected.iter().copied()),
                "session '{session}' has\n{snapshots:#?}\ninstead of\n{expected:#?}"
            );
            let named_by_content = snapshots
                .iter()
                .filter(|snapshot| snapshot.snapshot_id.is_content_addressed());
            for snapshot in named_by_content {
                let holds = snapshot.verify().map_err(text)?;
                ensure!(
                    holds,
                    "'{}' does not hold what it is named after",
                    snapshot.snapshot_id
                );
            }
        }
        self.compare_sessions().await?;
        if let Some(id) = &self.touched {
            self.compare_around(id).await?;
        }
        if let (Some(one), Some(other)) = (self.ids.first(), self.ids.last()) {
            self.compare_difference(one, other).await?;
        }
        Ok(())
    }

    async fn compare_sessions(&self) -> Played {
        let page = self
            .archive
            .sessions(&SessionQuery::default())
            .await
            .map_err(text)?;
        let listed: Vec<(SessionId, SnapshotId)> = page
            .items
            .into_iter()
            .map(|summary| (summary.session_id, summary.latest.snapshot_id))
            .collect();
        let mut tips: Vec<&Snapshot> = self
            .sessions
            .iter()
            .filter_map(|session| self.model.latest(session))
            .collect();
        tips.sort_by_key(|tip| std::cmp::Reverse(tip.position()));
        let expected: Vec<(SessionId, SnapshotId)> = tips
            .into_iter()
            .filter_map(|tip| Some((tip.session_id.clone()?, tip.snapshot_id.clone())))
            .collect();
        ensure!(
            listed == expected,
            "the sessions are {listed:?} instead of {expected:?}"
        );
        Ok(())
    }

    /// Compares everything that can be read about one snapshot.
    async fn compare_around(&self, id: &SnapshotId) -> Played {
        let found = self.archive.get(id.clone()).await;
        let Some(snapshot) = self.model.find(id) else {
            return same_failure(found, Err::<(), _>(Status::NotFound));
        };
        ensure!(
            found.map_err(text)? == *snapshot,
            "a snapshot is another by its id than in its session"
        );
        let session = snapshot.session_id.clone().expect("every snapshot has a session");

        let latest = self.archive.latest(session.clone()).await;
        match self.model.latest(&session) {
            Some(expected) => {
                let latest = latest.map_err(text)?;
                ensure!(
                    latest == *expected,
                    "the latest snapshot of '{session}' is '{}'",
                    latest.snapshot_id
                );
            }
            // Only orphaned snapshots are left of the session.
            None => same_failure(latest, Err::<(), _>(Status::NotFound))?,
        }
        let ancestors = self.archive.ancestors(id.clone()).await.map_err(text)?;
        let ancestors: Vec<&SnapshotId> = ancestors.iter().map(|snapshot| &snapshot.snapshot_id).collect();
        ensure!(
            ancestors == self.model.ancestors(id),
            "the ancestors of '{id}' are {ancestors:?}"
        );
        let tree = self.archive.tree(session.clone()).await.map_err(text)?;
        let printed = tree.to_string();
        for snapshot in self.model.session(&session) {
            let node = tree
                .find(&snapshot.snapshot_id)
                .ok_or("the tree lacks a snapshot")?;
            let children: Vec<&SnapshotId> = node
                .children()
                .map(|child| &child.snapshot().snapshot_id)
                .collect();
            let expected: Vec<&SnapshotId> = self
                .model
                .session(&session)
                .into_iter()
                .filter(|child| child.parent_id.as_ref() == Some(&snapshot.snapshot_id))
                .map(|child| &child.snapshot_id)
                .collect();
            ensure!(
                children == expected,
                "'{}' has children {children:?}",
                snapshot.snapshot_id
            );
            ensure!(
                printed.contains(snapshot.snapshot_id.as_str()),
                "the printed tree lacks '{}'",
                snapshot.snapshot_id
            );
        }
        let stored = self.archive.children(id.clone()).await.map_err(text)?;
        let node = tree.find(id).ok_or("the tree lacks a snapshot")?;
        let children: Vec<&Snapshot> = node.children().map(|child| child.snapshot()).collect();
        ensure!(
            stored.iter().eq(children),
            "the children of '{id}' are {stored:?}"
        );
        Ok(())
    }

    async fn compare_difference(&self, one: &SnapshotId, other: &SnapshotId) -> Played {
        let difference = self.archive.diff(one.clone(), other.clone()).await;
        let (Some(left), Some(right)) = (self.model.find(one), self.model.find(other)) else {
            return same_failure(difference, Err::<(), _>(Status::NotFound));
        };
        let difference = difference.map_err(text)?;
        let messages = |snapshot: &Snapshot| -> Vec<_> {
            let state = snapshot.state.iter();
            state.flat_map(|state| state.messages.iter().cloned()).collect()
        };
        let (left_messages, right_messages) = (messages(left), messages(right));
        let common = left_messages
            .iter()
            .zip(&right_messages)
            .take_while(|(left, right)| left == right)
            .count();
        ensure!(
            difference.common == common
                && difference.only_left == left_messages[common..]
                && difference.only_right == right_messages[common..],
            "the difference of '{one}' and '{other}' is {difference:?}"
        );
        let custom = |snapshot: &Snapshot| {
            let custom = snapshot.state.as_ref().and_then(|state| state.custom.as_deref());
            custom.cloned().unwrap_or_default()
        };
        let patched = difference
            .custom
            .apply(&custom(left))
            .map_err(|error| error.to_string())?;
        ensure!(
            patched == custom(right),
            "{patched} is not the other custom state"
        );
        let mut artifacts = artifacts_of(left);
        for change in &difference.artifacts {
            match change {
                ArtifactChange::Added(added) => artifacts.push(added.clone()),
                ArtifactChange::Removed(removed) => artifacts.retain(|artifact| artifact != removed),
                ArtifactChange::Changed { from, to } => {
                    let changed = artifacts.iter_mut().filter(|artifact| *artifact == from);
                    changed.for_each(|artifact| *artifact = to.clone());
                }
            }
        }
        artifacts.sort_by(|one, other| one.name.cmp(&other.name));
        ensure!(
            artifacts == artifacts_of(right),
            "{artifacts:?} are not the other artifacts"
        );
        Ok(())
    }
}

/// Returns a snapshot's artifacts, sorted by name.
fn artifacts_of(snapshot: &Snapshot) -> Vec<Artifact> {
    let state = snapshot.state.iter();
    let mut artifacts: Vec<Artifact> = state.flat_map(|state| state.artifacts.iter().cloned()).collect();
    artifacts.sort_by(|one, other| one.name.cmp(&other.name));
    artifacts
}
