//! The effects of a turn that earlier attempts journaled, and those that this attempt has reached. Pure: no
//! store, no clock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use everturn_ai::{EffectId, Message, ModelResponse, Replay, ToolOutcome, ToolRecord, ToolRequest};

use super::cut_short::CutShortCalls;
use super::entry::Entry;
use super::identity::{
    AskedModel, TurnKey, approved_effect_id, call_fingerprint, call_of, effect_id, model_effect_id,
};
use crate::session::Change;
use crate::store::JournalKey;

/// The effects of one turn, as far as they are known.
pub(super) struct KnownEffects {
    key: TurnKey,
    replies: HashMap<EffectId, ModelResponse>,
    calls: HashMap<EffectId, Known>,
    /// Every requested call, in order, by the digest of its tool and input.
    asked: HashMap<String, Vec<EffectId>>,
    /// The effects that this attempt has reached.
    met: HashSet<EffectId>,
    /// The number of calls that ended.
    endings: usize,
    /// The model calls that this attempt has met.
    models: Vec<Arc<AskedModel>>,
    /// How often this attempt has met each fingerprint of other effects.
    occurrences: HashMap<String, u64>,
    /// The calls of other turns, which were cut short.
    pub(super) cut_short: CutShortCalls,
}

/// One call, as far as it is known.
#[derive(Default)]
struct Known {
    must_not_repeat: bool,
    /// The number of the result among all results, and the result.
    ended: Option<(usize, ToolOutcome)>,
    reply: Option<EffectId>,
    /// The call's changes of the session, until they are made again.
    changes: Vec<Change>,
}

/// A call that is about to be made, and what earlier attempts recorded of it.
pub(super) struct Met {
    pub(super) id: EffectId,
    pub(super) record: ToolRecord,
    /// The changes of the session to make in place of the call.
    pub(super) changes: Vec<Change>,
}

impl KnownEffects {
    pub(super) fn new(key: TurnKey) -> Self {
        Self {
            key,
            replies: HashMap::new(),
            calls: HashMap::new(),
            asked: HashMap::new(),
            met: HashSet::new(),
            endings: 0,
            models: Vec::new(),
            occurrences: HashMap::new(),
            cut_short: CutShortCalls::default(),
        }
    }

    /// Learns an entry of another turn that was cut short.
    pub(super) fn learn_of_another(&mut self, entry: Entry, turn: &JournalKey, is_past: bool) {
        // Another turn may have made a call of this one, which had been cut short before.
        let is_of_this = match &entry {
            Entry::Ended { effect, .. } | Entry::Failed { effect } => self.calls.contains_key(effect),
            _ => false,
        };
        match (is_of_this, is_past) {
            (true, true) => self.learn_past(entry),
            (true, false) => self.learn(entry),
            (false, true) => self.cut_short.learn_past(entry, turn),
            (false, false) => self.cut_short.learn(entry, turn),
        }
    }

    /// Returns whether this attempt has reached every effect of earlier attempts.
    pub(super) fn is_replayed(&self) -> bool {
        let are_met = self.calls.keys().all(|call| self.met.contains(call));
        self.replies.is_empty() && are_met && !self.cut_short.is_due()
    }

    /// Learns an entry of an earlier attempt.
    pub(super) fn learn(&mut self, entry: Entry) {
        match entry {
            Entry::TakenUp | Entry::Adopted { .. } => {}
            Entry::Replied { effect, response } => {
                let requests = response.message.iter().flat_map(Message::tool_requests);
                for (position, request) in requests.enumerate() {
                    let call = call_of(request);
                    // The occurrence is 0: a position in a reply occurs once, unlike a call that the turn's
                    // own code may repeat.
                    let id = effect_id(&self.key, &call_fingerprint(Some(&effect), position, &call), 0);
                    note(&mut self.asked, call, id);
                }
                self.replies.insert(effect, *response);
            }
            Entry::Started { effect, call, .. } => {
                note(&mut self.asked, call, effect.clone());
                let known = self.calls.entry(effect).or_default();
                known.must_not_repeat = true;
                known.ended = None;
            }
            Entry::Ended {
                effect,
                call,
                reply,
                outcome,
                changes,
            } => {
                note(&mut self.asked, call, effect.clone());
                self.endings += 1;
                let known = self.calls.entry(effect).or_default();
                known.ended = Some((self.endings, *outcome));
                known.reply = reply;
                known.changes = changes;
            }
            Entry::Failed { effect } => {
                // The tool reported that nothing happened, so the call may be made again under the same
                // identity.
                self.calls.remove(&effect);
            }
            Entry::Abandoned => {
                // The next attempt must ask the model again, because these replies led to the dead end.
                self.replies.clear();
                self.calls.retain(|_, known| known.must_not_repeat);
            }
        }
    }

