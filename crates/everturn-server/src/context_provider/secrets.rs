//! Secrets by which callers are identified.

use std::collections::HashMap;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::Principal;

/// Secrets by their digest. A look-up compares digests, which a caller cannot steer, so its duration reveals
/// nothing about the secrets.
#[derive(Clone)]
pub(super) struct Secrets(HashMap<[u8; 32], Principal>);

impl Secrets {
    pub(super) fn new(secrets: impl IntoIterator<Item = (impl Into<String>, impl AsRef<str>)>) -> Self {
        let digest = |secret: &str| Sha256::digest(secret.as_bytes()).into();
        let entries = secrets
            .into_iter()
            // An empty secret is usually one that was not configured.
            .filter(|(_, secret)| !secret.as_ref().is_empty())
            .map(|(principal, secret)| (digest(secret.as_ref()), Principal::new(principal.into())));
        Self(entries.collect())
    }

    /// Gives a role to the owner of that name.
    pub(super) fn add_role(&mut self, owner: &str, role: &str) {
        for principal in self.0.values_mut().filter(|principal| principal.id() == owner) {
            *principal = principal.clone().with_role(role);
        }
    }

    pub(super) fn owner(&self, secret: &str) -> Option<&Principal> {
        let digest: [u8; 32] = Sha256::digest(secret.as_bytes()).into();
        self.0.get(&digest)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.values()).finish()
    }
}
