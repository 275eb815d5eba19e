//! The custom state in the start of an invocation.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The custom state that a caller gives to a new session.
///
/// A value that was made in Rust is the program's own. One that was decoded came from a client: an agent that keeps its
/// sessions takes it only if it [accepts](crate::AgentBuilder::accept_custom) such values.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenCustom {
    value: Arc<Value>,
    is_from_client: bool,
}

impl GivenCustom {
    /// Creates the custom state that this program gives.
    pub fn new(value: impl Into<Value>) -> Self {
        Self {
            value: Arc::new(value.into()),
            is_from_client: false,
        }
    }

    /// Creates the custom state that a client gave.
    pub(crate) fn from_client(value: Arc<Value>) -> Self {
        Self {
            value,
            is_from_client: true,
        }
    }

    /// Returns the custom state.
    pub fn value(&self) -> &Arc<Value> {
        &self.value
    }

    pub(super) fn into_value(self) -> Arc<Value> {
        self.value
    }

    pub(crate) fn is_from_client(&self) -> bool {
        self.is_from_client
    }
}

impl Serialize for GivenCustom {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GivenCustom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::from_client(Arc::new(value)))
    }
}

impl JsonSchema for GivenCustom {
    fn schema_name() -> Cow<'static, str> {
        "CustomState".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        Schema::from(true)
    }
}