    /// Learns an entry whose effect is part of the snapshot that this attempt continues: the calls of a reply
    /// are answered, and their changes of the session are made.
    pub(super) fn learn_past(&mut self, entry: Entry) {
        match entry {
            Entry::Replied { effect, response } => {
                let requests = response.message.iter().flat_map(Message::tool_requests);
                for (position, request) in requests.enumerate() {
                    let fingerprint = call_fingerprint(Some(&effect), position, &call_of(request));
                    self.met.insert(effect_id(&self.key, &fingerprint, 0));
                }
            }
            Entry::Ended {
                effect,
                call,
                reply,
                outcome,
                ..
            } => {
                self.met.insert(effect.clone());
                self.cut_short.forget(&effect);
                self.learn(Entry::Ended {
                    effect,
                    call,
                    reply,
                    outcome,
                    // The snapshot already holds these changes; making them again would double them.
                    changes: Vec::new(),
                });
            }
            entry => self.learn(entry),
        }
    }

    /// Returns the identity of a model call, its reply if that is known, and the changes of the session by
    /// the calls that the reply asked for, in the order in which these ended.
    pub(super) fn meet_model(&mut self, asked: AskedModel) -> (EffectId, Option<ModelResponse>, Vec<Change>) {
        let id = self.next_model(asked);
        if self.replies.is_empty() {
            return (id, None, Vec::new());
        }
        // Moved out, not cloned: an attempt reaches an identity once.
        let Some(response) = self.replies.remove(&id) else {
            return (id, None, Vec::new());
        };
        let mut ended: Vec<_> = self
            .calls
            .values_mut()
            .filter(|known| known.reply.as_ref() == Some(&id))
            .filter_map(|known| {
                let (number, _) = known.ended.as_ref()?;
                Some((*number, std::mem::take(&mut known.changes)))
            })
            .collect();
        // Concurrent calls changed the session in the order in which they ended, which a replay has to
        // repeat.
        ended.sort_by_key(|(number, _)| *number);
        let changes = ended.into_iter().flat_map(|(_, changes)| changes).collect();
        (id, Some(response), changes)
    }

    /// Returns the identity of a call and its record.
    pub(super) fn meet_call(&mut self, fingerprint: &str, call: &str, replay: Replay) -> Met {
        let own = self.next(fingerprint);
        self.meet_call_as(own, call, replay)
    }

    /// Returns a call of a turn that was cut short, if the reply that requests those calls requests it.
    pub(super) fn meet_cut_short(
        &mut self,
        asked_by: Option<&EffectId>,
        request: &ToolRequest,
    ) -> Option<Met> {
        let met = self.cut_short.meet(asked_by, request)?;
        self.met.insert(met.id.clone());
        let known = self.calls.get_mut(&met.id);
        // An earlier attempt at this turn may have determined its outcome.
        Some(
            match known.and_then(|known| Some((known.ended.clone()?, std::mem::take(&mut known.changes)))) {
                Some(((_, outcome), changes)) => Met {
                    record: ToolRecord::Ended(outcome),
                    changes,
                    ..met
                },
                None => met,
            },
        )
    }

    /// Returns the identity of an approved call, which does not depend on the turn, and its record; and the
    /// turn that made the call after another answer, if that was cut short.
    pub(super) fn meet_approved(
        &mut self,
        question: &str,
        call: &str,
        replay: Replay,
    ) -> (Met, Option<JournalKey>) {
        let id = approved_effect_id(question, call);
        let cut_short = self.cut_short.take(&id);
        let met = self.meet_call_as(id, call, replay);
        let Some((turn, outcome, changes)) = cut_short.filter(|_| met.record == ToolRecord::Nothing) else {
            return (met, None);
        };
        let record = match outcome {
            Some(outcome) => ToolRecord::Ended(outcome),
            None if replay == Replay::Once => ToolRecord::Started,
            None => ToolRecord::Nothing,
        };
        let met = Met {
            record,
            changes,
            ..met
        };
        (met, Some(turn))
    }

    fn meet_call_as(&mut self, own: EffectId, call: &str, replay: Replay) -> Met {
        let id = match replay {
            Replay::Pure => {
                return Met {
                    id: own,
                    record: ToolRecord::Nothing,
                    changes: Vec::new(),
                };
            }
            Replay::Once | Replay::Keyed => self.begun_before(&own, call).unwrap_or(own),
            _ => own,
        };
        self.met.insert(id.clone());
        let (record, changes) = match self.calls.get_mut(&id) {
            Some(known) => match &known.ended {
                Some((_, outcome)) => (
                    ToolRecord::Ended(outcome.clone()),
                    std::mem::take(&mut known.changes),
                ),
                // The tool's declaration may have changed since then.
                None if replay == Replay::Once => (ToolRecord::Started, Vec::new()),
                None => (ToolRecord::Nothing, Vec::new()),
            },
            None => (ToolRecord::Nothing, Vec::new()),
        };
        Met { id, record, changes }
    }

