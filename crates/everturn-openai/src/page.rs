//! Pages of lists.

use std::collections::HashMap;

use everturn_ai::json_heap_size;
use serde_json::{Value, json};

use crate::fault::Fault;

/// The query parameters of a request.
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

/// The maximum memory of the items of a page. A page has at least one item, whatever its size.
const PAGE_BYTES: usize = 8 * 1024 * 1024;

/// The requested part of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page {
    limit: usize,
    ascending: bool,
    after: Option<String>,
}

impl Page {
    /// Reads the parameters of a request.
    pub(crate) fn of_query(query: &Query) -> Result<Self, Fault> {
        let limit = number(query, "limit")?.unwrap_or(20);
        if !(1..=100).contains(&limit) {
            let message = "'limit' is a number from 1 to 100.";
            return Err(Fault::wrong_value("limit", message));
        }
        let ascending = match query.get("order").map(String::as_str) {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => {
                let message = "'order' is 'asc' or 'desc'.";
                return Err(Fault::wrong_value("order", message));
            }
        };
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or(100),
            ascending,
            after: query.get("after").cloned(),
        })
    }

    /// Returns the page of a list of items that starts with the oldest.
    pub(crate) fn of(&self, mut items: Vec<Value>) -> Value {
        if !self.ascending {
            items.reverse();
        }
        let after = self.after.as_deref();
        let start = after
            .and_then(|after| items.iter().position(|item| item["id"] == after))
            .map_or(0, |index| index + 1);
        let rest = items.split_off(start);
        let left = rest.len();
        let mut bytes = 0;
        let fitting = |item: &Value| {
            let is_first = bytes == 0;
            bytes += json_heap_size(item);
            is_first || bytes <= PAGE_BYTES
        };
        let data: Vec<Value> = rest.into_iter().take(self.limit).take_while(fitting).collect();
        let has_more = left > data.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_large_items_ends_early_and_the_next_starts_after_its_last() {
        let item = |id: usize| json!({ "id": id.to_string(), "text": "x".repeat(PAGE_BYTES / 2 - 10_000) });
        let items: Vec<Value> = (0..3).map(item).collect();
        let mut page = Page {
            limit: 100,
            ascending: true,
            after: None,
        };

        let first = page.of(items.clone());
        page.after = first["last_id"].as_str().map(str::to_owned);
        let second = page.of(items);

        assert_eq!(
            (&first["last_id"], &first["has_more"]),
            (&json!("1"), &json!(true))
        );
        assert_eq!(
            (&second["first_id"], &second["has_more"]),
            (&json!("2"), &json!(false))
        );
        let huge = json!({ "id": "huge", "text": "x".repeat(2 * PAGE_BYTES) });
        page.after = None;
        assert_eq!(page.of(vec![huge])["last_id"], "huge");
    }
}
