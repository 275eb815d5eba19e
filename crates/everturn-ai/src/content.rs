//! The content of one message: text, a part, or several parts.

use crate::{Media, Part};

/// The content of a message, converted from text, a part or several parts.
///
/// Functions that take content accept `impl Into<Content>`: a string, a [`Part`], or a list of parts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content(Vec<Part>);

impl Content {
    /// Returns the parts.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Returns the parts, consuming the content.
    pub fn into_parts(self) -> Vec<Part> {
        self.0
    }
}

impl From<Part> for Content {
    fn from(part: Part) -> Self {
        Self(vec![part])
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self(parts)
    }
}

impl<const N: usize> From<[Part; N]> for Content {
    fn from(parts: [Part; N]) -> Self {
        Self(parts.into())
    }
}

impl From<&[Part]> for Content {
    fn from(parts: &[Part]) -> Self {
        Self(parts.to_vec())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Part::text(text).into()
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Part::text(text).into()
    }
}

impl From<&String> for Content {
    fn from(text: &String) -> Self {
        Part::text(text).into()
    }
}

impl From<Media> for Content {
    fn from(media: Media) -> Self {
        Part::from(media).into()
    }
}

impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}
