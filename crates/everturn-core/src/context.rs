//! The context of an invocation: its caller, its deadline, its cancellation and the values that providers
//! added.
//!
//! A context is passed to every action explicitly. It is also the *current* context inside the action's
//! future, so that functions several calls down find it without a parameter. It never leaks between
//! concurrent invocations: the current context belongs to the task that runs the action. A spawned task
//! starts without one; wrap its future in [`Context::scope`].

mod dependencies;

use std::any::{Any, TypeId};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures::TryFutureExt;
use futures::future::{self, BoxFuture};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::dependencies::{Dep, Dependencies};
use crate::{Error, HandlerResult, Result};

/// The number of extensions for which room is allocated at a time.
const ROOM: usize = 4;

tokio::task_local! {
    static CURRENT: Context;
}

/// The caller, deadline, cancellation and values of one invocation. Cloning is cheap; changing a clone does
/// not change the original.
#[derive(Clone, Default)]
pub struct Context {
    values: Arc<Map<String, Value>>,
    extensions: Arc<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>,
    /// The values of the application that the invocation belongs to.
    dependencies: Option<Dependencies>,
    cancellation: CancellationToken,
    deadline: Option<Instant>,
}

impl Context {
    /// Creates a context without values, deadline or extensions. Only its own [`cancel`](Context::cancel)
    /// ends it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the context of the invocation this code runs in, or a new one outside any invocation.
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Makes this the current context while `future` runs.
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }

    /// Adds a value, such as `auth`, visible to prompts as `@auth` and to every action called from here.
    pub fn with_value(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        Arc::make_mut(&mut self.values).insert(key.into(), value.into());
        self
    }

    /// Adds many values; a later one replaces an earlier one of the same name.
    pub fn with_values(mut self, values: Map<String, Value>) -> Self {
        Arc::make_mut(&mut self.values).extend(values);
        self
    }

    /// Returns the value under `key`, if any.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Returns all values.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns the value `auth`, which describes the caller.
    pub fn auth(&self) -> Option<&Value> {
        self.value("auth")
    }

    /// Adds an extension, which is found by its type and replaces an earlier one of that type.
    pub fn with_extension<T: Send + Sync + 'static>(mut self, extension: Arc<T>) -> Self {
        let added = TypeId::of::<T>();
        if Arc::get_mut(&mut self.extensions).is_none() {
            // Reserves capacity, because contexts get several extensions one after the other.
            let mut copy = Vec::with_capacity(self.extensions.len() + ROOM);
            copy.extend_from_slice(&self.extensions);
            self.extensions = Arc::new(copy);
        }
        let extensions = Arc::make_mut(&mut self.extensions);
        if let Some((_, earlier)) = extensions.iter_mut().find(|(id, _)| *id == added) {
            *earlier = extension;
            return self;
        }
        // Grows by a constant, because a turn keeps several contexts.
        if extensions.len() == extensions.capacity() {
            extensions.reserve_exact(ROOM);
        }
        extensions.push((added, extension));
        self
    }

    /// Returns the extension of type `T`, if any.
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let (_, found) = self.extensions.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        Arc::clone(found).downcast().ok()
    }

    /// Ends the invocation no later than `deadline`; an earlier deadline already set stays.
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self
    }

    /// Returns the time at which the invocation ends at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Creates a context that is cancelled together with this one and can also be cancelled alone.
    pub fn child(&self) -> Self {
        Self {
            cancellation: self.cancellation.child_token(),
            ..self.clone()
        }
    }

    /// Creates a context with the same values, without this one's cancellation and deadline: for work that
    /// outlives its caller.
    pub fn detached(&self) -> Self {
        Self {
            cancellation: CancellationToken::new(),
            deadline: None,
            ..self.clone()
        }
    }

    /// Replaces the cancellation: from now on `token` cancels this context.
    pub fn with_cancellation(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }

    /// Cancels the invocation and everything it called.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Returns whether the invocation was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Returns the token that [`Context::cancel`] cancels, for code that waits for it.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Waits until the invocation is cancelled or its deadline passes, and returns `CANCELLED` or
    /// `DEADLINE_EXCEEDED`.
    pub async fn ended(&self) -> Error {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.cancellation.cancelled() => cancelled(),
            () = deadline => out_of_time(),
        }
    }

    /// Returns whether the invocation was cancelled or its deadline passed.
    pub fn is_over(&self) -> bool {
        self.end().is_some()
    }

    /// Returns the reason why the invocation is already over, or `None` if it is not.
    fn end(&self) -> Option<Error> {
        if self.is_cancelled() {
            return Some(cancelled());
        }
        self.deadline
            .filter(|deadline| *deadline <= Instant::now())
            .map(|_| out_of_time())
    }

    /// Runs `future` until it completes or the invocation ends; an incomplete future is dropped.
    ///
    /// If both happen at once, the future's result counts. If the invocation is already over, `future` is not
    /// started.
    ///
    /// # Errors
    /// `CANCELLED` or `DEADLINE_EXCEEDED` if the invocation ended first, else the error that `future`
    /// returns.
    pub async fn guard<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        if let Some(error) = self.end() {
            // Without this, work that retries every failure would never yield, and an outer guard could not
            // end it.
            tokio::task::yield_now().await;
            return Err(error);
        }
        let future = std::pin::pin!(future);
        // The work is polled first, so that the innermost of nested guards returns the error and each outer
        // one can still record the outcome in its span.
        tokio::select! {
            biased;
            result = future => result,
            error = self.ended() => Err(error),
        }
    }

    /// Runs the function of an action as [`Context::guard`] does.
    ///
    /// The function is called at once, so that no future stores its arguments.
    pub(crate) fn guarding<T: Send + 'static>(
        self,
        function: impl FnOnce(Self) -> BoxFuture<'static, HandlerResult<T>>,
    ) -> impl Future<Output = Result<T>> {
        let work = if self.is_over() {
            Box::pin(future::pending())
        } else {
            function(self.clone())
        };
        async move { self.guard(work.err_into()).await }
    }
}

