//! Tenants.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Context;

/// A tenant. Calls in its name see its stored sessions and streams, and no others. Cloning is cheap.
///
/// The scope of a [principal](crate::Principal::scope) is a hash, and carries the [readable
/// name](Scope::tenant) that was hashed. Stores keep that name together with the hash, for their operators.
/// Comparisons ignore it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub struct Scope {
    name: Arc<str>,
    tenant: Option<Arc<str>>,
}

impl Scope {
    /// Creates the scope of a tenant.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            tenant: None,
        }
    }

    /// Adds the readable name of the tenant.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self {
            tenant: Some(tenant.into()),
            ..self
        }
    }

    /// Returns the tenant in the extensions of a call's context.
    pub fn brought_by(context: &Context) -> Option<Self> {
        context.extension::<Self>().map(|scope| Self::clone(&scope))
    }

    /// Returns the tenant's name in stores; `global` for the default scope.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Returns the tenant's readable name, if it is known and the name in stores is a hash of it: the id of a
    /// principal, or the name of its tenant.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new("global")
    }
}

crate::conversions! {
    From<Arc<str>> for Scope: |name| Self::new(name);
    From<Scope> for Arc<str>: |scope| scope.name;
}

crate::macros::compared_by!(Scope, as_str, ordered);

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.name)
    }
}
