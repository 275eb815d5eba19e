//! The identity of a failure.

/// The identity of a failure that callers match on, finer than a status and stable across message wording.
///
/// ```
/// use everturn_core::{Error, Reason};
///
/// const OUT_OF_STOCK: Reason = Reason::new("out-of-stock");
///
/// let error = Error::failed_precondition("no leeks left").with_reason(OUT_OF_STOCK);
/// assert!(error.is(OUT_OF_STOCK));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// An input was sent on a connection whose action has completed.
    pub const ACTION_COMPLETED: Self = Self("action-completed");
    /// An input was sent on a connection whose input was closed.
    pub const CONNECTION_CLOSED: Self = Self("connection-closed");
    /// No action is registered under the key.
    pub const ACTION_NOT_FOUND: Self = Self("action-not-found");
    /// The input does not match the action's schema.
    pub const INVALID_INPUT: Self = Self("invalid-input");
    /// The output does not match the action's schema.
    pub const INVALID_OUTPUT: Self = Self("invalid-output");
    /// A schema is not a valid JSON Schema.
    pub const INVALID_SCHEMA: Self = Self("invalid-schema");
    /// User code panicked.
    pub const PANIC: Self = Self("panic");

    /// Creates a reason; two reasons with the same name are equal.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name given to [`Reason::new`].
    pub const fn name(self) -> &'static str {
        self.0
    }
}
