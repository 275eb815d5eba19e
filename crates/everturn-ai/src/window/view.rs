//! A window's view of a request's messages: the pinned ones, and the conversation between them.

use super::measure::{Cost, Measure};
use crate::{Feature, Message, Messages};

/// A request's messages. No method iterates over the conversation.
pub(super) struct View<'a> {
    pub(super) messages: &'a Messages,
    measure: &'a Measure,
    /// Whether outputs of tools are counted. Where they are cleared later, only the rest of a message counts.
    counts_outputs: bool,
    /// The indices of the pinned messages, each with the cost of all pinned ones before it.
    pinned: Vec<(usize, Cost)>,
    pinned_cost: Cost,
}

impl<'a> View<'a> {
    pub(super) fn new(messages: &'a Messages, measure: &'a Measure, counts_outputs: bool) -> Self {
        let mut view = Self {
            messages,
            measure,
            counts_outputs,
            pinned: Vec::new(),
            pinned_cost: Cost::default(),
        };
        let mut next = 0;
        while let Some(index) = messages.next_with(Feature::Pinned, next) {
            view.pinned.push((index, view.pinned_cost));
            let cost = messages.get(index).map(|message| measure.of(message));
            let cost = cost.unwrap_or_default();
            view.pinned_cost.tokens += cost.tokens;
            view.pinned_cost.outputs += cost.outputs;
            next = index + 1;
        }
        view
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the tokens of the pinned messages.
    pub(super) fn pinned_tokens(&self) -> u64 {
        self.pinned_cost.tokens
    }

    /// Returns the tokens of the conversation in messages that were chosen from these, without the pinned
    /// ones.
    pub(super) fn tokens_of(&self, picked: &Messages) -> u64 {
        let all = self.measure.before(picked, picked.len()).tokens;
        all.saturating_sub(self.pinned_tokens())
    }

    /// Returns the indices of the pinned messages before `end`.
    pub(super) fn pinned_before(&self, end: usize) -> impl Iterator<Item = usize> {
        let pinned = self.pinned.iter().map(|(index, _)| *index);
        pinned.take_while(move |index| *index < end)
    }

    /// Returns the tokens of the conversation before `end`.
    pub(super) fn tokens_before(&self, end: usize) -> u64 {
        let count = self.pinned.partition_point(|(index, _)| *index < end);
        let pinned = self
            .pinned
            .get(count)
            .map_or(self.pinned_cost, |(_, before)| *before);
        let cost = self.measure.before(self.messages, end) - pinned;
        if self.counts_outputs {
            cost.tokens
        } else {
            cost.tokens.saturating_sub(cost.outputs)
        }
    }

    /// Returns the tokens of the conversation from `start` on.
    pub(super) fn tokens_from(&self, start: usize) -> u64 {
        self.tokens_before(self.len())
            .saturating_sub(self.tokens_before(start))
    }

    /// Returns the first index from which on at least `goal` tokens come before.
    pub(super) fn index_at(&self, goal: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        // Most lookups are near the end, where a history with many forks is read quickly.
        let mut back = 1;
        while let Some(index) = self.len().checked_sub(back) {
            if self.tokens_before(index) < goal {
                low = index;
                break;
            }
            high = index;
            back *= 2;
        }
        while low < high {
            let middle = low.midpoint(high);
            if self.tokens_before(middle) >= goal {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Returns the index of the first user message of the conversation at or after `start`.
    pub(super) fn user_from(&self, start: usize) -> Option<usize> {
        self.messages.next_with(Feature::User, start)
    }

    /// Returns the index of the last user message of the conversation before `end`.
    pub(super) fn user_before(&self, end: usize) -> Option<usize> {
        self.messages.last_with(Feature::User, end)
    }

    /// Returns how many messages of the conversation come before `end`.
    pub(super) fn conversation_len_before(&self, end: usize) -> usize {
        end - self.pinned_before(end).count()
    }

    /// Returns the index of a message, given how many messages of the conversation come before it.
    pub(super) fn conversation_index(&self, position: usize) -> usize {
        self.pinned.iter().fold(
            position,
            |index, (pinned, _)| if *pinned <= index { index + 1 } else { index },
        )
    }

    /// Returns the characters of the conversation before `end`, which distinguish conversations.
    pub(super) fn characters_before(&self, end: usize) -> u64 {
        let pinned: u64 = self
            .pinned_before(end)
            .filter_map(|index| self.messages.get(index))
            .map(|message| message.stats().characters)
            .sum();
        self.messages.stats_before(end).characters - pinned
    }

    /// Returns the messages of the conversation in a range.
    pub(super) fn conversation(&self, start: usize, end: usize) -> impl Iterator<Item = Message> {
        let is_conversation = |message: &Message| message.stats().messages_with(Feature::Pinned) == 0;
        let range = self.messages.slice(start..end);
        let messages: Vec<Message> = range
            .iter()
            .filter(|message| is_conversation(message))
            .cloned()
            .collect();
        messages.into_iter()
    }
}
