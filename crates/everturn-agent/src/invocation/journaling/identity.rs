//! Identities of turns, model calls and tool calls that are equal on every attempt.

use std::hash::Hasher as _;
use std::sync::{Arc, LazyLock};

use everturn_ai::{EffectId, Message, ModelEffect, Part, Role, ToolRequest};
use everturn_core::hex;
use fnv::FnvHasher;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::store::JournalKey;
use crate::{AgentInput, SessionId, SnapshotId};

/// A turn's key, which is made when the turn has its first effect: the digest of a long input costs, and many
/// turns have none.
pub(crate) type TurnKey = Arc<LazyLock<JournalKey, Box<dyn FnOnce() -> JournalKey + Send>>>;

/// Names the journal of turns that continue the snapshot `base`, in a conversation of that length. `own`
/// distinguishes it from concurrent turns.
pub(crate) fn journal_key(
    session: &SessionId,
    base: Option<&SnapshotId>,
    length: usize,
    own: Option<&SnapshotId>,
) -> JournalKey {
    JournalKey::new(session.clone(), digest(&("journal", base, length, own)))
}

/// Names a turn that continues the snapshot `base`, in a conversation of that length. `own` distinguishes it
/// from identical concurrent turns.
///
/// The length represents the number of turns since `base`: every turn adds to the conversation and, unlike a
/// counter, the length is the same for every worker that continues from the same state.
pub(crate) fn turn_key(
    session: &SessionId,
    base: Option<&SnapshotId>,
    length: usize,
    input: &AgentInput,
    own: Option<&SnapshotId>,
) -> JournalKey {
    // Whether the client stays is not part of its request.
    let asked = (&input.message, &input.answers);
    let digest = if input.earlier.is_empty() {
        digest(&(base, length, asked, own))
    } else {
        digest(&(base, length, asked, own, &input.earlier))
    };
    JournalKey::new(session.clone(), digest)
}

/// Returns what a snapshot records of the call that its turn answers: equal for every repetition of the call.
///
/// Every request has a key, so this is made for every turn, with a hash that costs little and is the same in
/// all versions. A caller that makes two keys collide loses one of these calls.
pub(crate) fn call_mark(key: &str, input: &AgentInput) -> String {
    let mut mark = FnvHasher::default();
    let mut add = |bytes: &[u8]| {
        mark.write(bytes);
        // No text has this byte.
        mark.write_u8(0xff);
    };
    add(key.as_bytes());
    let messages = input.earlier.iter().chain(&input.message);
    for part in messages.flat_map(Message::content) {
        match part.as_text() {
            Some(text) => add(text.as_bytes()),
            None => add(&json_of(part)),
        }
    }
    if let Some(answers) = &input.answers {
        add(&json_of(answers));
    }
    format!("{:016x}", mark.finish())
}

/// Returns the identity of the `occurrence`-th effect of a turn that has this fingerprint.
pub(super) fn effect_id(key: &JournalKey, fingerprint: &str, occurrence: u64) -> EffectId {
    identity(key, fingerprint, occurrence).into()
}

/// Returns the identity of the `occurrence`-th of equal model calls of a turn. It is made when it is needed:
/// few calls request tools, and their texts may be long.
pub(super) fn model_effect_id(key: &TurnKey, asked: &Arc<AskedModel>, occurrence: u64) -> EffectId {
    let (key, asked) = (TurnKey::clone(key), Arc::clone(asked));
    EffectId::when_needed(move || identity(&key, &asked.fingerprint(), occurrence))
}

fn identity(key: &JournalKey, fingerprint: &str, occurrence: u64) -> String {
    half(digest(&(key.session(), key.turn(), fingerprint, occurrence)))
}

/// Returns the identity of an approved call: the same in every turn that resumes the conversation at its
/// question.
pub(super) fn approved_effect_id(question: &str, call: &str) -> EffectId {
    half(digest(&("question", question, call))).into()
}

/// Shortens a digest to a key: half of the hash is still unique, and fits where services limit the length of
/// a key.
fn half(mut digest: String) -> String {
    digest.truncate(32);
    digest
}

/// The identity of a model call across attempts: the model, the length of the conversation and its last
/// message.
///
/// Earlier messages are left out: a prompt may contain the time, and that must not make a paid reply
/// unusable.
pub(super) struct AskedModel {
    pub(super) model: String,
    pub(super) length: usize,
    pub(super) last: Option<Message>,
}

impl AskedModel {
    pub(super) fn fingerprint(&self) -> String {
        digest(&("model", &self.model, self.length, self.last_message()))
    }

    fn last_message(&self) -> Option<(Role, &[Part])> {
        let last = self.last.as_ref()?;
        Some((last.role(), last.content()))
    }
}

impl From<&ModelEffect<'_>> for AskedModel {
    fn from(effect: &ModelEffect<'_>) -> Self {
        let messages = &effect.request.messages;
        Self {
            model: effect.model.to_owned(),
            length: messages.len(),
            last: messages.last().cloned(),
        }
    }
}

/// Whether the fingerprints are equal.
impl PartialEq for AskedModel {
    fn eq(&self, other: &Self) -> bool {
        (self.length, &self.model, self.last_message()) == (other.length, &other.model, other.last_message())
    }
}

/// Returns the fingerprint of a tool call: the reply that requests it, the position in it, and the tool with
/// its input.
pub(super) fn call_fingerprint(reply: Option<&EffectId>, position: usize, call: &str) -> String {
    match reply {
        Some(reply) => digest(&("call", reply, position, call)),
        None => digest(&("restart", call)),
    }
}

/// Returns the digest of a tool and its input.
pub(super) fn call_of(request: &ToolRequest) -> String {
    digest(&(&request.name, &request.input))
}

/// Returns the fingerprint of an effect of a turn's own.
pub(super) fn effect_fingerprint(name: &str) -> String {
    digest(&("effect", name))
}

fn digest(what: &impl Serialize) -> String {
    hex(&Sha256::digest(json_of(what)))
}

fn json_of(what: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(what).expect("ids and messages are plain data")
}
