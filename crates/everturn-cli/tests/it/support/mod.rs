//! The program and a kitchen to use it on.

mod kitchen;
mod program;

pub(crate) use self::kitchen::Kitchen;
pub(crate) use self::program::Program;
