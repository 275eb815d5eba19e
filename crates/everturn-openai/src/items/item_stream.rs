//! The items of a turn, as its stream produces them.

use std::collections::HashMap;

use everturn_agent::AgentStreamChunk;
use everturn_ai::{Message, ModelResponseChunk, Part, Role, ToolRequest, metadata};
use everturn_server::MessagePosition;

use super::{Call, Growing, Item, ItemKind, Run, TurnInfo, done, is_error, items_of};

/// A change of the items.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ItemStep {
    /// The item with this index starts. Text and reasoning start empty, calls are complete.
    Started(usize),
    /// Text or reasoning is appended to the item.
    Delta(usize, String),
    /// The item is complete.
    Finished(usize),
}

/// Reads the stream of one turn.
#[derive(Debug, Default)]
pub(crate) struct ItemStream {
    items: Vec<Item>,
    /// The open item.
    growing: Option<Growing>,
    /// The number of items of each message so far, including calls without a result.
    counts: HashMap<usize, usize>,
    open: HashMap<Call, (MessagePosition, ToolRequest)>,
    info: TurnInfo,
}

impl ItemStream {
    /// Creates the item stream of a turn.
    pub(crate) fn new(info: TurnInfo) -> Self {
        Self {
            info,
            ..Self::default()
        }
    }

    /// Returns whether the client has a tool of this name.
    pub(crate) fn is_of_client(&self, name: &str) -> bool {
        self.info.of_client.iter().any(|tool| tool == name)
    }

    /// Returns the items that were sent so far.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Returns the steps of a chunk.
    pub(crate) fn chunk(&mut self, chunk: &AgentStreamChunk) -> Vec<ItemStep> {
        let mut steps = Vec::new();
        if let (Some(model), Some(place)) = (&chunk.model_chunk, chunk.position)
            // Aggregated chunks repeat earlier chunks. Missing parts are sent at the end, from the message.
            && !model.aggregated
        {
            self.model_chunk(place, model, &mut steps);
        }
        if let Some(added) = chunk.turn_end.as_ref().and_then(|end| end.added.as_ref()) {
            steps.extend(self.end(added.position, &added.messages));
        }
        steps
    }

    fn model_chunk(&mut self, place: usize, chunk: &ModelResponseChunk, steps: &mut Vec<ItemStep>) {
        for part in &chunk.content {
            match chunk.role.unwrap_or(Role::Model) {
                Role::Model => self.model_part(place, part, steps),
                Role::Tool => self.result(part, steps),
                _ => {}
            }
        }
    }

    fn model_part(&mut self, place: usize, part: &Part, steps: &mut Vec<ItemStep>) {
        if let Some(request) = part.as_tool_request() {
            if request.partial {
                return;
            }
            let key = self.next_key(place);
            self.close(steps);
            if self.is_of_client(&request.name) {
                let kind = ItemKind::Question(request.clone());
                self.push_whole(Item::new(key, kind), steps);
            } else {
                self.open.insert(Call::of(request), (key, request.clone()));
            }
            return;
        }
        let Some((run, text)) = Run::of(part).filter(|(_, text)| !text.is_empty()) else {
            return;
        };
        let continues = |growing: &Growing| growing.run == run && growing.key.message == place;
        if !self.growing.as_ref().is_some_and(continues) {
            let key = self.next_key(place);
            self.close(steps);
            self.growing = Some(Growing::new(run, key, &self.info));
        }
        let Some(growing) = &mut self.growing else { return };
        let text = growing.shown(text);
        if text.is_empty() {
            return;
        }
        let index = *growing.index.get_or_insert_with(|| {
            let kind = run.item(String::new());
            self.items.push(Item::new(growing.key, kind));
            steps.push(ItemStep::Started(self.items.len() - 1));
            self.items.len() - 1
        });
        self.items[index].kind.append(text);
        steps.push(ItemStep::Delta(index, text.to_owned()));
    }

    fn result(&mut self, part: &Part, steps: &mut Vec<ItemStep>) {
        let is_partial = part.metadata_entry(metadata::PARTIAL).is_some();
        let Some(response) = part.as_tool_response().filter(|_| !is_partial) else {
            return;
        };
        let Some((key, request)) = self.open.remove(&Call::answered(response)) else {
            return;
        };
        self.close(steps);
        let kind = done(request, response.output.clone(), is_error(part));
        self.push_whole(Item::new(key, kind), steps);
    }

    fn next_key(&mut self, message: usize) -> MessagePosition {
        let count = self.counts.entry(message).or_default();
        let number = *count;
        *count += 1;
        MessagePosition::new(message, number)
    }

    fn close(&mut self, steps: &mut Vec<ItemStep>) {
        if let Some(index) = self.growing.take().and_then(|growing| growing.index) {
            steps.push(ItemStep::Finished(index));
        }
    }

    fn push_whole(&mut self, item: Item, steps: &mut Vec<ItemStep>) {
        self.items.push(item);
        let index = self.items.len() - 1;
        steps.extend([ItemStep::Started(index), ItemStep::Finished(index)]);
    }

    /// Closes the open item of a turn that ended without messages.
    pub(crate) fn finish(&mut self) -> Vec<ItemStep> {
        let mut steps = Vec::new();
        self.close(&mut steps);
        steps
    }

    /// Returns the steps for the parts of the added messages that were not streamed.
    pub(crate) fn end(&mut self, from: usize, messages: &[Message]) -> Vec<ItemStep> {
        let mut steps = Vec::new();
        for item in items_of(from, messages, &self.info) {
            let known = self.items.iter().position(|sent| sent.key == item.key);
            let Some(index) = known else {
                self.close(&mut steps);
                self.items.push(Item::new(item.key, item.kind.emptied()));
                let index = self.items.len() - 1;
                steps.push(ItemStep::Started(index));
                self.grow(index, &item, &mut steps);
                steps.push(ItemStep::Finished(index));
                continue;
            };
            // Text is only appended to the open item.
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

    /// Appends the rest of a text that was streamed in part.
    fn grow(&mut self, index: usize, whole: &Item, steps: &mut Vec<ItemStep>) {
        let (Some(whole), Some(sent)) = (whole.kind.text(), self.items[index].kind.text()) else {
            return;
        };
        let Some(rest) = whole.strip_prefix(sent).filter(|rest| !rest.is_empty()) else {
            return;
        };
        let rest = rest.to_owned();
        self.items[index].kind.append(&rest);
        steps.push(ItemStep::Delta(index, rest));
    }
}
