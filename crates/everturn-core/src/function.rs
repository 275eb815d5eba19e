//! Functions of a program, with arguments from the context of their call, in addition to their input.

use std::any::{TypeId, type_name};
use std::fmt;
use std::future::Future;

use futures::future::{self, BoxFuture, FutureExt as _};

use crate::{Context, Dep, Dependencies, Error, HandlerResult, Result};

/// An async function that a program gives to the framework. It takes the parameters `P` of its kind first,
/// such as the input of a flow, and then up to six arguments `A` from the context of the call
/// ([`FromContext`]).
///
/// It is implemented for closures and functions of that form. The types of a closure's parameters are written
/// out.
#[diagnostic::on_unimplemented(
    message = "this function cannot be called with {P} and arguments from its context",
    note = "it is async, takes {P} and then only types that implement `FromContext`, such as `Dep<Db>` and `Principal`, and \
            returns a `HandlerResult<{O}>`; the types of its parameters are written out"
)]
pub trait Function<P, O, A>: Send + Sync + 'static {
    /// Returns the requirements of the arguments, which are checked when the function is defined.
    fn requirements() -> Vec<Requirement>;

    /// Takes the arguments from `context` and calls the function. The future fails with the error of an
    /// argument that the context does not provide.
    fn call(&self, parameters: P, context: &Context) -> BoxFuture<'static, HandlerResult<O>>;
}

macro_rules! implement {
    ([$($parameter:ident),*] [$($argument:ident),*]) => {
        impl<F, Fut, Out, $($parameter,)* $($argument,)*> Function<($($parameter,)*), Out, ($($argument,)*)> for F
        where
            F: Fn($($parameter,)* $($argument,)*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = HandlerResult<Out>> + Send + 'static,
            Out: Send + 'static,
            $($argument: FromContext,)*
        {
            fn requirements() -> Vec<Requirement> {
                let requirements: Vec<Option<Requirement>> = vec![$($argument::requirement(),)*];
                requirements.into_iter().flatten().collect()
            }

            #[allow(non_snake_case, unused_variables)]
            fn call(
                &self,
                ($($parameter,)*): ($($parameter,)*),
                context: &Context,
            ) -> BoxFuture<'static, HandlerResult<Out>> {
                $(let $argument = match $argument::from_context(context) {
                    Ok(argument) => argument,
                    Err(error) => return future::ready(Err(error)).boxed(),
                };)*
                self($($parameter,)* $($argument,)*).boxed()
            }
        }
    };
}

macro_rules! implement_for {
    ($($parameters:tt)*) => {$(
        implement!($parameters []);
        implement!($parameters [A1]);
        implement!($parameters [A1, A2]);
        implement!($parameters [A1, A2, A3]);
        implement!($parameters [A1, A2, A3, A4]);
        implement!($parameters [A1, A2, A3, A4, A5]);
        implement!($parameters [A1, A2, A3, A4, A5, A6]);
    )*};
}

implement_for! { [P1] [P1, P2] [P1, P2, P3] }

/// The provider that a [`Requirement`] names for the values of the application.
const APPLICATION: &str = "application";

/// A type that tools, flows and turn loops can take as an argument in addition to their input, like an
/// extractor in axum.
///
/// [`Dep`], [`Principal`](crate::Principal), options of both, and [`Context`] implement it, and your own
/// types can.
///
/// ```
/// use everturn_core::{Context, Error, FromContext, HandlerResult, Registry, Result};
///
/// /// The language of the caller.
/// struct Language(String);
///
/// impl FromContext for Language {
///     fn from_context(context: &Context) -> HandlerResult<Self> {
///         let language = context.value("language").and_then(|value| value.as_str());
///         let missing = || Error::failed_precondition("the caller names no language");
///         Ok(Self(language.ok_or_else(missing)?.to_owned()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let hello = Registry::new().define_flow("hello", |name: String, language: Language| async move {
///     Ok(format!("{} {name}", if language.0 == "de" { "Hallo" } else { "Hello" }))
/// })?;
///
/// let german = Context::new().with_value("language", "de");
/// assert_eq!(german.scope(hello.run("Ann".to_owned())).await?, "Hallo Ann");
/// # Ok(()) }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a function can take from its context",
    label = "`FromContext` is not implemented for this type",
    note = "values given to the application are taken as `Dep<{Self}>`, and the caller as `Principal`"
)]
pub trait FromContext: Sized + Send {
    /// Returns the requirement of this argument, if it can be checked before the function is called. If the
    /// application does not meet it, defining the function fails, instead of its first call.
    fn requirement() -> Option<Requirement> {
        None
    }

    /// Extracts the argument from the context of a call.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the call cannot provide it.
    fn from_context(context: &Context) -> HandlerResult<Self>;
}

impl FromContext for Context {
    fn from_context(context: &Context) -> HandlerResult<Self> {
        Ok(context.clone())
    }
}

impl<T: Send + Sync + 'static> FromContext for Dep<T> {
    fn requirement() -> Option<Requirement> {
        Some(Requirement::new::<T>(APPLICATION))
    }

    fn from_context(context: &Context) -> HandlerResult<Self> {
        Ok(context.dep()?)
    }
}

impl<T: Send + Sync + 'static> FromContext for Option<Dep<T>> {
    fn from_context(context: &Context) -> HandlerResult<Self> {
        Ok(context.find_dep())
    }
}

/// A requirement of a function's argument: a value of some type from some provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Requirement {
    provider: &'static str,
    type_id: TypeId,
    type_name: &'static str,
}

impl Requirement {
    /// Creates the requirement of a `T` from `provider`; `session` is the provider of an agent's state, and
    /// `application` that of values given to the application.
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

impl Dependencies {
    /// Checks that the application can provide the arguments of `function`. Requirements from other providers
    /// are not checked.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the function and every missing type.
    pub fn check(&self, function: impl fmt::Display, requirements: &[Requirement]) -> Result<()> {
        let missing: Vec<&str> = requirements
            .iter()
            .filter(|needed| needed.provider == APPLICATION && !self.covers(needed.type_id))
            .map(|needed| needed.type_name)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let wanted: Vec<String> = missing.iter().map(|name| format!("Dep<{name}>")).collect();
        Err(Error::failed_precondition(format!(
            "{function} takes {}, and the application was given no {}: give the value to the application's builder with \
             `.with(..)`, or declare it with `.with_each_call::<..>()` if the context of every call brings it",
            wanted.join(", "),
            missing.join(", "),
        )))
    }
}
