//! Clearing outputs of tools that the model no longer needs.

use serde_json::Value;

use super::view::View;
use crate::{Feature, Message, MessageStats, Part, PartKind, ToolResponse};

/// The placeholder for an output that was cleared.
const CLEARED: &str = "[the output was removed to save room; call the tool again if you need it]";

/// Returns the number of rounds whose outputs are cleared, of `rounds` in all.
///
/// It grows in steps of `kept`, so between `kept` and twice as many rounds keep their outputs, and the
/// beginning of the requests changes only at every step.
fn cleared_rounds(rounds: usize, kept: usize) -> usize {
    let kept = kept.max(1);
    rounds.saturating_sub(kept) / kept * kept
}

/// Returns the indices from `start` on of the messages whose outputs are to be cleared.
pub(super) fn cleared(view: &View<'_>, start: usize, kept: usize) -> Vec<usize> {
    let rounds = |end| {
        view.messages
            .stats_before(end)
            .messages_with(Feature::ToolResponse) as usize
    };
    let last = cleared_rounds(rounds(view.len()), kept);
    let mut indices = Vec::new();
    let mut next = start;
    for _ in rounds(start)..last {
        let Some(index) = view.messages.next_with(Feature::ToolResponse, next) else {
            break;
        };
        indices.push(index);
        next = index + 1;
    }
    indices
}

/// Returns the message with a short text in place of each longer output.
pub(super) fn without_outputs(message: &Message) -> Message {
    let content: Vec<Part> = message.content().iter().map(without_output).collect();
    message.clone().with_content(content)
}

fn without_output(part: &Part) -> Part {
    let PartKind::ToolResponse(response) = part.kind() else {
        return part.clone();
    };
    let is_short = response.content.is_empty()
        && response.output.as_ref().map_or(0, MessageStats::bytes_of_json) <= CLEARED.len() as u64;
    if is_short {
        return part.clone();
    }
    let cleared = ToolResponse {
        output: Some(Value::from(CLEARED)),
        content: Vec::new(),
        ..ToolResponse::clone(response)
    };
    part.clone().with_kind(PartKind::ToolResponse(Box::new(cleared)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_cleared_in_steps_and_the_last_rounds_keep_theirs() {
        let cleared: Vec<usize> = (0..10).map(|rounds| cleared_rounds(rounds, 3)).collect();

        assert_eq!(cleared, [0, 0, 0, 0, 0, 0, 3, 3, 3, 6]);
        assert_eq!(cleared_rounds(5, 1), 4);
        assert_eq!(cleared_rounds(5, 0), 4);
    }
}
