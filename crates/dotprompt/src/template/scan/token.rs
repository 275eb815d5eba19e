//! The tokens of a tag.

use std::borrow::Cow;

/// White space in a tag.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

#[derive(Clone)]
pub(in crate::template) enum Token<'s> {
    /// A name, a path, a number or a keyword.
    Word(&'s str),
    /// A string literal without its quotation marks and escapes.
    Text(Cow<'s, str>),
    /// A parenthesis, a bar or an equals sign.
    Symbol(char),
}

impl Token<'_> {
    /// Returns the name of a tag whose first token this is.
    pub(in crate::template) fn name(&self) -> &str {
        match self {
            Self::Word(word) => {
                let literal = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
                literal.filter(|literal| !literal.contains(']')).unwrap_or(word)
            }
            Self::Text(text) => text,
            Self::Symbol(_) => "",
        }
    }
}

pub(super) fn skip_space(source: &str, at: usize) -> usize {
    source.len() - source[at..].trim_start_matches(SPACE).len()
}

/// Returns whether the word can be one segment of a path without brackets, or the key of an argument.
pub(in crate::template) fn is_identifier(word: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_$:?".contains(c) || !c.is_ascii();
    !word.is_empty() && word.chars().all(is_allowed)
}

/// Returns whether the tag is `else` and not a longer name that starts with it.
pub(super) fn starts_with_else(rest: &str) -> bool {
    rest.strip_prefix("else")
        .is_some_and(|rest| rest.starts_with(SPACE) || rest.starts_with(['~', '}']))
}

/// Reads the token at the start of `rest` and returns its length with it. Returns `None` if `rest` is empty
/// or the token is not closed.
pub(super) fn read(rest: &str) -> Option<(Token<'_>, usize)> {
    let first = rest.chars().next()?;
    if first == '"' || first == '\'' {
        return string(rest, first);
    }
    Some(match word_length(rest)? {
        0 => (Token::Symbol(first), first.len_utf8()),
        length => (Token::Word(&rest[..length]), length),
    })
}

/// Reads a string by the rule of JavaScript's Handlebars: a backslash escapes the quotation mark and nothing
/// else.
fn string(rest: &str, quote: char) -> Option<(Token<'_>, usize)> {
    let is_end = |at: &usize| !rest[..*at].ends_with('\\');
    let mut quotes = rest.match_indices(quote).map(|(at, _)| at).skip(1);
    let end = quotes.find(is_end)?;
    let text = Cow::Borrowed(&rest[1..end]);
    let escaped = format!("\\{quote}");
    let text = if text.contains(&escaped) {
        Cow::Owned(text.replace(&escaped, &quote.to_string()))
    } else {
        text
    };
    Some((Token::Text(text), end + 1))
}

/// Returns the length of the word at the start of `rest`, including `[...]` segments; `None` if one is not
/// closed.
fn word_length(rest: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        if SPACE.contains(&c) || "\"'(){}|=~".contains(c) {
            break;
        }
        at += if c == '[' {
            rest[at..].find(']')? + 1
        } else {
            c.len_utf8()
        };
    }
    Some(at)
}
