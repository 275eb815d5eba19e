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

everturn_core::conversions! {
    From<Part> for Content: |part| Self(vec![part]);
    From<Vec<Part>> for Content: |parts| Self(parts);
    From<&[Part]> for Content: |parts| Self(parts.to_vec());
    From<&str> for Content: |text| Part::text(text).into();
    From<String> for Content: |text| Part::text(text).into();
    From<&String> for Content: |text| Part::text(text).into();
    From<Media> for Content: |media| Part::from(media).into();
}

impl<const N: usize> From<[Part; N]> for Content {
    fn from(parts: [Part; N]) -> Self {
        Self(parts.into())
    }
}

impl FromIterator<Part> for Content {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}
