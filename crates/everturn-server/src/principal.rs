//! The principal: an identified caller.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

use everturn_agent::store::Scope;
use sha2::{Digest, Sha256};

/// An identified caller. A call sees only its principal's sessions, and the calls of a principal are counted together.
///
/// ```
/// use everturn_server::Principal;
///
/// let alice = Principal::new("alice");
///
/// assert_ne!(alice.scope(), Principal::new("Alice").scope());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Returns the principal of an id. Principals with equal ids are equal.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.0
    }

    /// Returns the tenant whose sessions this principal's calls see.
    ///
    /// The scope is a hash of the id: ids may have any characters and any length, while scopes become folder names, on file
    /// systems that may not distinguish `Alice` from `alice`.
    pub fn scope(&self) -> Scope {
        let digest = Sha256::digest(self.0.as_bytes());
        let mut name = String::from("principal-");
        for byte in &digest[..20] {
            let _ = write!(name, "{byte:02x}");
        }
        Scope::new(name)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({:?})", self.0)
    }
}
