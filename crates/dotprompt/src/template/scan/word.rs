//! The words inside a tag.

/// White space inside a tag.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) end: usize,
}

pub(super) enum TokenKind {
    /// A name, a path, a number or a keyword.
    Word(String),
    /// A string literal, decoded.
    Text(String),
    /// A parenthesis, a bar or an equals sign.
    Symbol(char),
}

impl Token {
    /// Returns the name of a tag whose first word this is.
    pub(super) fn name(&self) -> &str {
        match &self.kind {
            TokenKind::Word(word) => {
                let literal = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
                literal.filter(|literal| !literal.contains(']')).unwrap_or(word)
            }
            TokenKind::Text(text) => text,
            TokenKind::Symbol(_) => "",
        }
    }
}

pub(super) fn skip_space(source: &str, at: usize) -> usize {
    source.len() - source[at..].trim_start_matches(SPACE).len()
}

/// Returns whether the grammar accepts the word as a name.
pub(super) fn is_simple(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_$:".contains(c) || !c.is_ascii())
}

/// Returns whether the grammar accepts the word as the name of a partial.
pub(super) fn is_partial_name(word: &str) -> bool {
    word.chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_@/.".contains(c) || !c.is_ascii())
}

/// Returns whether the tag is `else` and not a longer name that starts with it.
pub(super) fn starts_with_else(rest: &str) -> bool {
    let Some(behind) = rest.strip_prefix("else") else {
        return false;
    };
    behind.starts_with(SPACE) || behind.starts_with(['~', '}'])
}

/// Reads the token at `start`; returns `None` at the end of the source, or if the token is not closed.
pub(super) fn token(source: &str, start: usize) -> Option<Token> {
    let rest = &source[start..];
    let first = rest.chars().next()?;
    if first == '"' || first == '\'' {
        let (text, length) = string(rest, first)?;
        return Some(Token {
            kind: TokenKind::Text(text),
            end: start + length,
        });
    }
    let length = word_length(rest)?;
    if length == 0 {
        return Some(Token {
            kind: TokenKind::Symbol(first),
            end: start + first.len_utf8(),
        });
    }
    Some(Token {
        kind: TokenKind::Word(rest[..length].to_owned()),
        end: start + length,
    })
}

/// Reads a string by the rule of JavaScript's Handlebars: a backslash escapes the quotation mark and nothing else.
fn string(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Some((text, at + 1));
        }
        if c == '\\' && chars.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            text.push(c);
        }
    }
    None
}

/// Returns the length of the word at the start of `rest`, including `[...]` segments; `None` if one is not closed.
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
