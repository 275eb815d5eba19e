//! Pages of lists.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::fault::Fault;

/// The parameters of a request's address.
pub(crate) type Query = HashMap<String, String>;

/// Reads a parameter that is a number.
pub(crate) fn number(query: &Query, name: &str) -> Result<Option<u64>, Fault> {
    match query.get(name) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Fault::wrong_type(name, "a number")),
    }
}

/// The part of a list that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page {
    limit: usize,
    ascending: bool,
    after: Option<String>,
}

impl Page {
    /// Reads the parameters of a request.
    pub(crate) fn asked_for(query: &Query) -> Result<Self, Fault> {
        let limit = number(query, "limit")?.unwrap_or(20);
        if !(1..=100).contains(&limit) {
            let message = "'limit' is a number from 1 to 100.";
            return Err(Fault::invalid("invalid_value", "limit", message));
        }
        let ascending = match query.get("order").map(String::as_str) {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => {
                let message = "'order' is 'asc' or 'desc'.";
                return Err(Fault::invalid("invalid_value", "order", message));
            }
        };
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or(100),
            ascending,
            after: query.get("after").cloned(),
        })
    }

    /// Returns the page of a list of items, whose oldest is first.
    pub(crate) fn of(&self, mut items: Vec<Value>) -> Value {
        if !self.ascending {
            items.reverse();
        }
        let after = self.after.as_deref();
        let start = after
            .and_then(|after| items.iter().position(|item| item["id"] == after))
            .map_or(0, |index| index + 1);
        let rest = items.split_off(start);
        let has_more = rest.len() > self.limit;
        let data: Vec<Value> = rest.into_iter().take(self.limit).collect();
        let id = |item: Option<&Value>| item.map(|item| item["id"].clone());
        json!({
            "object": "list",
            "first_id": id(data.first()),
            "last_id": id(data.last()),
            "has_more": has_more,
            "data": data,
        })
    }
}