    /// Returns another identity under which an earlier attempt made the same call, if this attempt has taken
    /// another path and does not reach that identity itself.
    fn begun_before(&self, own: &EffectId, call: &str) -> Option<EffectId> {
        let asked = self.asked.get(call)?;
        // An earlier attempt asked for it under this very identity, so the attempts have not diverged.
        if asked.contains(own) {
            return None;
        }
        asked.iter().find(|id| !self.met.contains(*id)).cloned()
    }

    fn next_model(&mut self, asked: AskedModel) -> EffectId {
        let asked = Arc::new(asked);
        let occurrence = self.models.iter().filter(|earlier| **earlier == asked).count();
        let id = model_effect_id(&self.key, &asked, occurrence as u64);
        self.models.push(asked);
        id
    }

    fn next(&mut self, fingerprint: &str) -> EffectId {
        let occurrence = self.occurrences.entry(fingerprint.to_owned()).or_default();
        let id = effect_id(&self.key, fingerprint, *occurrence);
        *occurrence += 1;
        id
    }

    /// Returns whether there are calls that must not be made twice.
    pub(super) fn holds_calls_not_to_repeat(&self) -> bool {
        self.calls.values().any(|known| known.must_not_repeat) || self.cut_short.holds_calls_not_to_repeat()
    }
}

