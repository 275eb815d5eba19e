//! The start of a window.
//!
//! The start depends on the messages and the token limit alone. No state is kept, so another process, a
//! branch and a restarted program compute the same start. While a conversation grows, the start stays until
//! the window is full. Then it moves by half of the limit.

use std::collections::HashSet;

use super::view::View;
use crate::{Feature, Message};

/// Returns the start of the window that continues from `anchor` and should have no more than `room` tokens.
///
/// It is the anchor, or a [safe place](safe_place) after it. The messages since the last one are always kept.
pub(super) fn start(view: &View<'_>, anchor: usize, room: u64) -> usize {
    let tokens = view.tokens_from(anchor);
    if tokens <= room {
        return anchor;
    }
    let step = (room / 2).max(1);
    let steps = (tokens - room).div_ceil(step);
    let goal = view.tokens_before(anchor) + steps * step;
    safe_place(view, anchor, goal).unwrap_or(anchor)
}

/// Returns the first safe place that has at least `goal` tokens before it; the last one if none has so many.
/// `None` if there is no safe place after the anchor.
pub(super) fn safe_place(view: &View<'_>, anchor: usize, goal: u64) -> Option<usize> {
    following(view, anchor, goal).or_else(|| {
        let mut end = view.len();
        while let Some(place) = view.user_before(end).filter(|place| *place > anchor) {
            if parted_answer(view, place).is_none() {
                return Some(place);
            }
            end = place;
        }
        None
    })
}

/// Returns the first safe place that has at least `goal` tokens before it.
pub(super) fn following(view: &View<'_>, anchor: usize, goal: u64) -> Option<usize> {
    let mut from = view.index_at(goal).max(anchor + 1);
    while let Some(place) = view.user_from(from) {
        match parted_answer(view, place) {
            None => return Some(place),
            // No place before the answer is better.
            Some(answer) => from = answer + 1,
        }
    }
    None
}

/// Returns whether a window may begin at this message: it is the user's, and no answer from here on belongs
/// to an earlier call.
pub(super) fn is_safe(view: &View<'_>, place: usize) -> bool {
    view.user_from(place) == Some(place) && parted_answer(view, place).is_none()
}

/// Returns the last answer from `start` on whose call is before `start`.
fn parted_answer(view: &View<'_>, start: usize) -> Option<usize> {
    let messages = view.messages;
    let mut asked = HashSet::new();
    let mut parted = None;
    let mut next = start;
    while let Some(index) = next_with_tools(view, next) {
        let message = messages.get(index)?;
        for call in answers(message) {
            // An answer without a call is no reason to move.
            if !asked.contains(&call) && is_asked_before(view, start, call) {
                parted = Some(index);
            }
        }
        asked.extend(calls(message));
        next = index + 1;
    }
    parted
}

fn next_with_tools(view: &View<'_>, start: usize) -> Option<usize> {
    let next = |feature| view.messages.next_with(feature, start);
    match (next(Feature::ToolRequest), next(Feature::ToolResponse)) {
        (Some(request), Some(response)) => Some(request.min(response)),
        (request, response) => request.or(response),
    }
}

/// Returns whether a message before `start` has the call. Only histories that no provider would accept get
/// here.
fn is_asked_before(view: &View<'_>, start: usize, call: Call<'_>) -> bool {
    let mut end = start;
    while let Some(index) = view.messages.last_with(Feature::ToolRequest, end) {
        let message = view.messages.get(index);
        if message.is_some_and(|message| calls(message).any(|asked| asked == call)) {
            return true;
        }
        end = index;
    }
    false
}

/// The name of a tool and the reference of a call.
type Call<'a> = (&'a str, Option<&'a str>);

fn calls(message: &Message) -> impl Iterator<Item = Call<'_>> {
    let requests = message.tool_requests();
    requests.map(|request| (request.name.as_str(), request.reference.as_deref()))
}

fn answers(message: &Message) -> impl Iterator<Item = Call<'_>> {
    let responses = message
        .content()
        .iter()
        .filter_map(|part| part.as_tool_response());
    responses.map(|response| (response.name.as_str(), response.reference.as_deref()))
}
