//! The custom state in the start of an invocation.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The custom state that a caller gives to a new session.
///
/// An agent that keeps its sessions takes it from clients only if it
/// [allows](crate::ClientPermissions::custom) that.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenCustom(Arc<Value>);

impl GivenCustom {
    /// Creates the custom state of a new session.
    pub fn new(value: impl Into<Value>) -> Self {
        Self(Arc::new(value.into()))
    }

    /// Returns the custom state.
    pub fn value(&self) -> &Arc<Value> {
        &self.0
    }

    pub(super) fn into_value(self) -> Arc<Value> {
        self.0
    }
}

impl From<Arc<Value>> for GivenCustom {
    fn from(value: Arc<Value>) -> Self {
        Self(value)
    }
}

impl Serialize for GivenCustom {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GivenCustom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
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