fn note(asked: &mut HashMap<String, Vec<EffectId>>, call: String, id: EffectId) {
    let ids = asked.entry(call).or_default();
    if !ids.contains(&id) {
        ids.push(id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use everturn_ai::MultipartToolResponse;
    use serde_json::json;

    use super::*;

    fn effects(entries: impl IntoIterator<Item = Entry>) -> KnownEffects {
        let mut effects = new_effects();
        for entry in entries {
            effects.learn(entry);
        }
        effects
    }

    fn new_effects() -> KnownEffects {
        KnownEffects::new(turn())
    }

    fn turn() -> TurnKey {
        TurnKey::new(LazyLock::new(Box::new(key)))
    }

    fn key() -> JournalKey {
        JournalKey::new("s".into(), "t")
    }

    fn pay() -> ToolRequest {
        ToolRequest::new("pay", json!({"to": "ann"})).with_reference("1")
    }

    fn asked(model: &str) -> AskedModel {
        AskedModel {
            model: model.to_owned(),
            length: 0,
            last: None,
        }
    }

    fn reply(model: &str) -> (EffectId, Entry) {
        let id = model_effect_id(&turn(), &Arc::new(asked(model)), 0);
        let response = ModelResponse::new(Message::model(everturn_ai::Part::from(pay())));
        let entry = Entry::Replied {
            effect: id.clone(),
            response: Box::new(response),
        };
        (id, entry)
    }

    fn fingerprint(reply: &EffectId) -> String {
        call_fingerprint(Some(reply), 0, &call_of(&pay()))
    }

    fn started(id: &EffectId) -> Entry {
        Entry::Started {
            effect: id.clone(),
            call: call_of(&pay()),
            begun: None,
        }
    }

    fn finished(output: &str) -> ToolOutcome {
        ToolOutcome::Finished(MultipartToolResponse {
            output: Some(output.into()),
            ..MultipartToolResponse::default()
        })
    }

    fn ended(id: &EffectId, reply: &EffectId, output: &str) -> Entry {
        Entry::Ended {
            effect: id.clone(),
            call: call_of(&pay()),
            reply: Some(reply.clone()),
            outcome: Box::new(finished(output)),
            changes: Vec::new(),
        }
    }

    #[test]
    fn equal_calls_are_distinguished_by_their_number() {
        let mut effects = effects([]);

        let (first, second) = (effects.meet_model(asked("a")).0, effects.meet_model(asked("a")).0);

        assert_ne!(first, second);
        assert_eq!(first, effect_id(&key(), &asked("a").fingerprint(), 0));
    }

    #[test]
    fn a_reply_is_known_once() {
        let (id, entry) = reply("a");
        let mut effects = effects([entry]);

        assert!(effects.meet_model(asked("b")).1.is_none());
        let (met, known, _) = effects.meet_model(asked("a"));
        assert_eq!(met, id);
        assert!(known.is_some());
        assert!(effects.meet_model(asked("a")).1.is_none());
    }

    #[test]
    fn a_call_that_began_is_unknown_only_to_tools_that_must_not_run_twice() {
        let (reply_id, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&reply_id), 0);

        for (replay, record) in [
            (Replay::Once, ToolRecord::Started),
            (Replay::Keyed, ToolRecord::Nothing),
            (Replay::Idempotent, ToolRecord::Nothing),
            (Replay::Pure, ToolRecord::Nothing),
        ] {
            let mut effects = effects([entry.clone(), started(&id)]);
            let met = effects.meet_call(&fingerprint(&reply_id), &call_of(&pay()), replay);

            assert_eq!((met.id, met.record), (id.clone(), record), "{replay:?}");
        }
    }

    #[test]
    fn a_call_that_failed_by_itself_may_be_made_again() {
        let (reply_id, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&reply_id), 0);
        let mut effects = effects([entry, started(&id), Entry::Failed { effect: id.clone() }]);

        let met = effects.meet_call(&fingerprint(&reply_id), &call_of(&pay()), Replay::Once);

        assert_eq!((met.id, met.record), (id, ToolRecord::Nothing));
        assert!(!effects.holds_calls_not_to_repeat());
    }

    #[test]
    fn a_call_in_the_snapshot_is_not_the_one_that_is_asked_for_after_it() {
        let (past, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&past), 0);
        let mut effects = new_effects();
        for entry in [entry, started(&id), ended(&id, &past, "paid")] {
            effects.learn_past(entry);
        }

        let (next, known, _) = effects.meet_model(asked("b"));
        let met = effects.meet_call(&fingerprint(&next), &call_of(&pay()), Replay::Once);

        assert!(known.is_none());
        assert_ne!(met.id, id);
        assert_eq!(met.record, ToolRecord::Nothing);
    }

    #[test]
    fn an_own_effect_in_the_snapshot_is_known_and_changes_nothing_again() {
        let id = effect_id(&key(), "own", 0);
        let mut effects = new_effects();
        effects.learn_past(Entry::Ended {
            effect: id.clone(),
            call: "own".to_owned(),
            reply: None,
            outcome: Box::new(finished("a table")),
            changes: vec![Change::Artifacts(Vec::new())],
        });

        let met = effects.meet_call("own", "own", Replay::Once);

        assert_eq!((met.id, met.record), (id, ToolRecord::Ended(finished("a table"))));
        assert!(met.changes.is_empty());
    }

    #[test]
    fn an_attempt_that_went_another_way_does_not_repeat_what_was_begun() {
        let (old, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&old), 0);
        let mut effects = effects([entry, started(&id)]);
        let (new, known, _) = effects.meet_model(asked("another prompt"));
        assert!(known.is_none());

        let first = effects.meet_call(&fingerprint(&new), &call_of(&pay()), Replay::Once);
        let second = effects.meet_call(
            &call_fingerprint(Some(&new), 1, &call_of(&pay())),
            &call_of(&pay()),
            Replay::Once,
        );

        assert_eq!((first.id, first.record), (id.clone(), ToolRecord::Started));
        assert_ne!(second.id, id, "two calls are two");
        assert_eq!(second.record, ToolRecord::Nothing);
    }

    #[test]
    fn keyed_calls_keep_their_key_when_the_attempt_goes_another_way() {
        let (old, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&old), 0);
        let mut effects = effects([entry]);
        let (new, ..) = effects.meet_model(asked("another prompt"));

        let met = effects.meet_call(&fingerprint(&new), &call_of(&pay()), Replay::Keyed);

        assert_eq!((met.id, met.record), (id, ToolRecord::Nothing));
    }

    #[test]
    fn an_abandoned_attempt_leaves_what_must_not_be_repeated() {
        let (reply_id, entry) = reply("a");
        let id = effect_id(&key(), &fingerprint(&reply_id), 0);
        let mut protected = effects([
            entry.clone(),
            started(&id),
            ended(&id, &reply_id, "paid"),
            Entry::Abandoned,
        ]);
        let mut free = effects([entry, ended(&id, &reply_id, "read"), Entry::Abandoned]);

        assert!(protected.meet_model(asked("a")).1.is_none());
        let kept = protected.meet_call(&fingerprint(&reply_id), &call_of(&pay()), Replay::Once);
        let gone = free.meet_call(&fingerprint(&reply_id), &call_of(&pay()), Replay::Idempotent);

        assert_eq!(kept.record, ToolRecord::Ended(finished("paid")));
        assert_eq!(gone.record, ToolRecord::Nothing);
    }

    #[test]
    fn changes_come_with_the_reply_in_the_order_in_which_calls_ended() {
        let (reply_id, entry) = reply("a");
        let change = |text: &str| Change::Message(Message::user(text));
        let changing = |id: &str, text: &str| Entry::Ended {
            effect: id.into(),
            call: id.to_owned(),
            reply: Some(reply_id.clone()),
            outcome: Box::new(finished("x")),
            changes: vec![change(text)],
        };
        let mut effects = effects([
            entry,
            started(&"b".into()),
            started(&"z".into()),
            changing("z", "first"),
            changing("b", "second"),
        ]);

        let (_, _, changes) = effects.meet_model(asked("a"));

        assert_eq!(changes, [change("first"), change("second")]);
    }
}
