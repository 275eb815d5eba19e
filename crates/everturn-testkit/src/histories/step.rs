//! What can be done to histories.

/// One thing done to the histories in a store. Sessions and rows are picked by number from all there ever were, so that
/// what is gone is picked as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Goes on where a session is, or begins it.
    Turn {
        /// Which session.
        session: usize,
        /// What is said.
        text: u8,
    },
    /// Goes on from a row: a branch, unless it is the latest.
    Resume {
        /// Which row.
        row: usize,
        /// What is said.
        text: u8,
    },
    /// Goes back to a row and on from there, leaving behind what came after it.
    Rewind {
        /// Which row.
        row: usize,
        /// What is said.
        text: u8,
    },
    /// Leaves the row of a background run that is under way.
    Pend {
        /// In which session.
        session: usize,
    },
    /// Forks at a row.
    Fork {
        /// Which row.
        row: usize,
    },
    /// Copies a session.
    Copy {
        /// Which session.
        session: usize,
    },
    /// Puts a label on a row, or takes it off.
    Label {
        /// Which row.
        row: usize,
        /// Which label.
        label: u8,
        /// Whether to take it off.
        off: bool,
    },
    /// Writes a note.
    Annotate {
        /// Which row.
        row: usize,
        /// Which note.
        note: u8,
    },
    /// Deletes a row.
    DeleteSnapshot {
        /// Which row.
        row: usize,
    },
    /// Deletes a row and all that came of it.
    DeleteBranch {
        /// Which row.
        row: usize,
    },
    /// Deletes a session.
    DeleteSession {
        /// Which session.
        session: usize,
    },
    /// Applies rules of retention to everything.
    Retain {
        /// How many steps ago is too old, if that is a rule.
        age: Option<u8>,
        /// How many rows of a session are enough, if that is a rule.
        count: Option<u8>,
        /// Whether labels protect no row.
        even_labelled: bool,
    },
    /// Exports a session and imports it again.
    Export {
        /// Which session.
        session: usize,
        /// In what way it comes back.
        back: Return,
    },
}

/// In what way an exported session comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// Under another name.
    Renamed,
    /// After the original was deleted.
    AfterDeletion,
    /// In place of the original, which went on meanwhile.
    Replacing,
    /// Not at all, because the original is still there.
    Refused,
}

impl Step {
    /// The step that a random number stands for. Turns are the most frequent, so that there is something to work with.
    pub fn from_random(number: u64) -> Self {
        let [kind, detail, flags, _, pick, ..] = number.to_le_bytes();
        let (row, session) = (usize::from(pick), usize::from(pick));
        let rule = |value: u8, given: u8| (flags & given != 0).then_some(value);
        match kind % 32 {
            0..=9 => Self::Turn {
                session: session % 3,
                // Few enough that the same is said again.
                text: detail % 64,
            },
            10..=12 => Self::Resume {
                row,
                text: detail % 16,
            },
            13..=15 => Self::Rewind {
                row,
                text: detail % 16,
            },
            16 => Self::Pend { session },
            17 | 18 => Self::Fork { row },
            19 => Self::Copy { session },
            20 | 21 => Self::Label {
                row,
                label: detail % 3,
                off: flags & 1 != 0,
            },
            22 => Self::Annotate {
                row,
                note: detail % 3,
            },
            23 | 24 => Self::DeleteSnapshot { row },
            25 => Self::DeleteBranch { row },
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
