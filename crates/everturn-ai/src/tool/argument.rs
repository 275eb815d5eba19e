//! Arguments of a tool that come from the context of the call, not from the model.

use std::any::{TypeId, type_name};
use std::fmt;

use everturn_core::{Context, HandlerResult};

use super::{Tool, ToolContext};

/// A type that a `#[tool]` function can take beside the model's input, like an extractor in axum.
///
/// ```
/// use everturn_ai::core::{Error, HandlerResult};
/// use everturn_ai::{FromToolContext, ToolContext};
///
/// /// The language of the caller.
/// struct Language(String);
///
/// impl FromToolContext for Language {
///     fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
///         let language = context.context().value("language").and_then(|value| value.as_str());
///         let missing = || Error::failed_precondition("the caller names no language");
///         Ok(Self(language.ok_or_else(missing)?.to_owned()))
///     }
/// }
/// ```
///
/// The attribute recognises the framework's arguments by name: [`ToolContext`], [`Context`], and an agent's `Session`
/// and `SessionHandle`. An argument of any other type that implements this trait is marked `#[context]`. References to
/// these types work too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a tool can take from its context",
    label = "`FromToolContext` is not implemented for this type",
    note = "arguments named `ToolContext`, `Context`, `Session` or `SessionHandle`, and those marked `#[context]`, come from \
            the context; give a type of your own another name if the model is to send it"
)]
pub trait FromToolContext: Sized + Send {
    /// Returns the requirement of this argument, if it can be checked before the tool is called.
    ///
    /// An agent compares the requirements of its tools with what it provides, and refuses at definition a tool whose
    /// requirements it cannot meet.
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

impl FromToolContext for Context {
    fn from_tool_context(context: &ToolContext) -> HandlerResult<Self> {
        Ok(context.context().clone())
    }
}

/// A requirement of a tool's argument: a value of some type from some provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requirement {
    provider: &'static str,
    type_id: TypeId,
    type_name: &'static str,
}

impl Requirement {
    /// Creates the requirement of a `T` from `provider`; `session` is the provider of an agent's state.
    pub fn new<T: 'static>(provider: &'static str) -> Self {
        Self {
            provider,
            type_id: TypeId::of::<T>(),
            type_name: type_name::<T>(),
        }
    }

    /// Returns the name of the provider.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Returns whether a `T` meets the requirement.
    pub fn is<T: 'static>(&self) -> bool {
        self.type_id == TypeId::of::<T>()
    }

    /// Returns the name of the required type.
    pub fn type_name(&self) -> &'static str {
        self.type_name
    }
}

impl fmt::Debug for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.provider, self.type_name)
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
