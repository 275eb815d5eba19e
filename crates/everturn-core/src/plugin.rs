//! Plugins: sources of actions that are asked when they are first needed.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{ActionType, Descriptor, DynAction, HandlerResult, Registry};

/// Something that provides actions under a name prefix of its own, such as all models of a provider.
///
/// Every method but the name has a default, so a plugin implements what it offers.
pub trait Plugin: Send + Sync + 'static {
    /// The prefix: the action `openai/gpt-5` belongs to the plugin `openai`.
    fn name(&self) -> &str;

    /// Says what the plugin misses or was told wrongly, such as an API key. Asked once, when the plugin is installed, so
    /// that a program learns of it at its start and not with the first call.
    fn check(&self) -> HandlerResult<()> {
        Ok(())
    }

    /// Prepares the plugin for the application: connects, or asks a provider what there is. Called once, when the
    /// application is built, in the order in which plugins were added; an error fails the build.
    ///
    /// A registry that a plugin is [installed](Registry::install) in by hand does not call it.
    fn set_up<'a>(&'a self, registry: &'a Registry) -> BoxFuture<'a, HandlerResult<()>> {
        let _ = registry;
        Box::pin(std::future::ready(Ok(())))
    }

    /// The actions that exist from the start, named with the plugin's prefix. Called once, when one of the plugin's
    /// names is first looked up or listed; if it fails, the next look-up tries again.
    fn init(&self) -> BoxFuture<'_, HandlerResult<Vec<Arc<dyn DynAction>>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// An action that is made on demand; `id` is the name without the plugin's prefix.
    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        let _ = (action_type, id);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What could be resolved, for listings.
    fn list(&self) -> BoxFuture<'_, HandlerResult<Vec<Descriptor>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
