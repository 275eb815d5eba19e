//! Ids of tool calls: both protocols require one on every call and on its answer.

use std::borrow::Cow;
use std::collections::VecDeque;

use everturn_ai::{ToolRequest, ToolResponse};

/// Assigns ids to the calls of a conversation that have none, and to their answers, in order.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    made: usize,
    waiting: VecDeque<(String, String)>,
}

impl CallIds {
    pub(super) fn of_request<'a>(&mut self, request: &'a ToolRequest) -> Cow<'a, str> {
        if let Some(reference) = request
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty())
        {
            return Cow::Borrowed(reference);
        }
        self.made += 1;
        // No provider assigns such an id, so it cannot conflict. It is the same in the next request, whose
        // prefix the provider may have cached.
        let id = format!("call_without_id_{}", self.made);
        self.waiting.push_back((request.name.clone(), id.clone()));
        Cow::Owned(id)
    }

    pub(super) fn of_response<'a>(&mut self, response: &'a ToolResponse) -> Cow<'a, str> {
        if let Some(reference) = response
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty())
        {
            return Cow::Borrowed(reference);
        }
        let place = self.waiting.iter().position(|(name, _)| *name == response.name);
        let call = place.and_then(|place| self.waiting.remove(place));
        call.map_or(Cow::Borrowed(response.name.as_str()), |(_, id)| Cow::Owned(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_without_ids_are_answered_in_order() {
        let request = ToolRequest::new("time", 1);
        let response = ToolResponse::to(&request, 2);
        let mut ids = CallIds::default();

        let calls = [ids.of_request(&request), ids.of_request(&request)].map(Cow::into_owned);
        let answers = [ids.of_response(&response), ids.of_response(&response)].map(Cow::into_owned);

        assert_eq!(calls, ["call_without_id_1", "call_without_id_2"]);
        assert_eq!(answers, calls);
    }
}
