//! What makes a turn, a model call and a tool call the same on every attempt.

use everturn_ai::{EffectId, ModelEffect, ToolRequest};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::content_id::hex;
use crate::store::JournalKey;
use crate::{AgentInput, SessionId, SnapshotId};

/// The journal of a turn that goes on from `base`, in a conversation of that length. `own` tells it from turns that look
/// the same and run beside it.
///
/// The length stands for the number of turns since `base`: every turn adds to the conversation, and unlike a counter the
/// length is the same for whoever goes on from the same state.
pub(crate) fn turn_key(
    session: &SessionId,
    base: Option<&SnapshotId>,
    length: usize,
    input: &AgentInput,
    own: Option<&SnapshotId>,
) -> JournalKey {
    // Whether the client stays is not part of what it asks for.
    let asked = (&input.message, &input.resume);
    JournalKey::new(session.clone(), digest(&(base, length, asked, own)))
}

/// The identity of the `occurrence`-th effect that looks like this in a turn.
pub(super) fn effect_id(key: &JournalKey, look: &str, occurrence: u64) -> EffectId {
    let mut id = digest(&(key.session(), key.turn(), look, occurrence));
    // Half of it is as unlikely to be met twice, and fits where services limit the length of a key.
    id.truncate(32);
    EffectId::from(id)
}

/// How a model call looks: who is asked, and at which point of which conversation.
///
/// Earlier messages are left out: a prompt may tell the time, and a reply that was paid for is not worth less for it.
pub(super) fn model_look(effect: &ModelEffect<'_>) -> String {
    let messages = &effect.request.messages;
    let last = messages.last().map(|last| (last.role(), last.content()));
    digest(&("model", effect.model, messages.len(), last))
}

/// How a tool call looks: the reply that asks for it, where in it, and what is called with what.
pub(super) fn call_look(reply: Option<&EffectId>, position: usize, call: &str) -> String {
    match reply {
        Some(reply) => digest(&("call", reply, position, call)),
        None => digest(&("restart", call)),
    }
}

/// What is called with what.
pub(super) fn call_of(request: &ToolRequest) -> String {
    let input = request.input.clone().unwrap_or_default();
    digest(&json!([request.name, input]))
}

/// How an effect of a turn's own looks.
pub(super) fn own_look(name: &str) -> String {
    digest(&("effect", name))
}

fn digest(what: &impl Serialize) -> String {
    let text = serde_json::to_vec(what).expect("ids and messages are plain data");
    hex(&Sha256::digest(&text))
}
