//! The snapshots of a session as a tree.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::plain::plain;
use crate::{SessionId, Snapshot, SnapshotId};

/// The number of characters of a label or a note that are printed.
const SHOWN: usize = 60;

/// The number of characters of an id that are printed: all of any sensible id.
const SHOWN_ID: usize = 256;

/// The snapshots of a session and their parents.
///
/// A snapshot whose parent was deleted is a root, like one that began the session. When printed, each line is
/// a snapshot with its time, the first words of its user and the tools that the model called since;
/// descendants go straight down, and branches are indented:
///
/// ```text
/// dinner
/// ● 01 completed 2026-05-01T18:00:00Z [good so far] — Something with leeks? → in_season
/// ├─● 02 completed 2026-05-01T18:02:10Z — And without butter?
/// │ ● 03 completed 2026-05-01T18:03:00Z — And for six?
/// ● 04 completed 2026-05-01T18:05:41Z — And with cream?
/// ● 05 completed 2026-05-01T18:06:12Z ← latest — Thank you.
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotTree {
    session_id: SessionId,
    /// Sorted, oldest first.
    snapshots: Vec<Snapshot>,
    /// The place of each snapshot's parent; none for roots.
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    /// The first words of each snapshot, as far as they are known.
    excerpts: BTreeMap<SnapshotId, String>,
}

/// A snapshot in a [`SnapshotTree`].
#[derive(Debug, Clone, Copy)]
pub struct SnapshotNode<'a> {
    tree: &'a SnapshotTree,
    at: usize,
}

impl SnapshotTree {
    /// The size of the largest tree that an archive reads with excerpts: every snapshot is read whole for
    /// them.
    pub const MAX_EXCERPTS: usize = 1_000;

    /// Creates the tree of a session's snapshots, which must be sorted, oldest first.
    pub fn of(session_id: SessionId, snapshots: Vec<Snapshot>) -> Self {
        let mut parents = parents(&snapshots);
        cut_circles(&mut parents);
        let mut children = vec![Vec::new(); snapshots.len()];
        let mut roots = Vec::new();
        for (at, parent) in parents.iter().copied().enumerate() {
            match parent {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        Self {
            session_id,
            snapshots,
            parents,
            children,
            roots,
            excerpts: BTreeMap::new(),
        }
    }

    /// Adds excerpts by snapshot: the first words of its last user message and the names of the tools that
    /// were called since.
    pub fn with_excerpts(mut self, excerpts: BTreeMap<SnapshotId, String>) -> Self {
        self.excerpts = excerpts;
        self
    }

    /// Returns the session's id.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// Returns all snapshots, oldest first.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// Returns the snapshots without a parent, oldest first.
    pub fn roots(&self) -> impl Iterator<Item = SnapshotNode<'_>> {
        self.roots.iter().map(|at| self.node(*at))
    }

    /// Returns the node of the snapshot with that id.
    pub fn find(&self, id: &SnapshotId) -> Option<SnapshotNode<'_>> {
        let at = self
            .snapshots
            .iter()
            .position(|snapshot| snapshot.snapshot_id == *id)?;
        Some(self.node(at))
    }

