//! Access to the operations that change and export sessions over HTTP.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};

type Decision = dyn Fn(&Context) -> bool + Send + Sync;

/// Callers that may label, fork, copy, export, import and delete sessions over HTTP; by default no caller
/// may.
///
/// An allowed caller still reaches only the sessions of its tenant. Reading (listing, comparing, trees)
/// requires no such access.
///
/// ```
/// use everturn_core::Registry;
/// use everturn_server::{ArchiveAccess, Server};
///
/// // Every caller, for example on a machine of one's own:
/// let server = Server::new(&Registry::new()).archive(ArchiveAccess::everyone());
/// // Callers whose `auth` has `"role": "operator"`, or "operator" among its `roles`:
/// let server = Server::new(&Registry::new()).archive(ArchiveAccess::role("operator"));
/// # let _ = server;
/// ```
#[derive(Clone)]
#[must_use]
pub struct ArchiveAccess(Option<Arc<Decision>>);

impl ArchiveAccess {
    /// Allows no caller: the routes are not mounted.
    pub fn none() -> Self {
        Self(None)
    }

    /// Allows every caller.
    pub fn everyone() -> Self {
        Self::when(|_| true)
    }

    /// Allows callers with a role: their principal has it, or the value `auth` of their context has it as its
    /// `role` or in the list of its `roles`.
    pub fn role(role: impl Into<String>) -> Self {
        let role = role.into();
        Self::when(move |context| context.has_role(&role))
    }

    /// Allows callers for whose context `decide` returns `true`.
    pub fn when(decide: impl Fn(&Context) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }

    /// Returns whether any caller may have access.
    pub(crate) fn is_offered(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether a caller has access.
    pub(crate) fn allows(&self, context: &Context) -> bool {
        self.0.as_ref().is_some_and(|decide| decide(context))
    }

    /// Fails with `PERMISSION_DENIED` if a caller may not change or export sessions.
    pub(crate) fn check(&self, context: &Context) -> Result<()> {
        if self.allows(context) {
            return Ok(());
        }
        let message = "you may not change or export sessions on this server";
        Err(Error::permission_denied(message).with_public())
    }
}

impl Default for ArchiveAccess {
    fn default() -> Self {
        Self::none()
    }
}

everturn_core::opaque_debug!(ArchiveAccess);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_role_is_the_only_one_or_one_of_several() {
        let access = ArchiveAccess::role("operator");
        let caller = |auth: Value| {
            let values = [("auth".to_owned(), auth)].into_iter().collect();
            access.check(&Context::new().with_values(values)).is_ok()
        };

        assert!(caller(json!({"role": "operator"})));
        assert!(caller(json!({"roles": ["reader", "operator"]})));
        assert!(!caller(json!({"role": "reader", "roles": ["operators"]})));
        assert!(!caller(json!("operator")));
        assert!(access.check(&Context::new()).is_err());
        assert!(ArchiveAccess::none().check(&Context::new()).is_err());
    }
}
