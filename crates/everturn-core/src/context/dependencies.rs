//! Values that functions take by their type: a database handle, configuration, a client of another service.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use papaya::HashMap;

use super::Context;
use crate::{Error, Result};

/// A value that was given to the application or to the context of the call, found by its type. Cloning is
/// cheap.
///
/// It is an argument of tools, flows and turn loops, and [`Context::dep`] returns it anywhere else.
///
/// ```
/// use everturn_core::{Dep, Registry, Result};
///
/// struct Menu(Vec<&'static str>);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// registry.provide(Menu(vec!["soup", "bread"]));
///
/// let dish = registry.define_flow("dish", |number: usize, menu: Dep<Menu>| async move {
///     Ok(menu.0.get(number).copied().unwrap_or("nothing").to_owned())
/// })?;
///
/// assert_eq!(dish.run(1).await?, "bread");
/// # Ok(()) }
/// ```
pub struct Dep<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Dep<T> {
    /// Wraps a shared value, for calling a function by hand, as in a test.
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(value.into())
    }

    /// Returns the shared value.
    pub fn into_inner(self) -> Arc<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for Dep<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Dep<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Dep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The values that a registry provides to everything that runs for it. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct Dependencies(Arc<Table>);

#[derive(Default)]
struct Table {
    parent: Option<Dependencies>,
    entries: HashMap<TypeId, Entry>,
}

#[derive(Clone)]
enum Entry {
    Value(Arc<dyn Any + Send + Sync>),
    /// The context of every call provides a value of this type.
    EachCall,
}

impl Dependencies {
    /// Returns an empty table that falls back to this one.
    pub(crate) fn child(&self) -> Self {
        Self(Arc::new(Table {
            parent: Some(self.clone()),
            entries: HashMap::default(),
        }))
    }

    pub(crate) fn insert<T: Send + Sync + 'static>(&self, value: T) {
        let entry = Entry::Value(Arc::new(value));
        self.0.entries.pin().insert(TypeId::of::<T>(), entry);
    }

    pub(crate) fn expect_of_each_call<T: Send + Sync + 'static>(&self) {
        self.0.entries.pin().insert(TypeId::of::<T>(), Entry::EachCall);
    }

    fn entry(&self, id: TypeId) -> Option<Entry> {
        let own = self.0.entries.pin().get(&id).cloned();
        own.or_else(|| self.0.parent.as_ref()?.entry(id))
    }

    /// Returns whether a value of the type was given, or is declared to come with each call.
    pub(crate) fn covers(&self, id: TypeId) -> bool {
        self.entry(id).is_some()
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        match self.entry(TypeId::of::<T>())? {
            Entry::Value(value) => value.downcast().ok(),
            Entry::EachCall => None,
        }
    }
}

crate::opaque_debug!(Dependencies);

impl Context {
    /// Adds a value for the [`Dep`] arguments of everything that runs in this context; it replaces an earlier
    /// one of its type and hides the application's.
    ///
    /// A context provider of a server does this for every call. In a test it stands in for the application:
    ///
    /// ```
    /// use everturn_core::{Context, Dep, Result};
    ///
    /// struct Stove { is_on: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let stove: Dep<Stove> = Context::new().with(Stove { is_on: true }).dep()?;
    ///
    /// assert!(stove.is_on);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(self, value: T) -> Self {
        self.with_extension(Arc::new(value))
    }

    /// Returns the value of type `T` that was given to this context or, if there is none, to the application.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the type if neither was given one.
    pub fn dep<T: Send + Sync + 'static>(&self) -> Result<Dep<T>> {
        self.find_dep().ok_or_else(|| {
            let name = type_name::<T>();
            Error::failed_precondition(format!(
                "no {name} was given to this call: give one to the application with `.with(..)`, or to the context of the call"
            ))
        })
    }

    /// Like [`Context::dep`], with `None` for a missing value.
    pub fn find_dep<T: Send + Sync + 'static>(&self) -> Option<Dep<T>> {
        let own = self.extension::<T>();
        own.or_else(|| self.dependencies.as_ref()?.get()).map(Dep)
    }

    /// Sets the application whose values [`Context::dep`] finds.
    #[must_use]
    pub fn with_dependencies(mut self, dependencies: &Dependencies) -> Self {
        self.dependencies = Some(dependencies.clone());
        self
    }
}
