//! The model that is used when a request names none.

use everturn_core::Registry;

use crate::ModelReference;

const KEY: &str = "genkit/defaultModel";

/// Sets the model, and its configuration, for requests that name none.
pub fn set_default_model(registry: &Registry, model: impl Into<ModelReference>) {
    registry.set_value(KEY, model.into());
}

/// The model for requests that name none, if there is one.
pub fn default_model(registry: &Registry) -> Option<ModelReference> {
    registry
        .value::<ModelReference>(KEY)
        .map(|model| (*model).clone())
}