fn cancelled() -> Error {
    Error::cancelled("the invocation was cancelled")
}

fn out_of_time() -> Error {
    Error::deadline_exceeded("the invocation ran out of time")
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may hold credentials, which must not appear in a debug print.
        f.debug_struct("Context")
            .field("values", &self.values.keys().collect::<Vec<_>>())
            .field("cancelled", &self.is_cancelled())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Status;

    #[tokio::test]
    async fn concurrent_invocations_see_only_their_own_context() {
        let read = |name: &'static str| {
            Context::new().with_value("auth", name).scope(async {
                tokio::task::yield_now().await;
                Context::current().auth().cloned()
            })
        };

        let (one, two) = tokio::join!(read("one"), read("two"));

        assert_eq!(one, Some("one".into()));
        assert_eq!(two, Some("two".into()));
        assert!(Context::current().auth().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_deadline_wins_and_is_reported() {
        let soon = Instant::now() + Duration::from_secs(1);
        let context = Context::new()
            .with_deadline(soon)
            .with_deadline(soon + Duration::from_secs(9));

        let error = context
            .guard(std::future::pending::<Result<()>>())
            .await
            .unwrap_err();

        assert_eq!(error.status(), Status::DeadlineExceeded);
        assert_eq!(context.deadline(), Some(soon));
    }

    #[tokio::test]
    async fn cancelling_reaches_children_and_not_detached_work() {
        let parent = Context::new();
        let (child, detached) = (parent.child(), parent.detached());

        parent.cancel();

        assert!(child.is_cancelled());
        assert!(!detached.is_cancelled());
    }

    #[test]
    fn an_extension_is_found_by_type_and_replaced_by_type() {
        let context = Context::new()
            .with_extension(Arc::new(1_u32))
            .with_extension(Arc::new("a"));

        let replaced = context.clone().with_extension(Arc::new(2_u32));

        assert_eq!(context.extension::<u32>().as_deref(), Some(&1));
        assert_eq!(replaced.extension::<u32>().as_deref(), Some(&2));
        assert_eq!(replaced.extension::<&str>().as_deref(), Some(&"a"));
    }

    #[test]
    fn a_debug_print_shows_no_credentials() {
        let context = Context::new().with_value("auth", "secret-token");

        assert!(!format!("{context:?}").contains("secret-token"));
    }
}
