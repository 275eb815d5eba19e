//! The effect of resuming an earlier snapshot on the later ones.

mod rewind;

/// What happens to the snapshots after a resumed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeline {
    /// The later snapshots stay as they are, and the next one begins a branch beside them.
    #[default]
    Branching,
    /// The later snapshots become [`orphaned`](crate::Snapshot::orphaned): they are kept, and listed only on request.
    ///
    /// This happens with the first snapshot after the resumption. It is written first, as the session's new tip, and
    /// records that the other snapshots are yet to be marked. So nothing changes if the turn fails, and whenever the
    /// process dies, a client that resumes the session finds the old tip or the new one. The next turn on the session,
    /// or the next listing of it, writes the missing marks.
    ///
    /// With [`ContentAddressed`](crate::SnapshotIds::ContentAddressed) ids a turn may reach a state that is already
    /// stored. Then the existing snapshot becomes the tip: the snapshots that lead to it are kept, even if they were
    /// orphaned, and all others become orphaned. Later snapshots continue its numbering.
    ///
    /// Resuming an orphaned snapshot recovers it and the snapshots that lead to it, and orphans those that had replaced
    /// them.
    Linear,
}
