//! Arguments of a tool that come from the context of the call, not from the model.

use everturn_core::{FromContext, HandlerResult, Requirement};

use super::{Tool, ToolContext};

/// A type that a `#[tool]` function can take in addition to the model's input: every [`FromContext`] type,
/// and types that need the tool call itself.
///
/// ```
/// use everturn_ai::core::{Error, HandlerResult};
/// use everturn_ai::{FromToolContext, ToolContext};
///
/// /// The reference of the call in the model's message.
/// struct Reference(String);
///
/// impl FromToolContext for Reference {
///     fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
///         let reference = context.request().and_then(|request| request.reference.clone());
///         let missing = || Error::failed_precondition("the call has no reference");
///         Ok(Self(reference.ok_or_else(missing)?))
///     }
/// }
/// ```
///
/// The attribute recognises the framework's arguments by name: [`ToolContext`],
/// [`Context`](everturn_core::Context), [`Dep`](everturn_core::Dep) and
/// [`Principal`](everturn_core::Principal), also inside an `Option`, and an agent's `Session` and
/// `SessionHandle`. An argument of any other type that implements this trait is marked `#[context]`.
/// References to these types work too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a tool can take from its context",
    label = "`FromToolContext` is not implemented for this type",
    note = "arguments named `ToolContext`, `Context`, `Dep`, `Principal`, `Session` or `SessionHandle`, and those marked \
            `#[context]`, come from the context; give a type of your own another name if the model is to send it"
)]
pub trait FromToolContext: Sized + Send {
    /// Returns the requirement of this argument, if it can be checked before the tool is called.
    ///
    /// An agent compares the requirements of its tools with the values that it provides. Its definition fails
    /// if a tool's requirement is not met.
    fn requirement() -> Option<Requirement> {
        None
    }

    /// Extracts the argument from a call.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the call cannot provide it.
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self>;
}

impl FromToolContext for ToolContext {
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        Ok(context.clone())
    }
}

/// An argument of every kind of function: a [`Dep`](everturn_core::Dep), the
/// [`Principal`](everturn_core::Principal), the context of the invocation.
impl<T: FromContext> FromToolContext for T {
    fn requirement() -> Option<Requirement> {
        <T as FromContext>::requirement()
    }

    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        T::from_context(context.context())
    }
}

impl Tool {
    /// Declares that the tool takes a `T` from its context.
    ///
    /// `#[tool]` does this for its arguments; a tool made from a closure declares it here if it calls
    /// [`FromToolContext::from_tool_context`] itself.
    pub fn requiring<T: FromToolContext>(self) -> Self {
        match T::requirement() {
            Some(requirement) if !self.requirements().contains(&requirement) => {
                self.edit(|inner| inner.requirements.push(requirement))
            }
            _ => self,
        }
    }

    /// Returns the requirements of the tool's arguments.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0.requirements
    }
}
