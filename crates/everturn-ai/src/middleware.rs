//! Middleware: code around each round of a generation, each model call and each tool call.
//!
//! A [`Middleware`] is a bundle of hooks created for one generate call, so its state spans all rounds of that
//! call and nothing else. In a list of several the first is the outermost for every hook. A middleware is
//! used as a value, as a closure (see [`model_hook`]), or by name through a [`MiddlewareDefinition`] in the
//! registry; `.prompt` files and remote callers use names.

mod closure;
mod hooks;
mod source;
mod system_part;

pub use self::{
    closure::{GenerateHook, ModelHook, ToolHook, generate_hook, model_hook, tool_hook},
    hooks::{GenerateRound, Middleware, ModelCall, Next, NextModel, NextRound, NextTool, ToolCall},
    source::{
        Delegate, IntoMiddleware, MiddlewareDefinition, MiddlewareSource, define_middleware,
        middleware_descriptions,
    },
    system_part::place_system_part,
};
