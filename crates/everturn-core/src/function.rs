//! Functions of a program, with arguments from the context of their call.

use std::future::Future;

use futures::future::{self, BoxFuture, FutureExt as _};

use crate::{Context, FromContext, HandlerResult, Requirement};

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
