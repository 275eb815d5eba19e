//! Middleware: code around each round of a generation, each model call and each tool call.
//!
//! A [`Middleware`] is a bundle of hooks created for one generate call, so its state spans all rounds of that
//! call and nothing else. In a list of several the first is the outermost for every hook. A middleware is
//! used as a value, as a closure (see [`model_hook`]), or by name through a [`MiddlewareDefinition`] in the
//! registry; `.prompt` files and remote callers use names.

mod calls;
mod closure;
mod definition;
mod hooks;
mod next;
mod source;
mod system_part;

pub use self::{
    calls::{GenerateRound, ModelCall, ToolCall},
    closure::{GenerateHook, ModelHook, ToolHook, generate_hook, model_hook, tool_hook},
    definition::{MiddlewareDefinition, define_middleware, middleware_descriptions},
    hooks::Middleware,
    next::{Next, NextModel, NextRound, NextTool},
    source::{Delegate, IntoMiddleware, MiddlewareSource},
    system_part::place_system_part,
};
