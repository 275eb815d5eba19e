//! The registry: every action under its key, plugins that provide more on demand, and named values.
//!
//! A registry owns its actions, so actions refer to it by a [`WeakRegistry`]: agents and prompts upgrade it
//! for each invocation. Handles of agents and applications are strong. Dropping an application therefore
//! frees its agents and their stores.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use futures::future::select_all;
use papaya::HashMap;
use tokio::sync::watch;

use crate::plugin::Installed;
use crate::{
    ActionType, Dependencies, Descriptor, DynAction, Error, ParsedKey, Plugin, Reason, Result, Schema,
};

/// Holds actions, plugins, schemas and values by key. Cloning gives another handle to the same registry.
///
/// Reading takes no lock. A child registry sees its parent's entries and adds its own, which are dropped with
/// it.
#[derive(Clone, Default)]
pub struct Registry(Arc<Tables>);

#[derive(Default)]
struct Tables {
    parent: Option<Registry>,
    actions: HashMap<String, Arc<dyn DynAction>>,
    plugins: HashMap<String, Arc<Installed>>,
    schemas: HashMap<String, Schema>,
    values: HashMap<String, Arc<dyn Any + Send + Sync>>,
    dependencies: Dependencies,
    /// Notified when an action is registered or removed; empty until the first subscription.
    changes: OnceLock<watch::Sender<()>>,
}

impl Tables {
    fn announce_change(&self) {
        if let Some(changes) = self.changes.get() {
            changes.send_replace(());
        }
    }

    fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.get_or_init(watch::Sender::default).subscribe()
    }
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a child registry, which looks in this one for entries it does not have.
    pub fn child(&self) -> Self {
        Self(Arc::new(Tables {
            parent: Some(self.clone()),
            dependencies: self.0.dependencies.child(),
            ..Tables::default()
        }))
    }

    /// Returns a handle that does not keep the registry alive, for actions that use the registry they are
    /// registered in.
    pub fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.0))
    }

    /// Returns whether both handles are of the same registry.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether this registry has a parent.
    pub fn is_child(&self) -> bool {
        self.0.parent.is_some()
    }

    /// Registers an action under its descriptor's key.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if this registry has that key; a parent's action is shadowed instead.
    pub fn register(&self, action: Arc<dyn DynAction>) -> Result<()> {
        self.register_under(&action.descriptor().key.clone(), action)
    }

    /// Registers an action under a key other than its descriptor's, for actions that have two keys.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if this registry has that key, `INVALID_ARGUMENT` if it is not of the form
    /// `/type/name`.
    pub fn register_under(&self, key: &str, action: Arc<dyn DynAction>) -> Result<()> {
        if ParsedKey::parse(key).is_none() {
            return Err(Error::invalid_argument(format!(
                "'{key}' is not an action key of the form /type/name"
            )));
        }
        insert_new(&self.0.actions, key, action, "an action")?;
        self.0.announce_change();
        Ok(())
    }

    /// Removes the action under a key from this registry and returns it; a parent's action stays.
    ///
    /// Callers that already hold the action can still use it.
    pub fn remove(&self, key: &str) -> Option<Arc<dyn DynAction>> {
        let removed = self.0.actions.pin().remove(key).cloned();
        if removed.is_some() {
            self.0.announce_change();
        }
        removed
    }

    /// Returns a way to wait for actions that are registered or removed from now on, here or in a parent.
    pub fn changes(&self) -> RegistryChanges {
        RegistryChanges(self.lineage().map(|registry| registry.0.subscribe()).collect())
    }

    /// Returns this registry and those above it.
    fn lineage(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |registry| registry.0.parent.as_ref())
    }

    /// Adds a plugin; it is initialised when first needed.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a plugin of that name, else the error of [`Plugin::check`].
    pub fn install(&self, plugin: Arc<dyn Plugin>) -> Result<()> {
        plugin.check()?;
        let name = plugin.name().to_owned();
        insert_new(
            &self.0.plugins,
            &name,
            Arc::new(Installed::new(plugin)),
            "a plugin",
        )
    }

    /// Returns the action under a key if it is registered here or in a parent, without asking plugins.
    pub fn get(&self, key: &str) -> Option<Arc<dyn DynAction>> {
        let own = self.0.actions.pin().get(key).cloned();
        own.or_else(|| self.0.parent.as_ref()?.get(key))
    }

    /// Returns the action under a key. If none is registered, asks the plugin whose name is the key's prefix.
    ///
    /// # Errors
    /// The plugin's error. An action that does not exist is `Ok(None)`.
    pub async fn lookup(&self, key: &str) -> Result<Option<Arc<dyn DynAction>>> {
        for registry in self.lineage() {
            if let Some(action) = registry.lookup_here(key).await? {
                return Ok(Some(action));
            }
        }
        Ok(None)
    }

    /// Like [`Registry::lookup`], where a missing action is an error.
    ///
    /// # Errors
    /// `NOT_FOUND` with [`Reason::ACTION_NOT_FOUND`] that names the key.
    pub async fn resolve(&self, key: &str) -> Result<Arc<dyn DynAction>> {
        self.lookup(key).await?.ok_or_else(|| {
            Error::not_found(format!("no action '{key}' is registered")).with_reason(Reason::ACTION_NOT_FOUND)
        })
    }

    async fn lookup_here(&self, key: &str) -> Result<Option<Arc<dyn DynAction>>> {
        // A child's own actions and plugins take precedence over its parent's.
        let own = |key: &str| self.0.actions.pin().get(key).cloned();
        if let Some(action) = own(key) {
            return Ok(Some(action));
        }
        let Some(parsed) = ParsedKey::parse(key) else {
            return Ok(None);
        };
        let Some((plugin, id)) = parsed.plugin() else {
            return Ok(None);
        };
        let Some(installed) = self.0.plugins.pin().get(plugin).cloned() else {
            return Ok(None);
        };
        self.initialise(&installed).await?;
        // Initialising the plugin may have registered it.
        if let Some(action) = own(key) {
            return Ok(Some(action));
        }
        installed.resolve(key, parsed, id).await
    }

    async fn initialise(&self, installed: &Installed) -> Result<()> {
        installed.initialise(|actions| self.register_all(&actions)).await
    }

    /// Registers all actions or, if one's key is taken, none, so that the plugin can be initialised again
    /// later.
    fn register_all(&self, actions: &[Arc<dyn DynAction>]) -> Result<()> {
        for (count, action) in actions.iter().enumerate() {
            if let Err(error) = self.register(Arc::clone(action)) {
                let table = self.0.actions.pin();
                for registered in &actions[..count] {
                    table.remove(&registered.descriptor().key);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns every registered action and every action that plugins can resolve, by key; a child's entry
    /// hides its parent's.
    ///
    /// # Errors
    /// The error of a plugin while it is initialised or listed.
    pub async fn list(&self) -> Result<BTreeMap<String, Descriptor>> {
        let lineage: Vec<_> = self.lineage().collect();
        let mut all = BTreeMap::new();
        for registry in lineage.into_iter().rev() {
            let plugins: Vec<_> = registry.0.plugins.pin().values().cloned().collect();
            for installed in plugins {
                registry.initialise(&installed).await?;
                for descriptor in installed.list().await? {
                    all.insert(descriptor.key.clone(), descriptor);
                }
                // Added after the plugins' lists, because a resolved action has a more complete description.
                let resolved = installed.resolved();
                all.extend(resolved.iter().map(|(key, action)| listed(key, action.as_ref())));
            }
            let actions = registry.0.actions.pin();
            all.extend(actions.iter().map(|(key, action)| listed(key, action.as_ref())));
        }
        Ok(all)
    }

    /// Returns the actions of one type registered here or in a parent, by name, without asking plugins.
    pub fn of_type(&self, action_type: &ActionType) -> BTreeMap<String, Arc<dyn DynAction>> {
        let mut found = BTreeMap::new();
        for registry in self.lineage() {
            for (key, action) in &registry.0.actions.pin() {
                if let Some(parsed) = ParsedKey::parse(key)
                    && parsed.action_type == action_type.as_str()
                {
                    let own = || Arc::clone(action);
                    found.entry(parsed.name.to_owned()).or_insert_with(own);
                }
            }
        }
        found
    }

    /// Registers a schema under a name, so that prompts can refer to it.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a schema of that name.
    pub fn register_schema(&self, name: &str, schema: Schema) -> Result<()> {
        insert_new(&self.0.schemas, name, schema, "a schema")
    }

    /// Returns the schema of that name, here or in a parent.
    pub fn schema(&self, name: &str) -> Option<Schema> {
        let own = self.0.schemas.pin().get(name).cloned();
        own.or_else(|| self.0.parent.as_ref()?.schema(name))
    }

    /// Stores a value under a key, such as the default model, and replaces an earlier one.
    pub fn set_value<T: Send + Sync + 'static>(&self, key: impl Into<String>, value: T) {
        self.0.values.pin().insert(key.into(), Arc::new(value));
    }

    /// Removes the value under a key from this registry; a parent's value stays.
    pub fn remove_value(&self, key: &str) {
        self.0.values.pin().remove(key);
    }

    /// Returns the value under a key, here or in a parent, if it is of type `T`.
    pub fn value<T: Send + Sync + 'static>(&self, key: &str) -> Option<Arc<T>> {
        let own = self.0.values.pin().get(key).cloned();
        match own {
            Some(value) => value.downcast().ok(),
            None => self.0.parent.as_ref()?.value(key),
        }
    }

    /// Provides a value to everything that runs for this registry. Tools, flows and turn loops take it as an
    /// argument ([`Dep`](crate::Dep)), and every other function finds it in its context
    /// ([`Context::dep`](crate::Context::dep)). It replaces an earlier value of its type.
    pub fn provide<T: Send + Sync + 'static>(&self, value: T) {
        self.0.dependencies.insert(value);
    }

    /// Declares that the context of every call provides a `T`, for example from a server's context provider,
    /// so that functions that take one can be defined.
    pub fn provided_by_each_call<T: Send + Sync + 'static>(&self) {
        self.0.dependencies.expect_of_each_call::<T>();
    }

    /// Returns the values given to [`Registry::provide`], for the context of a call.
    pub fn dependencies(&self) -> &Dependencies {
        &self.0.dependencies
    }

    /// Returns the keys that begin with `prefix` of all values here and in parents, sorted.
    pub fn value_keys(&self, prefix: &str) -> Vec<String> {
        let mut keys = BTreeSet::new();
        for registry in self.lineage() {
            let values = registry.0.values.pin();
            keys.extend(values.keys().filter(|key| key.starts_with(prefix)).cloned());
        }
        keys.into_iter().collect()
    }
}

