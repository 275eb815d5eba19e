//! What resuming an earlier snapshot does to the later ones.

mod rewind;

/// What happens to the snapshots after the one that is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// The later snapshots stay as they are, and the next one begins a branch beside them.
    #[default]
    Branching,
    /// The later snapshots are left behind: marked [`orphaned`](crate::Snapshot::orphaned), kept, and listed only on
    /// request.
    ///
    /// That happens with the first snapshot after the resumption. It is written first, as the session's new tip, and
    /// says itself that the others are yet to be marked. So nothing changes if the turn fails, and whenever the process
    /// dies, a client that resumes the session finds the old tip or the new one. The next turn on the session, or the
    /// next listing of it, makes the marks that are missing.
    ///
    /// With [`ContentAddressed`](crate::SnapshotIds::ContentAddressed) ids a turn may come to a state that is stored
    /// already. Then the existing snapshot becomes the tip: the snapshots that lead to it are kept, even if they were
    /// orphaned, and all others are left behind. Later snapshots are numbered on from it.
    ///
    /// Resuming an orphaned snapshot recovers it and the snapshots that lead to it, and orphans those that had replaced
    /// them.
    Linear,
}
