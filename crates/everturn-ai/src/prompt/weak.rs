//! Prompts that do not keep their registry alive.

use std::fmt;
use std::sync::Arc;

use everturn_core::{Result, WeakRegistry};

use super::{Prompt, PromptSource};

/// A handle on a prompt that does not keep the prompt's registry alive, for actions and values that the
/// registry holds.
#[derive(Clone)]
pub struct WeakPrompt {
    name: Arc<str>,
    source: Arc<dyn PromptSource>,
    registry: WeakRegistry,
}

impl Prompt {
    /// Returns a handle that does not keep the prompt's registry alive.
    pub fn downgrade(&self) -> WeakPrompt {
        WeakPrompt {
            name: Arc::clone(&self.name),
            source: Arc::clone(&self.shared),
            registry: self.registry.downgrade(),
        }
    }
}

impl WeakPrompt {
    /// Returns the prompt.
    ///
    /// # Errors
    /// `UNAVAILABLE` once its registry is dropped.
    pub fn upgrade(&self) -> Result<Prompt> {
        let registry = self.registry.upgrade()?;
        Ok(Prompt::from_source(
            &registry,
            &self.name,
            Arc::clone(&self.source),
        ))
    }
}

impl fmt::Debug for WeakPrompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakPrompt").field(&self.name).finish()
    }
}
