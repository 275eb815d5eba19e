//! What going back in a conversation does to what came after.

mod rewind;

/// What happens to the snapshots that come after one that is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// They stay as they are, and what follows is a branch beside them.
    #[default]
    Branching,
    /// They are left behind: marked [`orphaned`](crate::Snapshot::orphaned), kept, and listed only on request.
    ///
    /// That happens with the first snapshot that is taken after the resumption. It is written first, as the session's new
    /// tip, and says itself that the others are yet to be marked. So nothing changes if the turn fails, and whoever
    /// resumes by the session finds the old tip or the new one and nothing in between, whenever the process dies. Marks
    /// that are missing are made up for by whoever looks next: the next turn on the session, its listing, its tree.
    ///
    /// A turn that comes to a state which is there already, where snapshots are named after what they hold
    /// ([`ContentAddressed`](crate::SnapshotIds::ContentAddressed)), goes to that snapshot: the line from the session's
    /// beginning to it is kept, be it orphaned until then, and everything after that line is left behind. The snapshots
    /// that follow are numbered on from it.
    ///
    /// What was left behind is recovered by resuming one of its snapshots: its line is then the session's again, and
    /// the line that had replaced it is orphaned.
    Linear,
}
