//! The id of a request, which its caller and the operator can refer to.

use std::fmt;
use std::sync::Arc;

/// The longest id that is accepted from a request.
const LONGEST: usize = 128;

/// The id of the request that an invocation is part of; an extension of the context.
///
/// It is an attribute of the invocation's outermost span, part of the lines that report failures, and a
/// header of the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Returns the id that a caller chose, if it consists of at most 128 letters, digits and `-_.:/+=@`.
    pub fn given(id: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte);
        let is_usable = !id.is_empty() && id.len() <= LONGEST && id.bytes().all(is_plain);
        is_usable.then(|| Self(id.into()))
    }

    /// Creates a random id.
    pub fn random() -> Self {
        Self(format!("{:032x}", fastrand::u128(..)).into())
    }

    /// Returns the id of the request that the current invocation is part of; empty if there is none, for log
    /// lines.
    pub fn current() -> Self {
        Self::of(&crate::Context::current())
    }

    /// Returns the id of the request that an invocation is part of; empty if there is none, for log lines.
    pub fn of(context: &crate::Context) -> Self {
        context
            .extension::<Self>()
            .map_or_else(|| Self("".into()), Arc::unwrap_or_clone)
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_could_forge_a_log_line_is_not_taken() {
        assert!(RequestId::given("01J-a.b:c/7").is_some());
        for id in ["", "a b", "a\nb", "\u{1b}[31m", &"x".repeat(129)] {
            assert_eq!(RequestId::given(id), None, "{id:?}");
        }
    }
}
