//! Tool calls assembled from fragments, in all the ways in which servers split them.

use everturn_ai::{Part, ToolRequest};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{Arguments, Outcome, WireTools};

/// A call in progress.
#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    arguments: Arguments,
    /// Whether a chunk has shown it.
    is_shown: bool,
    extra: Option<Value>,
}

/// The calls of an answer, in the order of their starts.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

/// A call that is complete, or was truncated.
pub(super) enum Finished {
    Whole(Part),
    Cut(String),
}

impl Calls {
    /// Processes a fragment and returns the index of its call.
    pub(super) fn take(&mut self, fragment: &Value) -> usize {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let function = &fragment["function"];
        let (index, id, name) = (
            fragment["index"].as_u64(),
            text(&fragment["id"]),
            text(&function["name"]),
        );
        let place = self
            .place(index, id.as_deref(), name.as_deref())
            .unwrap_or_else(|| {
                self.0.push(Call {
                    index,
                    id: None,
                    name: String::new(),
                    arguments: Arguments::default(),
                    is_shown: false,
                    extra: None,
                });
                self.0.len() - 1
            });
        let call = &mut self.0[place];
        // The first id stays, and a name that is repeated is not a longer one.
        call.id = call.id.take().or(id);
        if call.name.is_empty() {
            call.name = name.unwrap_or_default();
        }
        call.arguments.push_value(&function["arguments"]);
        if !fragment["extra_content"].is_null() {
            call.extra = Some(fragment["extra_content"].clone());
        }
        place
    }

    /// Returns the call that a fragment continues; `None` if it starts one.
    fn place(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let place = match index {
            Some(_) => self.0.iter().rposition(|call| call.index == index)?,
            None => self.0.len().checked_sub(1)?,
        };
        let call = &self.0[place];
        let continues = match (name, id) {
            // Some servers assign an id to every fragment.
            (None, _) => true,
            (Some(_), Some(id)) => call.id.as_deref() == Some(id),
            (Some(name), None) => {
                let may_repeat = index.is_some() || (!call.arguments.is_empty() && call.name == name);
                may_repeat && !call.arguments.is_complete()
            }
        };
        continues.then_some(place)
    }

    /// Returns the call so far, for a chunk, unless a chunk has shown nearly as much.
    pub(super) fn partial(&mut self, place: usize, tools: &WireTools) -> Option<Part> {
        let call = &mut self.0[place];
        // The start of a call is shown even without arguments.
        let so_far = match call.arguments.show() {
            None if call.is_shown => return None,
            so_far => so_far.unwrap_or_else(|| json!({})),
        };
        call.is_shown = true;
        let name = tools.meant_by(&call.name);
        let request = ToolRequest {
            name: name.to_owned(),
            reference: Some(call.id.get_or_insert_with(new_id).clone()),
            input: Some(tools.input(name, so_far)),
            partial: true,
            ..ToolRequest::default()
        };
        Some(request.into())
    }

    /// Returns the calls of a finished answer.
    pub(super) fn finish(self, provider: &str, tools: &WireTools) -> Vec<Finished> {
        let finish = |call: Call| {
            let name = tools.meant_by(&call.name);
            let Outcome::Input(input) = call.arguments.outcome() else {
                return Finished::Cut(name.to_owned());
            };
            let request = ToolRequest::new(name, tools.input(name, input))
                .with_reference(call.id.unwrap_or_else(new_id));
            let part = Part::from(request);
            Finished::Whole(match call.extra {
                Some(extra) => part.with_metadata_entry(provider, json!({ "extraContent": extra })),
                None => part,
            })
        };
        self.0.into_iter().map(finish).collect()
    }
}

fn new_id() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(fragments: &[Value]) -> Vec<(Option<String>, String, Value)> {
        let mut calls = Calls::default();
        for fragment in fragments {
            calls.take(fragment);
        }
        let requests = calls
            .finish("p", &WireTools::default())
            .into_iter()
            .map(|call| match call {
                Finished::Whole(part) => part.as_tool_request().unwrap().clone(),
                Finished::Cut(name) => ToolRequest::new(name, "cut"),
            });
        requests
            .map(|call| (call.reference, call.name, call.input.unwrap_or_default()))
            .collect()
    }

    fn call(id: &str, name: &str, input: Value) -> (Option<String>, String, Value) {
        (Some(id.to_owned()), name.to_owned(), input)
    }

    #[test]
    fn fragments_by_index() {
        let calls = assembled(&[
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
            json!({"index": 1, "id": "b", "function": {"name": "g"}}),
            json!({"index": 0, "function": {"arguments": "{\"x\":"}}),
            json!({"index": 0, "function": {"arguments": "1}"}}),
        ]);

        assert_eq!(
            calls,
            [call("a", "f", json!({"x": 1})), call("b", "g", json!({}))]
        );
    }

    #[test]
    fn fragments_without_an_index() {
        let calls = assembled(&[
            json!({"id": "a", "function": {"name": "f", "arguments": "{}"}}),
            json!({"id": "b", "function": {"name": "f", "arguments": "{\"x\""}}),
            json!({"function": {"arguments": ":1}"}}),
        ]);

        assert_eq!(
            calls,
            [call("a", "f", json!({})), call("b", "f", json!({"x": 1}))]
        );
    }

    #[test]
    fn every_call_at_index_zero_with_its_own_id() {
        let calls = assembled(&[
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}),
            json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": "{}"}}),
        ]);

        assert_eq!(calls, [call("a", "f", json!({})), call("b", "f", json!({}))]);
    }

    #[test]
    fn a_new_id_in_every_fragment() {
        let calls = assembled(&[
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\""}}),
            json!({"index": 0, "id": "b", "function": {"arguments": ":1}"}}),
        ]);

        assert_eq!(calls, [call("a", "f", json!({"x": 1}))]);
    }

    #[test]
    fn the_name_in_every_fragment() {
        let calls = assembled(&[
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\""}}),
            json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ":"}}),
            json!({"index": 0, "function": {"name": "f", "arguments": "1}"}}),
        ]);

        assert_eq!(calls, [call("a", "f", json!({"x": 1}))]);
    }

    #[test]
    fn arguments_as_an_object_and_no_id() {
        let mut calls = assembled(&[json!({"index": 0, "function": {"name": "f", "arguments": {"x": 1}}})]);

        let (id, name, input) = calls.remove(0);
        assert!(id.is_some_and(|id| Uuid::parse_str(&id).is_ok()));
        assert_eq!((name.as_str(), input), ("f", json!({"x": 1})));
    }
}
