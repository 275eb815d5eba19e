//! Which effect.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The identity of one effect: the same on every attempt at it, and no other effect's. Cloning is cheap.
///
/// It is made of letters and digits, fit for the idempotency key of any service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectId(Arc<str>);

impl EffectId {
    /// An identity that no effect has had.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().simple().to_string().into())
    }

    /// The identity as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for EffectId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<&str> for EffectId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for EffectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EffectId({})", self.0)
    }
}
