//! Calls of another turn that was cut short: its process died or it failed, and the conversation continued
//! with another input. Pure: no store, no clock.

use std::collections::HashMap;

use everturn_ai::metadata::is_outcome_unknown;
use everturn_ai::{EffectId, Message, ModelResponse, Part, ToolOutcome, ToolRecord, ToolRequest};

use super::entry::Entry;
use super::identity::{call_fingerprint, call_of, effect_id};
use super::known_effects::Met;
use crate::session::Change;
use crate::store::JournalKey;

/// On a tool request: `true` if an earlier turn made the call and was cut short.
const CUT_SHORT: &str = "cutShort";

/// The calls of turns that were cut short, whose effects the conversation does not have yet.
#[derive(Default)]
pub(super) struct CutShortCalls {
    requests: HashMap<EffectId, ToolRequest>,
    /// In the order in which they began.
    calls: Vec<CutShort>,
    /// The reply that requests these calls in this turn.
    reply: Option<EffectId>,
}

struct CutShort {
    id: EffectId,
    /// The turn that made it.
    turn: JournalKey,
    /// The digest of the tool and its input.
    call: String,
    /// Whether it must not be made twice.
    has_begun: bool,
    /// Whether it is listed while its outcome is unknown.
    is_listed: bool,
    /// Whether a reply has requested it.
    is_requested: bool,
    outcome: Option<ToolOutcome>,
    changes: Vec<Change>,
}

impl CutShort {
    /// Returns whether it must become part of the conversation: it must not be made twice, or it changed the
    /// session.
    fn is_due(&self) -> bool {
        self.has_begun || !self.changes.is_empty()
    }
}

impl CutShortCalls {
    /// Learns an entry of another turn.
    pub(super) fn learn(&mut self, entry: Entry, turn: &JournalKey) {
        match entry {
            Entry::Replied { effect, response } => {
                let requests = response.message.iter().flat_map(Message::tool_requests);
                for (position, request) in requests.enumerate() {
                    let fingerprint = call_fingerprint(Some(&effect), position, &call_of(request));
                    self.requests
                        .insert(effect_id(turn, &fingerprint, 0), request.clone());
                }
            }
            Entry::Started { effect, call, begun } => {
                let known = self.call(effect.clone(), call, turn);
                known.has_begun = true;
                known.is_listed = begun.is_some();
                if let Some(request) = begun.and_then(|begun| begun.request) {
                    self.requests.insert(effect, request);
                }
            }
            Entry::Ended {
                effect,
                call,
                outcome,
                changes,
                ..
            } => {
                let has_asked =
                    matches!(&*outcome, ToolOutcome::Interrupted(data) if !is_outcome_unknown(data));
                if has_asked {
                    return self.forget(&effect);
                }
                let known = self.call(effect, call, turn);
                known.outcome = Some(*outcome);
                known.changes = changes;
            }
            Entry::Failed { effect } => self.forget(&effect),
            Entry::TakenUp | Entry::Abandoned | Entry::Adopted { .. } => {}
        }
    }

    /// Learns an entry whose effect is part of the snapshot that this turn continues.
    pub(super) fn learn_past(&mut self, entry: Entry, turn: &JournalKey) {
        match entry {
            Entry::Ended { effect, .. } => self.forget(&effect),
            entry => self.learn(entry, turn),
        }
    }

    fn call(&mut self, id: EffectId, call: String, turn: &JournalKey) -> &mut CutShort {
        let place = self.calls.iter().position(|known| known.id == id);
        let place = place.unwrap_or_else(|| {
            self.calls.push(CutShort {
                id,
                turn: turn.clone(),
                call,
                has_begun: false,
                is_listed: false,
                is_requested: false,
                outcome: None,
                changes: Vec::new(),
            });
            self.calls.len() - 1
        });
        &mut self.calls[place]
    }

    /// Takes over calls of a turn that began elsewhere in the session: those of them that are requested once
    /// more.
    pub(super) fn adopt(&mut self, elsewhere: Self, ids: &[EffectId]) {
        self.requests.extend(elsewhere.requests);
        let calls = elsewhere.calls.into_iter();
        self.calls.extend(calls.filter(|known| ids.contains(&known.id)));
    }

