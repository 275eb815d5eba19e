//! Arguments of a tool that come from the call's circumstances, not from the model.

use std::any::{TypeId, type_name};
use std::fmt;

use everturn_core::{Context, HandlerResult};

use super::{Tool, ToolContext};

/// A type that a `#[tool]` function can take beside what the model sends, as extractors are taken in axum.
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
/// The attribute knows the arguments of the framework by their names: [`ToolContext`], [`Context`], and an agent's
/// `Session` and `SessionHandle`. An argument of any other type that implements this trait is marked `#[context]`. A
/// reference to such a type is an argument too.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a tool can take from its context",
    label = "`FromToolContext` is not implemented for this type",
    note = "arguments named `ToolContext`, `Context`, `Session` or `SessionHandle`, and those marked `#[context]`, come from \
            the context; give a type of your own another name if the model is to send it"
)]
pub trait FromToolContext: Sized + Send {
    /// What has to be there for the argument to be there, where that can be checked before the tool is called.
    ///
    /// Whoever is given the tool and knows what it provides, such as an agent when it is defined, refuses a tool whose
    /// requirements it cannot meet.
    fn requirement() -> Option<Requirement> {
        None
    }

    /// Takes the argument from a call.
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

/// What an argument of a tool needs: a value of some type, provided in some way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requirement {
    provider: &'static str,
    type_id: TypeId,
    type_name: &'static str,
}

impl Requirement {
    /// A value of type `T` from `provider`, which names who provides such values: `session` is an agent's.
    pub fn new<T: 'static>(provider: &'static str) -> Self {
        Self {
            provider,
            type_id: TypeId::of::<T>(),
            type_name: type_name::<T>(),
        }
    }

    /// Who provides such values.
    pub fn provider(&self) -> &'static str {
        self.provider
    }

    /// Whether a `T` is what is needed.
    pub fn is<T: 'static>(&self) -> bool {
        self.type_id == TypeId::of::<T>()
    }

    /// The name of the type that is needed.
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
    /// The same tool, declared to take a `T` from its context.
    ///
    /// `#[tool]` does this for its arguments; a tool made from a closure says it here if it calls
    /// [`FromToolContext::from_tool_context`] itself.
    pub fn requiring<T: FromToolContext>(self) -> Self {
        match T::requirement() {
            Some(requirement) if !self.requirements().contains(&requirement) => {
                self.edit(|inner| inner.requirements.push(requirement))
            }
            _ => self,
        }
    }

    /// What the tool's arguments need beside what the model sends.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0.requirements
    }
}
