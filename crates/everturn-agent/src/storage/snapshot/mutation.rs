//! The change that a store is given to apply: a transition, or a function in its place.

use std::sync::Arc;

use everturn_core::Result;

use super::{Snapshot, Transition};

type Change = dyn Fn(Option<&Snapshot>) -> Result<Option<Snapshot>> + Send + Sync;

/// Computes a snapshot from the one that is stored. Cloning is cheap.
///
/// Everturn itself makes mutations only from the transitions in its `snapshot` module. Decorators and tests
/// of stores make theirs with [`Mutation::new`].
#[derive(Clone)]
pub struct Mutation(Arc<Change>);

impl Mutation {
    /// Creates a mutation that calls a function with the stored snapshot, if there is one. `Ok(None)` writes
    /// nothing.
    ///
    /// A store may call the function more than once, so it must depend on its argument only and have no side
    /// effects.
    pub fn new(
        change: impl Fn(Option<&Snapshot>) -> Result<Option<Snapshot>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(change))
    }

    /// Computes the snapshot to write in the place of the stored one; `None` if nothing is to be written.
    ///
    /// # Errors
    /// The reason why the stored snapshot may not change like this. Nothing is then written.
    pub fn apply(&self, current: Option<&Snapshot>) -> Result<Option<Snapshot>> {
        (self.0)(current)
    }
}

impl From<Transition> for Mutation {
    fn from(transition: Transition) -> Self {
        Self::new(move |current| transition.apply(current))
    }
}

everturn_core::opaque_debug!(Mutation);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
        let nested = folders.iter().flat_map(|folder| sources(folder));
        files.into_iter().chain(nested).collect()
    }

    #[test]
    fn no_other_module_of_the_framework_makes_a_mutation_by_hand() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let makes_one = |path: &PathBuf| fs::read_to_string(path).unwrap().contains("Mutation::new(");

        let makers: Vec<_> = sources(&source)
            .into_iter()
            .filter(|path| !path.starts_with(source.join("storage").join("snapshot")))
            .filter(makes_one)
            .collect();

        assert!(
            makers.is_empty(),
            "{makers:?}: describe the change as a `Transition`"
        );
    }
}
