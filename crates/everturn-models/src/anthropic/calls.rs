//! The ids of tool calls in one request.
//!
//! Claude requires a unique id on every call and the same id on its answer, of letters, digits, `_` and `-`.
//! Calls of another provider's model may have other ids, equal ones, or none.

use std::collections::HashSet;

use everturn_ai::{ToolRequest, ToolResponse};

/// The unanswered calls of a conversation, with the ids they are sent with.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Vec<Call>,
    used: HashSet<String>,
}

#[derive(Debug)]
struct Call {
    name: String,
    reference: Option<String>,
    id: String,
}

impl Calls {
    /// Returns the id under which a call is sent.
    pub(super) fn asked(&mut self, request: &ToolRequest) -> String {
        let reference = request
            .reference
            .as_deref()
            .filter(|reference| !reference.is_empty());
        let id = self.unused(&allowed(reference.unwrap_or("call_1")));
        self.open.push(Call {
            name: request.name.clone(),
            reference: request.reference.clone(),
            id: id.clone(),
        });
        id
    }

    /// Appends a number to an id that is taken.
    fn unused(&mut self, id: &str) -> String {
        let mut unused = id.to_owned();
        let mut number = 1;
        while !self.used.insert(unused.clone()) {
            number += 1;
            unused = format!("{id}_{number}");
        }
        unused
    }

    /// Returns the id of the open call that a response answers.
    pub(super) fn answered(&mut self, response: &ToolResponse) -> String {
        let found = self
            .open
            .iter()
            .position(|call| call.reference == response.reference && call.name == response.name);
        match (found, &response.reference) {
            (Some(position), _) => self.open.remove(position).id,
            (None, Some(reference)) => allowed(reference),
            (None, None) => allowed(&response.name),
        }
    }
}

fn allowed(reference: &str) -> String {
    let allow = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    reference.chars().map(allow).collect()
}

#[cfg(test)]
mod tests {
    use everturn_ai::ToolRequest;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_has_the_id_of_its_call() {
        let mut calls = Calls::default();
        let foreign = ToolRequest::new("a", json!({})).with_reference("fc:1/ü");
        let first = ToolRequest::new("b", json!({}));
        let second = ToolRequest::new("b", json!({}));

        let asked = [&foreign, &first, &second].map(|request| calls.asked(request));
        let answered =
            [&foreign, &first, &second].map(|request| calls.answered(&ToolResponse::to(request, 1)));

        assert_eq!(asked, ["fc_1__", "call_1", "call_1_2"]);
        assert_eq!(asked, answered);
    }
}
