//! A plugin in a registry: initialised once, and for each name asked by one caller at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::panic::catch_panic;
use crate::{ActionType, Descriptor, DynAction, ParsedKey, Plugin, Result};

type Actions = Vec<Arc<dyn DynAction>>;

/// A plugin and what it has been asked so far.
///
/// What was found is remembered and read without a lock. What was not found is forgotten: names can be guessed without
/// end.
pub(crate) struct Installed {
    plugin: Arc<dyn Plugin>,
    initialised: OnceCell<()>,
    resolved: papaya::HashMap<String, Arc<dyn DynAction>>,
    asking: Mutex<Asking>,
}

/// The keys somebody asks the plugin for right now. Whoever holds a key's lock asks; the others wait for it.
type Asking = HashMap<String, Arc<tokio::sync::Mutex<()>>>;

impl Installed {
    pub(crate) fn new(plugin: Arc<dyn Plugin>) -> Self {
        Self {
            plugin,
            initialised: OnceCell::new(),
            resolved: papaya::HashMap::new(),
            asking: Mutex::default(),
        }
    }

    /// Hands the plugin's actions to `register`, once. If either fails, the next caller tries again.
    pub(crate) async fn initialise(&self, register: impl FnOnce(Actions) -> Result<()>) -> Result<()> {
        let init = || async {
            let actions = catch_panic(&self.what("init"), async { Ok(self.plugin.init().await?) }).await?;
            register(actions)
        };
        self.initialised.get_or_try_init(init).await.copied()
    }

    /// What the plugin could resolve.
    pub(crate) async fn list(&self) -> Result<Vec<Descriptor>> {
        catch_panic(&self.what("list"), async { Ok(self.plugin.list().await?) }).await
    }

    /// What the plugin has resolved so far, by key.
    pub(crate) fn resolved(&self) -> Vec<(String, Arc<dyn DynAction>)> {
        self.resolved
            .pin()
            .iter()
            .map(|(key, action)| (key.clone(), Arc::clone(action)))
            .collect()
    }

    /// The action under a key of this plugin. Concurrent callers share the answer of the first that finds one.
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
        let turn = Turn::new(&self.asking, key);
        let _asking = turn.lock.lock().await;
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

    fn what(&self, method: &str) -> String {
        format!("'{method}' of the plugin '{}'", self.plugin.name())
    }
}

/// One caller's place in the queue for a key; the last one to leave removes the queue, also if it is cancelled.
struct Turn<'a> {
    asking: &'a Mutex<Asking>,
    key: &'a str,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> Turn<'a> {
    fn new(asking: &'a Mutex<Asking>, key: &'a str) -> Self {
        let lock = Arc::clone(entered(asking).entry(key.to_owned()).or_default());
        Self { asking, key, lock }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut asking = entered(self.asking);
        // Clones are made and counted under the same lock, so two are the table's and this one.
        if Arc::strong_count(&self.lock) == 2 {
            asking.remove(self.key);
        }
    }
}

fn entered(asking: &Mutex<Asking>) -> MutexGuard<'_, Asking> {
    asking.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::future::{BoxFuture, FutureExt, join_all};

    use super::*;
    use crate::{Error, HandlerResult};

    /// Has nothing, fails on `bad`, and takes its time.
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
    async fn names_that_lead_nowhere_leave_nothing_behind() {
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

        assert!(entered(&installed.asking).is_empty());
        assert!(installed.resolved().is_empty());
    }
}
