//! Tenants.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Context;

/// A tenant: calls in its name see its stored sessions and streams, and no others. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(Arc<str>);

impl Scope {
    /// Creates the scope of a tenant.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the tenant in the extensions of a call's context.
    pub fn brought_by(context: &Context) -> Option<Self> {
        context.extension::<Self>().map(|scope| Self::clone(&scope))
    }

    /// Returns the tenant's name; `global` for the default scope.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new("global")
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.0)
    }
}
