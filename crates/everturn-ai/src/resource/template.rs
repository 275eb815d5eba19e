//! Matching URIs against templates: level 1 of RFC 6570 in reverse.

use std::collections::BTreeMap;

use everturn_core::{Error, Result};

pub(super) struct Template {
    text: String,
    pieces: Vec<Piece>,
}

enum Piece {
    Literal(String),
    Variable(String),
}

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| invalid(text))?;
            let is_plain =
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
            // Two variables need a literal between them: otherwise it is ambiguous where the first one ends.
            let is_adjacent = literal.is_empty() && matches!(pieces.last(), Some(Piece::Variable(_)));
            if !is_plain || is_adjacent {
                return Err(invalid(text));
            }
            if !literal.is_empty() {
                pieces.push(Piece::Literal(literal.to_owned()));
            }
            pieces.push(Piece::Variable(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        Ok(Self {
            text: text.to_owned(),
            pieces,
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the values of the variables in `uri`, ignoring a query, a fragment or a closing slash that the
    /// template does not have.
    pub(super) fn matches(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let bare = uri.split(['?', '#']).next().unwrap_or(uri);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        self.matches_exactly(uri).or_else(|| self.matches_exactly(bare))
    }

    fn matches_exactly(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut variables = BTreeMap::new();
        let mut rest = uri;
        for (position, piece) in self.pieces.iter().enumerate() {
            let name = match piece {
                Piece::Literal(literal) => {
                    rest = rest.strip_prefix(literal.as_str())?;
                    continue;
                }
                Piece::Variable(name) => name,
            };
            let end = match &self.pieces[position + 1..] {
                [] => rest.len(),
                // The last literal is matched from the end, so that a value may contain it.
                [last] => rest.len().checked_sub(literal(last).len())?,
                [following, ..] => rest.find(literal(following))?,
            };
            let value = rest.get(..end).filter(|value| is_value(value))?;
            variables.insert(name.clone(), decoded(value)?);
            rest = &rest[end..];
        }
        rest.is_empty().then_some(variables)
    }
}

/// Returns the literal after a variable; there always is one.
fn literal(piece: &Piece) -> &str {
    match piece {
        Piece::Literal(text) | Piece::Variable(text) => text,
    }
}

/// Returns whether a text can be a variable's value: simple expansion escapes everything but unreserved
/// characters.
fn is_value(text: &str) -> bool {
    let is_unreserved = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%');
    !text.is_empty() && text.chars().all(is_unreserved)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

fn invalid(template: &str) -> Error {
    Error::invalid_argument(format!(
        "'{template}' is not a URI template of plain {{name}} expressions with text between them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(template: &str, uri: &str) -> Option<Vec<String>> {
        let variables = Template::parse(template).unwrap().matches(uri)?;
        Some(variables.into_values().collect())
    }

    #[test]
    fn variables_are_read_back_and_unescaped() {
        assert_eq!(matched("my://{id}", "my://7"), Some(vec!["7".to_owned()]));
        assert_eq!(
            matched("my://{a}/{b}.txt", "my://x%20y/z.1.txt"),
            Some(vec!["x y".to_owned(), "z.1".to_owned()])
        );
    }

    #[test]
    fn a_variable_holds_one_segment_and_is_not_empty() {
        assert_eq!(matched("my://{id}", "my://a/b"), None);
        assert_eq!(matched("my://{id}", "my://"), None);
        assert_eq!(matched("my://{id}", "your://7"), None);
        assert_eq!(matched("my://{id}", "my://%zz"), None);
    }

    #[test]
    fn query_fragment_and_a_closing_slash_do_not_matter() {
        for uri in ["my://7?x=1", "my://7#top", "my://7/"] {
            assert_eq!(matched("my://{id}", uri), Some(vec!["7".to_owned()]), "{uri}");
        }
    }

    #[test]
    fn other_expressions_are_refused() {
        for template in ["my://{+id}", "my://{a}{b}", "my://{", "my://{}"] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }
}
