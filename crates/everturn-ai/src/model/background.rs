//! Models whose response takes minutes: a call starts an operation, which is then polled until it is done.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use everturn_core::{Action, ActionType, Context, DynAction, Error, HandlerResult, Registry, Result};

use super::preparation::Preparation;
use super::provider::descriptor_metadata;
use crate::primitive::run;
use crate::{ModelInfo, ModelRequest, Operation};

pub(super) type StartAction = Action<ModelRequest, Operation>;
type OperationAction = Action<Operation, Operation>;

/// A model that works in the background.
///
/// ```
/// use everturn_ai::{BackgroundModel, ModelInfo, Operation, check_operation};
/// use everturn_core::{Registry, Result};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let registry = Registry::new();
/// BackgroundModel::new(
///     "film",
///     ModelInfo::default(),
///     |_request, _context| async { Ok(Operation { id: "7".to_owned(), ..Operation::default() }) },
///     |operation, _context| async move { Ok(Operation { done: Some(true), ..operation }) },
/// )
/// .register(&registry)?;
///
/// let started = Operation { id: "7".to_owned(), action: Some("/background-model/film".to_owned()), ..Operation::default() };
/// assert_eq!(check_operation(&registry, started).await?.done, Some(true));
/// # Ok(()) }
/// ```
pub struct BackgroundModel {
    start: StartAction,
    check: OperationAction,
    cancel: Option<OperationAction>,
}

impl BackgroundModel {
    /// Creates a model from the function that starts an operation and the one that polls it.
    pub fn new<S, SFut, C, CFut>(name: impl Into<String>, info: ModelInfo, start: S, check: C) -> Self
    where
        S: Fn(ModelRequest, Context) -> SFut + Send + Sync + 'static,
        SFut: Future<Output = HandlerResult<Operation>> + Send + 'static,
        C: Fn(Operation, Context) -> CFut + Send + Sync + 'static,
        CFut: Future<Output = HandlerResult<Operation>> + Send + 'static,
    {
        let name = name.into();
        let mut metadata = descriptor_metadata(&name, &info, None);
        metadata.insert("type".to_owned(), ActionType::BACKGROUND_MODEL.as_str().into());
        let key = ActionType::BACKGROUND_MODEL.key(&name);
        let shared = Arc::new((start, Preparation::new(&name, info, None, None), key.clone()));
        let start = Action::new(
            ActionType::BACKGROUND_MODEL,
            name.as_str(),
            move |request, context| {
                let shared = Arc::clone(&shared);
                async move {
                    let (start, preparation, key) = &*shared;
                    let request = preparation.prepare(request, &context).await?;
                    Ok(stamped(start(request, context).await?, key))
                }
            },
        );
        Self {
            start: start.with_metadata(metadata),
            check: operation_action(ActionType::CHECK_OPERATION, &name, key, check),
            cancel: None,
        }
    }

    /// Sets the function that cancels an operation.
    pub fn with_cancel<F, Fut>(self, cancel: F) -> Self
    where
        F: Fn(Operation, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Operation>> + Send + 'static,
    {
        let key = self.start.descriptor().key.clone();
        let cancel = operation_action(ActionType::CANCEL_OPERATION, self.start.name(), key, cancel);
        Self {
            cancel: Some(cancel),
            ..self
        }
    }

    /// Returns the actions of the model, for plugins that provide it.
    pub fn actions(&self) -> Vec<Arc<dyn DynAction>> {
        let mut actions: Vec<Arc<dyn DynAction>> =
            vec![Arc::new(self.start.clone()), Arc::new(self.check.clone())];
        if let Some(cancel) = &self.cancel {
            actions.push(Arc::new(cancel.clone()));
        }
        actions
    }

    /// Registers the model.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if there is a background model of that name.
    pub fn register(&self, registry: &Registry) -> Result<()> {
        self.actions()
            .into_iter()
            .try_for_each(|action| registry.register(action))
    }
}

impl fmt::Debug for BackgroundModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("BackgroundModel")
            .field(&self.start.name())
            .finish()
    }
}

fn operation_action<F, Fut>(action_type: ActionType, name: &str, key: String, function: F) -> OperationAction
where
    F: Fn(Operation, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<Operation>> + Send + 'static,
{
    let shared = Arc::new((function, key));
    Action::new(action_type, name, move |operation, context| {
        let shared = Arc::clone(&shared);
        async move {
            let (function, key) = &*shared;
            Ok(stamped(function(operation, context).await?, key))
        }
    })
}

/// Stamps an operation with the key of the action that checks it.
fn stamped(mut operation: Operation, key: &str) -> Operation {
    operation.action.get_or_insert_with(|| key.to_owned());
    operation
}

/// Returns the current state of an operation.
///
/// # Errors
/// `INVALID_ARGUMENT` if the operation does not name the model that started it, `NOT_FOUND` if that model is
/// not registered, or the provider's error.
pub async fn check_operation(registry: &Registry, operation: Operation) -> Result<Operation> {
    let action = find(registry, &operation, &ActionType::CHECK_OPERATION, "check")
        .await?
        .ok_or_else(|| {
            let started_by = operation.action.as_deref().unwrap_or_default();
            Error::not_found(format!("no background model '{started_by}' is registered"))
                .with_reason(crate::reason::MODEL_NOT_FOUND)
        })?;
    run(action, operation, Context::current()).await
}

/// Cancels an operation.
///
/// # Errors
/// As [`check_operation`]; `UNAVAILABLE` if the model's operations cannot be cancelled.
pub async fn cancel_operation(registry: &Registry, operation: Operation) -> Result<Operation> {
    let action = find(registry, &operation, &ActionType::CANCEL_OPERATION, "cancel").await?;
    let action = action.ok_or_else(|| {
        let started_by = operation.action.as_deref().unwrap_or_default();
        Error::unavailable(format!("operations of '{started_by}' cannot be cancelled"))
    })?;
    run(action, operation, Context::current()).await
}

/// Looks up an action of a background model under its name and, as other runtimes register it, under its name
/// with a suffix.
async fn find(
    registry: &Registry,
    operation: &Operation,
    action_type: &ActionType,
    suffix: &str,
) -> Result<Option<Arc<dyn DynAction>>> {
    let started_by = operation.action.as_deref().ok_or_else(|| {
        Error::invalid_argument("the operation does not say which action started it").with_public()
    })?;
    let name = everturn_core::ParsedKey::parse(started_by).map_or(started_by, |key| key.name);
    match registry.lookup(&action_type.key(name)).await? {
        Some(action) => Ok(Some(action)),
        None => {
            registry
                .lookup(&action_type.key(&format!("{name}/{suffix}")))
                .await
        }
    }
}