    /// Returns the tip: the latest snapshot that is not superseded.
    pub fn latest(&self) -> Option<SnapshotNode<'_>> {
        let at = self.snapshots.iter().rposition(|snapshot| !snapshot.orphaned)?;
        Some(self.node(at))
    }

    fn node(&self, at: usize) -> SnapshotNode<'_> {
        SnapshotNode { tree: self, at }
    }

    /// Returns the indices of all snapshots, parents before children.
    fn downwards(&self) -> Vec<usize> {
        let mut order = self.roots.clone();
        let mut next = 0;
        while let Some(at) = order.get(next) {
            order.extend(&self.children[*at]);
            next += 1;
        }
        order
    }

    /// Returns the number of snapshots in each snapshot's subtree, including itself.
    fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![1; self.snapshots.len()];
        for at in self.downwards().into_iter().rev() {
            sizes[at] += self.children[at].iter().map(|child| sizes[*child]).sum::<usize>();
        }
        sizes
    }

    fn write_snapshot(&self, f: &mut fmt::Formatter<'_>, at: usize) -> fmt::Result {
        let snapshot = &self.snapshots[at];
        write!(
            f,
            "● {} {} {:.0}",
            plain(snapshot.snapshot_id.as_str(), SHOWN_ID),
            snapshot.status,
            snapshot.created_at
        )?;
        if snapshot.orphaned {
            f.write_str(" orphaned")?;
        }
        for label in &snapshot.labels {
            write!(f, " [{}]", plain(label, SHOWN))?;
        }
        if let Some(note) = &snapshot.note {
            write!(f, " “{}”", plain(note, SHOWN))?;
        }
        if self.latest().is_some_and(|latest| latest.at == at) {
            f.write_str(" ← latest")?;
        }
        if let Some(excerpt) = self.excerpts.get(&snapshot.snapshot_id) {
            // It is one line of bounded length already.
            write!(f, " — {excerpt}")?;
        }
        writeln!(f)
    }
}

impl<'a> SnapshotNode<'a> {
    /// Returns the snapshot.
    pub fn snapshot(&self) -> &'a Snapshot {
        &self.tree.snapshots[self.at]
    }

    /// Returns the first words of the snapshot's last user message and the names of the tools that were
    /// called since, if the tree was read with them.
    pub fn excerpt(&self) -> Option<&'a str> {
        self.tree
            .excerpts
            .get(&self.snapshot().snapshot_id)
            .map(String::as_str)
    }

    /// Returns the snapshot that it continues from; `None` for a root.
    pub fn parent(&self) -> Option<SnapshotNode<'a>> {
        let at = self.tree.parents[self.at]?;
        Some(self.tree.node(at))
    }

    /// Returns the node's children, oldest first.
    pub fn children(&self) -> impl Iterator<Item = SnapshotNode<'a>> + use<'a> {
        let tree = self.tree;
        tree.children[self.at].iter().map(|at| tree.node(*at))
    }

    /// Returns the snapshot and all its descendants, parents before children.
    pub fn branch(&self) -> Vec<&'a Snapshot> {
        let mut branch = vec![self.at];
        let mut next = 0;
        while let Some(at) = branch.get(next) {
            branch.extend(&self.tree.children[*at]);
            next += 1;
        }
        branch.into_iter().map(|at| &self.tree.snapshots[at]).collect()
    }
}

/// Returns the index of each snapshot's parent, if that is among the snapshots.
fn parents(snapshots: &[Snapshot]) -> Vec<Option<usize>> {
    let places: HashMap<&SnapshotId, usize> = snapshots
        .iter()
        .enumerate()
        .map(|(at, snapshot)| (&snapshot.snapshot_id, at))
        .collect();
    snapshots
        .iter()
        .map(|snapshot| places.get(snapshot.parent_id.as_ref()?).copied())
        .collect()
}

/// Makes the oldest snapshot of each cycle a root, so that every snapshot is below a root.
fn cut_circles(parents: &mut [Option<usize>]) {
    let mut walks: Vec<Option<usize>> = vec![None; parents.len()];
    for start in 0..parents.len() {
        let mut at = Some(start);
        while let Some(here) = at
            && walks[here].is_none()
        {
            walks[here] = Some(start);
            at = parents[here];
        }
        // Meeting a step of this walk closes a cycle; meeting one of an earlier walk leads to a known root.
        if let Some(met) = at
            && walks[met] == Some(start)
        {
            let mut oldest = met;
            let mut next = parents[met];
            while let Some(here) = next
                && here != met
            {
                oldest = oldest.min(here);
                next = parents[here];
            }
            parents[oldest] = None;
        }
    }
}

