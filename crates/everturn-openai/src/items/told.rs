//! The items of a turn as its stream tells them.

use std::collections::HashMap;

use everturn_agent::AgentStreamChunk;
use everturn_ai::{Message, ModelResponseChunk, Part, Role, ToolRequest, metadata};

use super::{Call, Growing, Item, ItemKind, Run, Setting, done, is_error, items_of};
use crate::ids::ItemKey;

/// A step in telling items.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// The item of this index begins. Text and reasoning begin empty, calls are whole.
    Opened(usize),
    /// The text or reasoning of the item grew.
    Grew(usize, String),
    /// The item is complete.
    Closed(usize),
}

/// Follows the stream of one turn.
#[derive(Debug, Default)]
pub(crate) struct Items {
    told: Vec<Item>,
    /// The item that still grows.
    growing: Option<Growing>,
    /// How many items each message has so far, calls without a result included.
    counts: HashMap<usize, usize>,
    open: HashMap<Call, (ItemKey, ToolRequest)>,
    setting: Setting,
}

impl Items {
    /// Follows a turn.
    pub(crate) fn new(setting: Setting) -> Self {
        Self {
            setting,
            ..Self::default()
        }
    }

    /// Returns whether the client brought a tool of this name.
    pub(crate) fn is_of_client(&self, name: &str) -> bool {
        self.setting.of_client.iter().any(|tool| tool == name)
    }

    /// Returns the items that were told so far.
    pub(crate) fn told(&self) -> &[Item] {
        &self.told
    }

    /// Takes in a chunk of the stream.
    pub(crate) fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<Told> {
        let mut steps = Vec::new();
        if let (Some(model), Some(place)) = (&chunk.model_chunk, chunk.position)
            // Chunks that repeat what came before are told at the end, from the message itself.
            && !model.aggregated
        {
            self.model_chunk(place, model, &mut steps);
        }
        if let Some(added) = chunk.turn_end.as_ref().and_then(|end| end.added.as_ref()) {
            steps.extend(self.end(added.position, &added.messages));
        }
        steps
    }

    fn model_chunk(&mut self, place: usize, chunk: &ModelResponseChunk, steps: &mut Vec<Told>) {
        for part in &chunk.content {
            match chunk.role.unwrap_or(Role::Model) {
                Role::Model => self.model_part(place, part, steps),
                Role::Tool => self.result(part, steps),
                _ => {}
            }
        }
    }

    fn model_part(&mut self, place: usize, part: &Part, steps: &mut Vec<Told>) {
        if let Some(request) = part.as_tool_request() {
            if request.partial {
                return;
            }
            let key = self.next_key(place);
            self.close(steps);
            if self.is_of_client(&request.name) {
                let kind = ItemKind::Question(request.clone());
                self.tell_whole(Item { key, kind }, steps);
            } else {
                self.open.insert(Call::of(request), (key, request.clone()));
            }
            return;
        }
        let Some((run, text)) = Run::of(part).filter(|(_, text)| !text.is_empty()) else {
            return;
        };
        let goes_on = |growing: &Growing| growing.run == run && growing.key.message == place;
        if !self.growing.as_ref().is_some_and(goes_on) {
            let key = self.next_key(place);
            self.close(steps);
            self.growing = Some(Growing::new(run, key, &self.setting));
        }
        let Some(growing) = &mut self.growing else { return };
        let text = growing.shown(text);
        if text.is_empty() {
            return;
        }
        let index = *growing.index.get_or_insert_with(|| {
            let kind = run.item(String::new());
            self.told.push(Item {
                key: growing.key,
                kind,
            });
            steps.push(Told::Opened(self.told.len() - 1));
            self.told.len() - 1
        });
        self.told[index].kind.append(text);
        steps.push(Told::Grew(index, text.to_owned()));
    }

    fn result(&mut self, part: &Part, steps: &mut Vec<Told>) {
        let is_partial = part.metadata_entry(metadata::PARTIAL).is_some();
        let Some(response) = part.as_tool_response().filter(|_| !is_partial) else {
            return;
        };
        let Some((key, request)) = self.open.remove(&Call::answered(response)) else {
            return;
        };
        self.close(steps);
        let kind = done(request, response.output.clone(), is_error(part));
        self.tell_whole(Item { key, kind }, steps);
    }

    fn next_key(&mut self, message: usize) -> ItemKey {
        let count = self.counts.entry(message).or_default();
        let number = *count;
        *count += 1;
        ItemKey { message, number }
    }

    fn close(&mut self, steps: &mut Vec<Told>) {
        if let Some(index) = self.growing.take().and_then(|growing| growing.index) {
            steps.push(Told::Closed(index));
        }
    }

    fn tell_whole(&mut self, item: Item, steps: &mut Vec<Told>) {
        self.told.push(item);
        let index = self.told.len() - 1;
        steps.extend([Told::Opened(index), Told::Closed(index)]);
    }

    /// Closes what is open, because the turn ended without messages.
    pub(crate) fn give_up(&mut self) -> Vec<Told> {
        let mut steps = Vec::new();
        self.close(&mut steps);
        steps
    }

    /// Takes in the messages that the turn added, and tells whatever of them was not streamed.
    pub(crate) fn end(&mut self, from: usize, messages: &[Message]) -> Vec<Told> {
        let mut steps = Vec::new();
        for item in items_of(from, messages, &self.setting) {
            let known = self.told.iter().position(|told| told.key == item.key);
            let Some(index) = known else {
                self.close(&mut steps);
                self.told.push(Item {
                    key: item.key,
                    kind: item.kind.emptied(),
                });
                let index = self.told.len() - 1;
                steps.push(Told::Opened(index));
                self.grow(index, &item, &mut steps);
                steps.push(Told::Closed(index));
                continue;
            };
            // Only the item that is still open can grow.
            if self
                .growing
                .as_ref()
                .is_some_and(|growing| growing.index == Some(index))
            {
                self.grow(index, &item, &mut steps);
                self.close(&mut steps);
            }
        }
        self.close(&mut steps);
        steps
    }

    /// Tells the rest of a text that was streamed in part.
    fn grow(&mut self, index: usize, whole: &Item, steps: &mut Vec<Told>) {
        let (Some(whole), Some(told)) = (whole.kind.text(), self.told[index].kind.text()) else {
            return;
        };
        let Some(rest) = whole.strip_prefix(told).filter(|rest| !rest.is_empty()) else {
            return;
        };
        let rest = rest.to_owned();
        self.told[index].kind.append(&rest);
        steps.push(Told::Grew(index, rest));
    }
}
