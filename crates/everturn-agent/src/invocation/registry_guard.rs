//! Keeping an agent's registry until its invocation has begun.

use std::sync::Arc;

use everturn_core::{Context, Registry};
use parking_lot::Mutex;

/// A registry in the context of a call, which the invocation takes over when it begins.
///
/// It must not stay there: a context may be kept by a model or a tool, which the registry holds.
pub(crate) struct RegistryGuard(Mutex<Option<Registry>>);

impl RegistryGuard {
    /// Returns a context that keeps the registry.
    pub(crate) fn in_context(context: &Context, registry: &Registry) -> Context {
        let guard = Self(Mutex::new(Some(registry.clone())));
        context.clone().with_extension(Arc::new(guard))
    }

    /// Returns whether a call comes from a handle of the agent, which is this program. Every other call is a
    /// client's.
    ///
    /// The contexts of calls that the invocation makes itself have an guard that was released.
    pub(super) fn is_held(context: &Context) -> bool {
        let guard = context.extension::<Self>();
        guard.is_some_and(|guard| guard.0.lock().is_some())
    }

    /// Lets the registry of a context go.
    pub(super) fn release(context: &Context) {
        if let Some(guard) = context.extension::<Self>() {
            // Every change is a single assignment.
            guard.0.lock().take();
        }
    }
}
