//! Output formats by name.

use std::sync::Arc;

use everturn_core::{Error, Registry, Result};

use crate::format::{Format, builtin_formats};

const KEY: &str = "/format/";

struct Registered(Arc<dyn Format>);

/// Registers an output format under its name; it takes the place of a built-in one.
///
/// # Errors
/// `ALREADY_EXISTS` if a format of that name was registered before.
pub fn define_format(registry: &Registry, format: impl Format + 'static) -> Result<()> {
    let key = format!("{KEY}{}", format.name());
    if registry.value::<Registered>(&key).is_some() {
        return Err(Error::already_exists(format!(
            "a format is already registered as '{}'",
            format.name()
        )));
    }
    registry.set_value(key, Registered(Arc::new(format)));
    Ok(())
}

pub(super) fn lookup_format(registry: &Registry, name: &str) -> Result<Arc<dyn Format>> {
    if let Some(registered) = registry.value::<Registered>(&format!("{KEY}{name}")) {
        return Ok(Arc::clone(&registered.0));
    }
    let builtin = builtin_formats().into_iter().find(|format| format.name() == name);
    builtin
        .ok_or_else(|| Error::invalid_argument(format!("there is no output format '{name}'")).with_public())
}
