//! The built-in helpers by name, and the checks of their arguments at compile time.

use super::program::{BlockKind, Call, Callee, Expr};
use crate::error::ErrorKind;

/// Creates the error for a helper with wrong arguments.
pub(super) fn helper_error(name: &str, message: impl Into<String>) -> ErrorKind {
    ErrorKind::Helper {
        name: name.to_owned(),
        message: message.into(),
    }
}

impl Callee {
    pub(super) fn builtin(name: &str) -> Option<Self> {
        Some(match name {
            "lookup" => Self::Lookup,
            "log" => Self::Log,
            "json" => Self::Json,
            "role" => Self::Role,
            "history" => Self::History,
            "section" => Self::Section,
            "media" => Self::Media,
            _ => return None,
        })
    }

    /// Returns the helper's name if it leaves a mark instead of a value.
    pub(super) fn marking(&self) -> Option<&'static str> {
        match self {
            Self::Role => Some("role"),
            Self::History => Some("history"),
            Self::Section => Some("section"),
            Self::Media => Some("media"),
            Self::Lookup | Self::Log | Self::Json | Self::Custom(..) => None,
        }
    }
}

impl Call {
    /// Returns the mistake in the arguments of a built-in helper.
    pub(super) fn argument_error(&self) -> Option<&'static str> {
        match self.callee {
            Callee::Lookup if self.args.len() != 2 => Some("it takes an object and a key"),
            Callee::Json if self.args.len() != 1 => Some("it takes one value"),
            Callee::Role | Callee::Section if self.args.len() != 1 => Some("it takes one name"),
            Callee::History if !self.args.is_empty() => Some("it takes no argument"),
            Callee::Media if !self.hash.iter().any(|(key, _)| **key == *"url") => Some("it needs url=..."),
            _ => None,
        }
    }
}

impl BlockKind {
    pub(super) fn is_builtin(name: &str) -> bool {
        matches!(
            name,
            "if" | "unless" | "each" | "with" | "ifEquals" | "unlessEquals"
        )
    }

    /// Returns the built-in block of that name, or the mistake in its arguments.
    pub(super) fn builtin(
        name: &str,
        args: Vec<Expr>,
        include_zero: Option<Expr>,
    ) -> Result<Self, &'static str> {
        let mut args = args.into_iter();
        match (name, args.next(), args.next(), args.next()) {
            ("ifEquals" | "unlessEquals", Some(left), Some(right), None) => Ok(Self::Equals {
                left,
                right,
                negated: name == "unlessEquals",
            }),
            ("ifEquals" | "unlessEquals", ..) => Err("it takes two arguments"),
            ("each", Some(list), None, _) => Ok(Self::Each(list)),
            ("with", Some(value), None, _) => Ok(Self::With(value)),
            (_, Some(condition), None, _) => Ok(Self::If {
                condition,
                include_zero,
                negated: name == "unless",
            }),
            _ => Err("it takes one argument"),
        }
    }
}
