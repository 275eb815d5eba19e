//! The statuses that a middleware reacts to, as its configuration lists them.

use std::borrow::Cow;

use everturn_core::Status;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// A set of statuses, parsed strictly. Elsewhere an unknown name is read as `UNKNOWN`; here it is a spelling
/// mistake that would disable a retry or fallback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Statuses(Vec<Status>);

/// The statuses of transient failures.
pub(super) const TRANSIENT: [Status; 5] = [
    Status::Unavailable,
    Status::DeadlineExceeded,
    Status::ResourceExhausted,
    Status::Aborted,
    Status::Internal,
];

impl Statuses {
    pub(super) fn transient() -> Self {
        TRANSIENT.into_iter().collect()
    }

    pub(super) fn contains(&self, status: Status) -> bool {
        self.0.contains(&status)
    }
}

impl FromIterator<Status> for Statuses {
    fn from_iter<I: IntoIterator<Item = Status>>(statuses: I) -> Self {
        Self(statuses.into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<String>::deserialize(deserializer)?
            .iter()
            .map(|name| name.parse().map_err(D::Error::custom))
            .collect()
    }
}

impl JsonSchema for Statuses {
    fn schema_name() -> Cow<'static, str> {
        "Statuses".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Status::all().map(Status::name).collect();
        json_schema!({ "type": "array", "items": { "type": "string", "enum": names } })
    }
}