impl fmt::Display for SnapshotTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", plain(self.session_id.as_str(), SHOWN_ID))?;
        let sizes = self.sizes();
        for (number, root) in self.roots.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            // A stack of snapshots to print, each with its own prefix and the prefix of those below it.
            let mut open = vec![(*root, String::new(), String::new())];
            while let Some((at, lead, indent)) = open.pop() {
                f.write_str(&lead)?;
                self.write_snapshot(f, at)?;
                // The largest branch continues straight down, so the indentation grows only with the
                // logarithm of the tree.
                let straight = self.children[at]
                    .iter()
                    .max_by_key(|child| (sizes[**child], **child));
                open.extend(straight.map(|child| (*child, indent.clone(), indent.clone())));
                let aside = self.children[at].iter().filter(|child| Some(*child) != straight);
                open.extend(
                    aside
                        .rev()
                        .map(|child| (*child, format!("{indent}├─"), format!("{indent}│ "))),
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn tree(snapshots: &[(&str, Option<&str>)]) -> SnapshotTree {
        let snapshots = snapshots.iter().map(|(id, parent)| Snapshot {
            parent_id: parent.map(SnapshotId::from),
            ..Snapshot::new((*id).into(), "s".into(), Timestamp::UNIX_EPOCH)
        });
        SnapshotTree::of("s".into(), snapshots.collect())
    }

    fn ids(nodes: impl IntoIterator<Item = Snapshot>) -> Vec<String> {
        nodes
            .into_iter()
            .map(|snapshot| snapshot.snapshot_id.to_string())
            .collect()
    }

    #[test]
    fn a_line_goes_straight_down_and_branches_are_indented() {
        let tree = tree(&[
            ("a", None),
            ("b", Some("a")),
            ("c", Some("a")),
            ("d", Some("b")),
            ("e", Some("c")),
            ("f", Some("b")),
            ("g", Some("gone")),
        ]);

        let expected = "s\n\
            ● a completed 1970-01-01T00:00:00Z\n\
            ├─● c completed 1970-01-01T00:00:00Z\n\
            │ ● e completed 1970-01-01T00:00:00Z\n\
            ● b completed 1970-01-01T00:00:00Z — soup? → stock\n\
            ├─● d completed 1970-01-01T00:00:00Z\n\
            ● f completed 1970-01-01T00:00:00Z\n\
            \n\
            ● g completed 1970-01-01T00:00:00Z ← latest\n";
        let excerpts = BTreeMap::from([("b".into(), "soup? → stock".to_owned())]);
        assert_eq!(tree.with_excerpts(excerpts).to_string(), expected);
    }

    #[test]
    fn a_circle_is_cut_at_its_oldest_snapshot_and_nothing_is_lost() {
        let tree = tree(&[
            ("a", Some("c")),
            ("b", Some("a")),
            ("c", Some("b")),
            ("d", Some("d")),
            ("e", Some("c")),
        ]);

        let roots = ids(tree.roots().map(|node| node.snapshot().clone()));
        let branch = ids(tree.find(&"a".into()).unwrap().branch().into_iter().cloned());

        assert_eq!(roots, ["a", "d"]);
        assert_eq!(branch, ["a", "b", "c", "e"]);
        assert_eq!(tree.to_string().lines().count(), 7);
    }

    #[test]
    fn a_long_line_with_a_branch_at_every_snapshot_stays_narrow() {
        let mut snapshots = vec![("0".to_owned(), None)];
        for number in 1..2_000 {
            let parent = Some((number - 1).to_string());
            snapshots.push((number.to_string(), parent.clone()));
            snapshots.push((format!("side {number}"), parent));
        }
        let snapshots: Vec<(&str, Option<&str>)> = snapshots
            .iter()
            .map(|(id, parent)| (id.as_str(), parent.as_deref()))
            .collect();

        let printed = tree(&snapshots).to_string();

        assert_eq!(printed.lines().count(), snapshots.len() + 1);
        assert!(printed.lines().all(|line| line.chars().count() < 80));
    }
}
