//! Who calls.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

use everturn_agent::store::Scope;
use sha2::{Digest, Sha256};

/// Somebody who proved who they are: whose rows a call may see, and whose calls are counted together.
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
    /// The principal of that id; two with the same id are the same.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.0
    }

    /// The tenant whose rows this principal's calls see.
    ///
    /// It is made from a hash of the id: ids may hold anything and be of any length, scopes become the names of folders
    /// on file systems that do not tell `Alice` from `alice`.
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
