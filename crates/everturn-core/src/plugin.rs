//! Plugins: sources of actions that are loaded when they are first needed.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{ActionType, Descriptor, DynAction, HandlerResult, Registry};

/// A source of actions whose names share a prefix, such as all models of a provider.
///
/// Every method except `name` has a default, so a plugin implements only those it needs.
pub trait Plugin: Send + Sync + 'static {
    /// Returns the prefix of the plugin's actions: the action `openai/gpt-5` belongs to the plugin `openai`.
    fn name(&self) -> &str;

    /// Checks the plugin's settings and fails if one is missing or invalid, such as an API key. Called once,
    /// when the plugin is installed, so that a program fails at its start and not at the first call.
    fn check(&self) -> HandlerResult<()> {
        Ok(())
    }

    /// Prepares the plugin for the application, for example connects to a provider and lists its models.
    /// Called once, when the application is built, in the order in which plugins were added; an error fails
    /// the build.
    ///
    /// [`Registry::install`] alone does not call it.
    fn set_up<'a>(&'a self, registry: &'a Registry) -> BoxFuture<'a, HandlerResult<()>> {
        let _ = registry;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the actions that exist from the start, named with the plugin's prefix. Called once, when one
    /// of the plugin's names is first looked up or listed; if it fails, the next look-up tries again.
    fn init(&self) -> BoxFuture<'_, HandlerResult<Vec<Arc<dyn DynAction>>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Creates an action on demand, or returns `None` if there is none; `id` is the name without the plugin's
    /// prefix.
    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        let _ = (action_type, id);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns the descriptors of the actions that [`resolve`](Plugin::resolve) can create, for listings.
    fn list(&self) -> BoxFuture<'_, HandlerResult<Vec<Descriptor>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}