    /// Returns whether this turn still has to take over the call.
    pub(super) fn holds(&self, id: &EffectId) -> bool {
        self.calls.iter().any(|known| known.id == *id)
    }

    /// Forgets a call that had no effect, or whose effect the conversation has.
    pub(super) fn forget(&mut self, id: &EffectId) {
        self.calls.retain(|known| known.id != *id);
    }

    /// Takes a call to which this turn has come by itself: the turn that made it, its outcome if it ended,
    /// and its changes of the session.
    pub(super) fn take(&mut self, id: &EffectId) -> Option<(JournalKey, Option<ToolOutcome>, Vec<Change>)> {
        let place = self.calls.iter().position(|known| known.id == *id)?;
        let known = self.calls.remove(place);
        Some((known.turn, known.outcome, known.changes))
    }

    /// Returns a reply that requests the calls once more, at the next model call, so their outcomes become
    /// part of the conversation. `conversation` is searched for calls that a person restarted. Other effects
    /// cannot be requested.
    pub(super) fn reply(
        &mut self,
        asked: &EffectId,
        conversation: impl FnOnce() -> Vec<ToolRequest>,
    ) -> Option<ModelResponse> {
        if self.calls.is_empty() {
            return None;
        }
        let mut conversation = Some(conversation);
        let mut requests = None;
        let mut parts = Vec::new();
        for known in &mut self.calls {
            if !known.is_due() || known.is_requested {
                continue;
            }
            let request = self.requests.get(&known.id).cloned().or_else(|| {
                let requests = requests.get_or_insert_with(|| conversation.take().map(|read| read()));
                let mut latest_first = requests.iter().flatten().rev();
                latest_first
                    .find(|request| call_of(request) == known.call)
                    .cloned()
            });
            let Some(request) = request else { continue };
            known.is_requested = true;
            // Its own reference, because another message may use the model's.
            let part = Part::from(request.with_reference(known.id.as_str()));
            parts.push(part.with_metadata_entry(CUT_SHORT, true));
        }
        if parts.is_empty() {
            return None;
        }
        self.reply = Some(asked.clone());
        Some(ModelResponse::new(Message::model(parts)))
    }

    /// Returns the call that the reply asked for, and its record.
    pub(super) fn meet(&mut self, asked_by: Option<&EffectId>, request: &ToolRequest) -> Option<Met> {
        if asked_by.is_none() || asked_by != self.reply.as_ref() {
            return None;
        }
        let id = request.reference.as_deref()?;
        let place = self.calls.iter().position(|known| known.id.as_str() == id)?;
        let CutShort {
            id, outcome, changes, ..
        } = self.calls.remove(place);
        Some(Met {
            id,
            record: outcome.map_or(ToolRecord::CutShort, ToolRecord::Ended),
            changes,
        })
    }

    /// Returns the outcome of an effect of one of the calls, by the digest of its name.
    pub(super) fn take_ended(&mut self, call: &str) -> Option<(ToolOutcome, Vec<Change>)> {
        let has_ended = |known: &CutShort| known.call == call && known.outcome.is_some();
        let place = self.calls.iter().position(has_ended)?;
        let ended = self.calls.remove(place);
        Some((ended.outcome?, ended.changes))
    }

    /// Returns whether there are calls whose outcomes this turn still has to take over.
    pub(super) fn is_due(&self) -> bool {
        self.calls.iter().any(CutShort::is_due)
    }

    /// Returns whether there are calls whose outcome is unknown.
    pub(super) fn holds_unknown(&self) -> bool {
        let is_known = |known: &CutShort| matches!(known.outcome, Some(ToolOutcome::Finished(_)));
        self.calls.iter().any(|known| known.is_listed && !is_known(known))
    }

    /// Returns whether there are calls that must not be made twice.
    pub(super) fn holds_calls_not_to_repeat(&self) -> bool {
        self.calls.iter().any(|known| known.has_begun)
    }
}
