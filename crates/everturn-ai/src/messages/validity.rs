//! Repairing a request whose conversation is invalid.
//!
//! This is the last step before a model call, after all middleware and the window. It changes only what this
//! model receives; stored messages are never rewritten.

use super::{Messages, Segment};
use crate::history::Groups;
use crate::{Message, Role};

impl Messages {
    /// Returns valid messages in place of these; `None` if these are valid. See
    /// [`repaired`](crate::history::repaired).
    ///
    /// The part of a shared history that was found valid is not examined again.
    pub fn repaired(&self) -> Option<Self> {
        let mut groups = Groups::default();
        let mut offset = 0;
        for segment in self.segments() {
            let (history, from) = match segment {
                Segment::Run(run) => {
                    for message in run {
                        groups.take(message);
                    }
                    offset += run.len();
                    continue;
                }
                Segment::History { history, from } => (history, from),
            };
            let known = history.valid_before();
            // The segment may begin in the middle of a group, which is examined with the messages before the
            // segment.
            let begun: Vec<&Message> = history
                .since(from)
                .take_while(|message| message.role() != Role::Model)
                .collect();
            let first_group = from + begun.len();
            let is_known = known > first_group;
            for message in &begun {
                groups.take(message);
            }
            if is_known {
                groups.skip(known - first_group);
            }
            let rest = if is_known { known } else { first_group };
            history.since(rest).for_each(|message| groups.take(message));
            // An answer to a request before the segment is valid here, and not in the history alone.
            let answers = |message: &&Message| {
                message
                    .content()
                    .iter()
                    .any(|part| part.as_tool_response().is_some())
            };
            if is_known || from == 0 && !begun.iter().any(answers) {
                let valid_before = (groups.valid_before() + from).checked_sub(offset);
                history.found_valid_before(valid_before.unwrap_or_default());
            }
            offset += history.len() - from;
        }
        let repairs = groups.finish();
        if repairs.is_empty() {
            return None;
        }
        let mut repaired = Self::new();
        let mut next = 0;
        for repair in repairs {
            repaired.append(self.slice(next..repair.range.start));
            repaired.extend(repair.replacement);
            next = repair.range.end;
        }
        repaired.append(self.slice(next..self.len()));
        Some(repaired)
    }
}
