//! The steps of a program.

/// One operation on the histories in a store. Sessions and snapshots are picked by number from all ever
/// created, including deleted ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Continues a session at its tip, or starts it.
    Turn {
        /// The number of the session.
        session: usize,
        /// The text of the user.
        text: u8,
    },
    /// Continues from a snapshot: a branch, if another snapshot follows it.
    Resume {
        /// The number of the snapshot.
        snapshot: usize,
        /// The text of the user.
        text: u8,
    },
    /// Continues from two snapshots at the same time: the second turn runs during the first. If both continue
    /// a snapshot without a successor, only one turn succeeds.
    Overlap {
        /// The snapshot of the longer turn.
        snapshot: usize,
        /// The snapshot of the turn that runs during the longer one.
        beside: usize,
        /// The text of the user in both turns.
        text: u8,
    },
    /// Rewinds to a snapshot and continues from it, superseding the snapshots after it.
    Rewind {
        /// The number of the snapshot.
        snapshot: usize,
        /// The text of the user.
        text: u8,
    },
    /// Writes the snapshot of a running background run.
    AddPending {
        /// The number of the session.
        session: usize,
    },
    /// Forks at a snapshot.
    Fork {
        /// The number of the snapshot.
        snapshot: usize,
    },
    /// Copies a session.
    Copy {
        /// The number of the session.
        session: usize,
    },
    /// Adds a label to a snapshot, or removes it.
    Label {
        /// The number of the snapshot.
        snapshot: usize,
        /// The number of the label.
        label: u8,
        /// Whether the label is removed.
        off: bool,
    },
    /// Writes a note.
    Annotate {
        /// The number of the snapshot.
        snapshot: usize,
        /// The number of the note.
        note: u8,
    },
    /// Deletes a snapshot.
    DeleteSnapshot {
        /// The number of the snapshot.
        snapshot: usize,
    },
    /// Deletes a snapshot and all its descendants.
    DeleteBranch {
        /// The number of the snapshot.
        snapshot: usize,
    },
    /// Deletes a session.
    DeleteSession {
        /// The number of the session.
        session: usize,
    },
    /// Applies rules of retention to all sessions.
    Retain {
        /// The age in steps above which snapshots are deleted, if that is a rule.
        age: Option<u8>,
        /// The number of snapshots that a session keeps, if that is a rule.
        count: Option<u8>,
        /// Whether labelled snapshots are deleted too.
        even_labelled: bool,
    },
    /// Exports a session and imports it again.
    Export {
        /// The number of the session.
        session: usize,
        /// How the session is imported.
        back: Return,
    },
}

/// How an exported session is imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// Under another name.
    Renamed,
    /// After the original was deleted.
    AfterDeletion,
    /// In place of the original, which continued meanwhile.
    Replacing,
    /// Refused, because the original still exists.
    Refused,
}

impl Step {
    /// Returns the step for a random number. Turns are the most frequent, so that the other steps have
    /// snapshots to work on.
    pub fn from_random(number: u64) -> Self {
        let [kind, detail, flags, _, pick, second, ..] = number.to_le_bytes();
        let (snapshot, session) = (usize::from(pick), usize::from(pick));
        let rule = |value: u8, given: u8| (flags & given != 0).then_some(value);
        match kind % 32 {
            0..=9 => Self::Turn {
                session: session % 3,
                // Only a few texts, so that some are repeated.
                text: detail % 64,
            },
            10 | 11 => Self::Resume {
                snapshot,
                text: detail % 16,
            },
            12 => Self::Overlap {
                snapshot,
                beside: usize::from(second),
                text: detail % 16,
            },
            13..=15 => Self::Rewind {
                snapshot,
                text: detail % 16,
            },
            16 => Self::AddPending { session },
            17 | 18 => Self::Fork { snapshot },
            19 => Self::Copy { session },
            20 | 21 => Self::Label {
                snapshot,
                label: detail % 3,
                off: flags & 1 != 0,
            },
            22 => Self::Annotate {
                snapshot,
                note: detail % 3,
            },
            23 | 24 => Self::DeleteSnapshot { snapshot },
            25 => Self::DeleteBranch { snapshot },
            26 => Self::DeleteSession { session },
            27 | 28 => Self::Retain {
                age: rule(detail % 24, 1),
                count: rule(detail % 5, 2),
                even_labelled: flags & 4 != 0,
            },
            _ => Self::Export {
                session,
                back: match flags % 4 {
                    0 => Return::Renamed,
                    1 => Return::AfterDeletion,
                    2 => Return::Replacing,
                    _ => Return::Refused,
                },
            },
        }
    }
}
