//! Plugins: sources of actions that are loaded when they are first needed.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{ActionType, Descriptor, DynAction, HandlerResult, ParsedKey, Registry, Result, catch_panic};

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

type Actions = Vec<Arc<dyn DynAction>>;

/// A plugin and the actions it has resolved so far.
///
/// Resolved actions are cached and read without a lock. Unknown names are not cached: a client could request
/// any number of them and fill the memory.
pub(crate) struct Installed {
    plugin: Arc<dyn Plugin>,
    initialised: OnceCell<()>,
    resolved: papaya::HashMap<String, Arc<dyn DynAction>>,
    queues: Mutex<Queues>,
}

/// For each key that is being resolved, the number of callers and their lock. The caller that holds the lock
/// calls the plugin; the others wait.
type Queues = HashMap<String, (usize, Arc<tokio::sync::Mutex<()>>)>;

impl Installed {
    pub(crate) fn new(plugin: Arc<dyn Plugin>) -> Self {
        Self {
            plugin,
            initialised: OnceCell::new(),
            resolved: papaya::HashMap::new(),
            queues: Mutex::default(),
        }
    }

    /// Passes the plugin's actions to `register`, once. If the plugin or `register` fails, the next call
    /// tries again.
    pub(crate) async fn initialise(&self, register: impl FnOnce(Actions) -> Result<()>) -> Result<()> {
        let init = || async {
            let actions = catch_panic(&self.what("init"), async { Ok(self.plugin.init().await?) }).await?;
            register(actions)
        };
        self.initialised.get_or_try_init(init).await.copied()
    }

    /// Returns the descriptors of the actions that the plugin can resolve.
    pub(crate) async fn list(&self) -> Result<Vec<Descriptor>> {
        catch_panic(&self.what("list"), async { Ok(self.plugin.list().await?) }).await
    }

    /// Returns the actions that the plugin has resolved so far, with their keys.
    pub(crate) fn resolved(&self) -> Vec<(String, Arc<dyn DynAction>)> {
        self.resolved
            .pin()
            .iter()
            .map(|(key, action)| (key.clone(), Arc::clone(action)))
            .collect()
    }

    /// Returns the action under a key of this plugin. Concurrent callers for one key share the first action
    /// found.
    pub(crate) async fn resolve(
        &self,
        key: &str,
        parsed: ParsedKey<'_>,
        id: &str,
    ) -> Result<Option<Arc<dyn DynAction>>> {
        let remembered = || self.resolved.pin().get(key).cloned();
        if let Some(action) = remembered() {
            return Ok(Some(action));
        }
        let place = QueuePlace::new(&self.queues, key);
        let _asking = place.lock.lock().await;
        // An earlier caller may have resolved the action while this one waited.
        if let Some(action) = remembered() {
            return Ok(Some(action));
        }
        let action_type = ActionType::new(parsed.action_type.to_owned());
        let ask = async { Ok(self.plugin.resolve(&action_type, id).await?) };
        let answer = catch_panic(&self.what("resolve"), ask).await?;
        if let Some(action) = &answer {
            self.resolved.pin().insert(key.to_owned(), Arc::clone(action));
        }
        Ok(answer)
    }

    /// Names one of the plugin's methods, for the error of a panic in it.
    fn what(&self, method: &str) -> String {
        format!("'{method}' of the plugin '{}'", self.plugin.name())
    }
}

/// One caller's place in the queue for a key. Dropping the last place removes the queue, also if the caller
/// was cancelled.
struct QueuePlace<'a> {
    queues: &'a Mutex<Queues>,
    key: &'a str,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> QueuePlace<'a> {
    fn new(queues: &'a Mutex<Queues>, key: &'a str) -> Self {
        let mut table = queues.lock();
        let (callers, lock) = table.entry(key.to_owned()).or_default();
        *callers += 1;
        let lock = Arc::clone(lock);
        Self { queues, key, lock }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut table = self.queues.lock();
        // Counted in the table, not by the lock's references, which are released only after this body, when
        // another thread may already have checked.
        if let Some((callers, _)) = table.get_mut(self.key) {
            *callers -= 1;
            if *callers == 0 {
                table.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::{FutureExt, join_all};

    use super::*;
    use crate::Error;

    /// A plugin that resolves no action, fails for the id `bad`, and yields once before it answers.
    struct Empty;

    impl Plugin for Empty {
        fn name(&self) -> &'static str {
            "empty"
        }

        fn resolve<'a>(
            &'a self,
            _: &'a ActionType,
            id: &'a str,
        ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
            Box::pin(async move {
                tokio::task::yield_now().await;
                if id == "bad" {
                    Err(Error::unavailable("gone").into())
                } else {
                    Ok(None)
                }
            })
        }
    }

    #[tokio::test]
    async fn unknown_names_leave_no_queue_and_no_action_behind() {
        let installed = Installed::new(Arc::new(Empty));
        let ask = |id: &'static str| {
            let parsed = ParsedKey {
                action_type: "model",
                name: id,
            };
            installed.resolve(id, parsed, id)
        };

        join_all([ask("a"), ask("a"), ask("b"), ask("b")]).await;
        assert!(ask("bad").await.is_err());
        assert!(ask("given up").now_or_never().is_none());

        assert!(installed.queues.lock().is_empty());
        assert!(installed.resolved().is_empty());
    }

    #[test]
    fn callers_that_leave_at_the_same_time_leave_no_queue_behind() {
        let queues = Mutex::default();
        let (first, second) = (QueuePlace::new(&queues, "a"), QueuePlace::new(&queues, "a"));
        // The first place's reference as it is between the end of its `drop` and the drop of its fields.
        let reference = Arc::clone(&first.lock);

        drop(first);
        drop(second);

        assert!(queues.lock().is_empty());
        drop(reference);
    }
}
