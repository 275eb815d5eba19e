//! Coalescing of text chunks for slow readers.

use everturn_agent::AgentStreamChunk;
use everturn_ai::{ModelResponseChunk, Part, PartKind};

/// Joins neighbouring chunks that only add text, or only reasoning, to one message. The order is unchanged.
pub(super) fn coalesce(chunks: Vec<AgentStreamChunk>) -> Vec<AgentStreamChunk> {
    let mut all: Vec<AgentStreamChunk> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        match all.last_mut() {
            Some(last) if continues(last, &chunk) => append(last, chunk),
            _ => all.push(chunk),
        }
    }
    all
}

/// Returns whether a chunk extends the text of the one before it.
fn continues(before: &AgentStreamChunk, chunk: &AgentStreamChunk) -> bool {
    let (Some((of, kind)), Some((more, other))) = (text_part(before), text_part(chunk)) else {
        return false;
    };
    before.position == chunk.position
        && (of.role, of.index) == (more.role, more.index)
        && std::mem::discriminant(kind) == std::mem::discriminant(other)
}

/// Returns the model's chunk and its only part, if the chunk contains only text or only reasoning.
fn text_part(chunk: &AgentStreamChunk) -> Option<(&ModelResponseChunk, &PartKind)> {
    // Every field is named, so that a new field fails to compile here.
    let AgentStreamChunk {
        model_chunk: Some(model),
        position: _,
        turn_start: None,
        custom_patch: None,
        artifact: None,
        status: None,
        snapshot_created: None,
        taken_over: false,
        turn_end: None,
    } = chunk
    else {
        return None;
    };
    let ModelResponseChunk {
        content,
        custom: None,
        aggregated: false,
        ..
    } = model
    else {
        return None;
    };
    match content.as_slice() {
        [part] if part.metadata().is_none() => {
            let is_text = matches!(part.kind(), PartKind::Text(_) | PartKind::Reasoning(_));
            is_text.then(|| (model, part.kind()))
        }
        _ => None,
    }
}

fn append(chunk: &mut AgentStreamChunk, more: AgentStreamChunk) {
    let more = more.model_chunk.and_then(|mut model| model.content.pop());
    let Some(model) = &mut chunk.model_chunk else {
        return;
    };
    let kinds = (model.content.pop(), more);
    let kinds = (kinds.0.map(Part::into_kind), kinds.1.map(Part::into_kind));
    let kind = match kinds {
        (Some(PartKind::Text(text)), Some(PartKind::Text(more))) => PartKind::Text(text + &more),
        (Some(PartKind::Reasoning(text)), Some(PartKind::Reasoning(more))) => {
            PartKind::Reasoning(text + &more)
        }
        _ => return,
    };
    model.content.push(Part::new(kind));
}

#[cfg(test)]
mod tests {
    use everturn_agent::{AgentFinishReason, TurnEnd};
    use everturn_ai::{Role, ToolRequest};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            4 => "[a-zß]{0,3}".prop_map(Part::text),
            2 => "[a-z]{0,2}".prop_map(Part::reasoning),
            1 => Just(Part::text("signed").with_metadata_entry("signature", "s")),
            1 => Just(Part::tool_request(ToolRequest::new("look", json!({})))),
        ]
    }

    fn chunk() -> impl Strategy<Value = AgentStreamChunk> {
        let content = prop::collection::vec(part(), 1..3);
        let model = (content, 0..2_usize, prop::option::of(0..2_u32), any::<bool>());
        prop_oneof![
            8 => model.prop_map(|(content, place, index, has_role)| {
                let model = ModelResponseChunk {
                    role: has_role.then_some(Role::Model),
                    index,
                    content,
                    ..ModelResponseChunk::default()
                };
                AgentStreamChunk::model(model).at(Some(place))
            }),
            1 => Just(AgentStreamChunk::status(json!("busy"))),
            1 => Just(AgentStreamChunk::turn_end(TurnEnd {
                finish_reason: Some(AgentFinishReason::Stop),
                ..TurnEnd::default()
            })),
        ]
    }

    /// The content of a stream: each letter of a text, and every other part as a whole.
    fn pieces(chunks: &[AgentStreamChunk]) -> Vec<String> {
        let mut pieces = Vec::new();
        for chunk in chunks {
            let Some(model) = &chunk.model_chunk else {
                pieces.push(format!("{chunk:?}"));
                continue;
            };
            for part in &model.content {
                let of = format!("{:?} {:?} {:?}", chunk.position, model.role, model.index);
                match part.kind() {
                    PartKind::Text(text) if part.metadata().is_none() => {
                        pieces.extend(text.chars().map(|letter| format!("{of} text {letter}")));
                    }
                    PartKind::Reasoning(text) => {
                        pieces.extend(text.chars().map(|letter| format!("{of} reasoning {letter}")));
                    }
                    _ => pieces.push(format!("{of} {part:?}")),
                }
            }
        }
        pieces
    }

    proptest! {
        #[test]
        fn coalescing_keeps_the_content(chunks in prop::collection::vec(chunk(), 0..40)) {
            let before = pieces(&chunks);

            let joined = coalesce(chunks);

            prop_assert_eq!(pieces(&joined), before);
            prop_assert!(joined.windows(2).all(|pair| !continues(&pair[0], &pair[1])));
        }
    }

    #[test]
    fn texts_of_one_message_become_one() {
        let say = |text: &str| AgentStreamChunk::model(text.into()).at(Some(1));
        let status = AgentStreamChunk::status(json!("busy"));

        let all = coalesce(vec![say("le"), say("eks"), status.clone(), say("!")]);

        assert_eq!(all, [say("leeks"), status, say("!")]);
    }
}
