//! The models that a server lists.

use everturn_core::Result;
use serde_json::Value;

use super::family::Kind;
use crate::service::{Call, Service};

/// A model that a server lists.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) id: String,
    pub(super) kind: Kind,
}

pub(super) async fn fetch(service: &Service) -> Result<Vec<Listed>> {
    let answer: Value = service.json(&Call::get("/models")).await?;
    // Some servers respond with a bare list.
    let entries = answer.get("data").unwrap_or(&answer).as_array();
    let listed = |entry: &Value| {
        let id = entry.get("id")?.as_str()?.to_owned();
        let kind = Kind::of(&id);
        Some(Listed { id, kind })
    };
    Ok(entries.into_iter().flatten().filter_map(listed).collect())
}
