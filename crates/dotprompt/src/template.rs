//! Templates: from Handlebars source to text with marks.
//!
//! `scan` → `parse` → [`Program`](program::Program) → `machine` → [`Output`](crate::output::Output).
//!
//! The language is that of JavaScript's Handlebars, and values print, compare and branch by JavaScript's
//! rules. The machine borrows the data, and every step, byte and level counts towards the
//! [`Limits`](crate::Limits).
//!
//! Marks (a role, the history, media, a section) are stored separately from the text. Data that
//! happens to spell a mark stays data: no input can open a system message.

mod block;
mod call;
mod include;
mod library;
mod machine;
mod markers;
mod parse;
mod path;
mod print;
mod program;
mod scan;
mod scope;
mod value;

pub(crate) use self::library::Library;
pub(crate) use self::machine::render;
pub(crate) use self::scope::Ambient;