/// Returns the list entry of an action under `key`, which may differ from its descriptor's key.
fn listed(key: &str, action: &dyn DynAction) -> (String, Descriptor) {
    let mut descriptor = action.descriptor().clone();
    if descriptor.key != key {
        if let Some(parsed) = ParsedKey::parse(key) {
            descriptor.action_type = ActionType::new(parsed.action_type.to_owned());
        }
        key.clone_into(&mut descriptor.key);
    }
    (key.to_owned(), descriptor)
}

fn insert_new<V>(map: &HashMap<String, V>, key: &str, value: V, what: &str) -> Result<()> {
    match map.pin().try_insert(key.to_owned(), value) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::already_exists(format!(
            "{what} is already registered as '{key}'"
        ))),
    }
}

/// The changes of a registry and its parents; see [`Registry::changes`].
#[derive(Debug)]
pub struct RegistryChanges(Vec<watch::Receiver<()>>);

impl RegistryChanges {
    /// Waits until an action is registered or removed; returns at once if one was since the last call.
    /// Changes between two calls count as one. Once the registry is dropped, the wait never ends.
    pub async fn changed(&mut self) {
        let waiting = self.0.iter_mut().map(|level| {
            Box::pin(async move {
                if level.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        });
        select_all(waiting).await;
    }
}

/// A handle to a registry that does not keep it alive. Cloning is cheap.
#[derive(Clone)]
pub struct WeakRegistry(Weak<Tables>);

impl WeakRegistry {
    /// Returns the registry.
    ///
    /// # Errors
    /// `UNAVAILABLE` once the registry is dropped, which happens when the program shuts down.
    pub fn upgrade(&self) -> Result<Registry> {
        let tables = self.0.upgrade();
        tables
            .map(Registry)
            .ok_or_else(|| Error::unavailable("the registry is gone: the program is shutting down"))
    }
}

crate::opaque_debug!(WeakRegistry);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut keys: Vec<String> = self.0.actions.pin().keys().cloned().collect();
        keys.sort_unstable();
        f.debug_struct("Registry")
            .field("actions", &keys)
            .field("parent", &self.0.parent)
            .finish_non_exhaustive()
    }
}
