//! Templates: from Handlebars source to text with marks.
//!
//! `scan` → parser of the `handlebars` crate → `lower` → [`Program`](program::Program) → `machine` →
//! [`Output`](crate::output::Output).
//!
//! The `handlebars` crate parses; its grammar decides what a tag may say. Its renderer is not used, for three
//! reasons. It has no bounds: a partial that includes itself through a second one overflows the stack, and a loop
//! in a loop runs for ever. It copies the data at every partial. And its values print, compare and branch
//! differently from the JavaScript original. So the syntax tree is lowered to a program of our own, which borrows
//! the data, counts what it does and keeps JavaScript's rules.
//!
//! Marks (a role, the history, media, a section) are kept beside the text and never inside it. Data that happens
//! to spell a mark stays data: no input can open a system message.

mod ambient;
mod block;
mod builtin;
mod call;
mod include;
mod library;
mod lower;
mod machine;
mod markers;
mod path;
mod print;
mod program;
mod scan;
mod scope;
mod unit;
mod value;

pub(crate) use self::ambient::Ambient;
pub(crate) use self::library::Library;
pub(crate) use self::machine::render;
