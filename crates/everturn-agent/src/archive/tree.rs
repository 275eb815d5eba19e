//! The snapshots of a session as a tree.

use std::collections::HashMap;
use std::fmt;

use super::plain::plain;
use crate::{SessionId, Snapshot, SnapshotId};

/// The number of characters of a label or a note that are printed.
const SHOWN: usize = 60;

/// The number of characters of an id that are printed: all of any sensible id.
const SHOWN_ID: usize = 256;

/// The snapshots of a session and which continues from which.
///
/// A snapshot whose parent was deleted is a root, like one that began the session. Printed, each line is a snapshot; a
/// line of descent goes straight down, and what branches off it is indented:
///
/// ```text
/// dinner
/// ● 01 completed [good so far]
/// ├─● 02 completed
/// │ ● 03 completed
/// ● 04 completed
/// ● 05 completed ← latest
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotTree {
    session_id: SessionId,
    /// Oldest first.
    snapshots: Vec<Snapshot>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

/// A snapshot in a [`SnapshotTree`].
#[derive(Debug, Clone, Copy)]
pub struct SnapshotNode<'a> {
    tree: &'a SnapshotTree,
    at: usize,
}

impl SnapshotTree {
    /// The tree of a session's snapshots, which come oldest first.
    pub(super) fn new(session_id: SessionId, snapshots: Vec<Snapshot>) -> Self {
        let mut parents = parents(&snapshots);
        cut_circles(&mut parents);
        let mut children = vec![Vec::new(); snapshots.len()];
        let mut roots = Vec::new();
        for (at, parent) in parents.into_iter().enumerate() {
            match parent {
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }
        Self {
            session_id,
            snapshots,
            children,
            roots,
        }
    }

    /// The session's id.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> &[Snapshot] {
        &self.snapshots
    }

    /// The snapshots that continue from none, oldest first.
    pub fn roots(&self) -> impl Iterator<Item = SnapshotNode<'_>> {
        self.roots.iter().map(|at| self.node(*at))
    }

    /// The snapshot of that id.
    pub fn find(&self, id: &SnapshotId) -> Option<SnapshotNode<'_>> {
        let at = self
            .snapshots
            .iter()
            .position(|snapshot| snapshot.snapshot_id == *id)?;
        Some(self.node(at))
    }

    /// The snapshot at which the session is resumed by its id: the latest that no rewind left behind.
    pub fn latest(&self) -> Option<SnapshotNode<'_>> {
        let at = self.snapshots.iter().rposition(|snapshot| !snapshot.orphaned)?;
        Some(self.node(at))
    }

    fn node(&self, at: usize) -> SnapshotNode<'_> {
        SnapshotNode { tree: self, at }
    }

    /// Every snapshot after the one it continues from.
    fn downwards(&self) -> Vec<usize> {
        let mut order = self.roots.clone();
        let mut next = 0;
        while let Some(at) = order.get(next) {
            order.extend(&self.children[*at]);
            next += 1;
        }
        order
    }

    /// How many snapshots hang on each snapshot, itself included.
    fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![1; self.snapshots.len()];
        for at in self.downwards().into_iter().rev() {
            sizes[at] += self.children[at].iter().map(|child| sizes[*child]).sum::<usize>();
        }
        sizes
    }

    fn write_snapshot(&self, f: &mut fmt::Formatter<'_>, at: usize) -> fmt::Result {
        let snapshot = &self.snapshots[at];
        let status = serde_json::to_value(snapshot.status).unwrap_or_default();
        write!(
            f,
            "● {} {}",
            plain(snapshot.snapshot_id.as_str(), SHOWN_ID),
            status.as_str().unwrap_or("unknown")
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
        writeln!(f)
    }
}

impl<'a> SnapshotNode<'a> {
    /// The snapshot.
    pub fn snapshot(&self) -> &'a Snapshot {
        &self.tree.snapshots[self.at]
    }

    /// Those that continue from it, oldest first.
    pub fn children(&self) -> impl Iterator<Item = SnapshotNode<'a>> + use<'a> {
        let tree = self.tree;
        tree.children[self.at].iter().map(|at| tree.node(*at))
    }

    /// The snapshot and all that came of it, every one after the one it continues from.
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

/// The place of each snapshot's parent, where it is one of the snapshots.
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

/// Makes the oldest snapshot of each circle a root, so that every snapshot hangs on one.
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
        // Coming across one's own steps is a circle; across those of an earlier walk, the way is known to end.
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
            // Snapshots to print, the next one last: with what precedes it, and what precedes the snapshots below it.
            let mut open = vec![(*root, String::new(), String::new())];
            while let Some((at, lead, indent)) = open.pop() {
                f.write_str(&lead)?;
                self.write_snapshot(f, at)?;
                // The largest branch goes straight on, so the indentation grows with the logarithm of the tree only.
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
        SnapshotTree::new("s".into(), snapshots.collect())
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
            ● a completed\n\
            ├─● c completed\n\
            │ ● e completed\n\
            ● b completed\n\
            ├─● d completed\n\
            ● f completed\n\
            \n\
            ● g completed ← latest\n";
        assert_eq!(tree.to_string(), expected);
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
        assert!(printed.lines().all(|line| line.chars().count() < 60));
    }
}
