//! Paths to values: `customer.name`, `../x`, `@state.count`, `items.[0]`, `this`.

use super::scan::is_identifier;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Path {
    pub(super) origin: Origin,
    pub(super) keys: Vec<Box<str>>,
}

/// The start of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Origin {
    /// The context, this number of blocks up.
    Scope(usize),
    /// An `@` variable, this number of loops up.
    Variable { up: usize, name: Box<str> },
    /// A block parameter: the number of blocks with parameters up, and the index of the name.
    Parameter { up: usize, slot: usize },
}

impl Path {
    /// Parses a path, or returns `None` if it is not well formed. `parameters` are the visible block
    /// parameters, those of the innermost block last.
    pub(super) fn parse(raw: &str, parameters: &[Vec<Box<str>>]) -> Option<Self> {
        let (variable, mut rest) = match raw.strip_prefix('@') {
            Some(rest) => (true, rest),
            None => (false, raw),
        };
        let mut up = 0;
        let mut explicit = false;
        loop {
            if let Some(tail) = strip_segment(rest, "..") {
                up += 1;
                rest = tail;
            } else if let Some(tail) = strip_segment(rest, ".").or_else(|| strip_segment(rest, "this")) {
                rest = tail;
            } else {
                break;
            }
            explicit = true;
        }
        let mut keys = split_keys(rest)?;
        let origin = if variable {
            let name = (!keys.is_empty()).then(|| keys.remove(0))?;
            Origin::Variable { up, name }
        } else if !explicit && let Some(origin) = keys.first().and_then(|name| parameter(name, parameters)) {
            keys.remove(0);
            origin
        } else {
            Origin::Scope(up)
        };
        Some(Self { origin, keys })
    }

    pub(super) fn key(name: &str) -> Self {
        Self {
            origin: Origin::Scope(0),
            keys: vec![name.into()],
        }
    }
}

/// Removes `segment` and its separator from the start of `text`, if it is a whole segment there.
fn strip_segment<'t>(text: &'t str, segment: &str) -> Option<&'t str> {
    let rest = text.strip_prefix(segment)?;
    // After `.` only a slash is a separator: `..` is another segment, and `.5` is not a segment.
    strip_separator(rest, if segment == "this" { &['.', '/'] } else { &['/'] })
}

/// Removes the separator at the start of `text`. A separator must precede every further segment and nothing
/// else.
fn strip_separator<'t>(text: &'t str, separators: &[char]) -> Option<&'t str> {
    if text.is_empty() {
        return Some(text);
    }
    text.strip_prefix(separators).filter(|rest| !rest.is_empty())
}

fn split_keys(mut rest: &str) -> Option<Vec<Box<str>>> {
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let (key, tail) = match rest.strip_prefix('[') {
            Some(literal) => literal.split_once(']')?,
            None => rest.split_at(rest.find(['.', '/']).unwrap_or(rest.len())),
        };
        if !rest.starts_with('[') && !is_identifier(key) {
            return None;
        }
        keys.push(key.into());
        rest = strip_separator(tail, &['.', '/'])?;
    }
    Some(keys)
}

fn parameter(name: &str, parameters: &[Vec<Box<str>>]) -> Option<Origin> {
    parameters.iter().rev().enumerate().find_map(|(up, names)| {
        let slot = names.iter().position(|bound| **bound == *name)?;
        Some(Origin::Parameter { up, slot })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(up: usize, keys: &[&str]) -> Path {
        Path {
            origin: Origin::Scope(up),
            keys: keys.iter().map(|key| (*key).into()).collect(),
        }
    }

    #[test]
    fn every_way_to_write_a_path_is_read() {
        for (raw, expected) in [
            ("a", scope(0, &["a"])),
            ("a.b/c", scope(0, &["a", "b", "c"])),
            ("this", scope(0, &[])),
            ("this.a", scope(0, &["a"])),
            ("this/a", scope(0, &["a"])),
            ("./a", scope(0, &["a"])),
            (".", scope(0, &[])),
            ("..", scope(1, &[])),
            ("../../a", scope(2, &["a"])),
            ("../this.a", scope(1, &["a"])),
            ("[a b].c", scope(0, &["a b", "c"])),
            ("a.[b.c].[0]", scope(0, &["a", "b.c", "0"])),
            ("thistle", scope(0, &["thistle"])),
            ("../..", scope(2, &[])),
            ("this.[1]", scope(0, &["1"])),
        ] {
            assert_eq!(Path::parse(raw, &[]), Some(expected), "{raw}");
        }
    }

    #[test]
    fn a_path_with_an_empty_or_invalid_segment_is_refused() {
        for raw in [
            "a.",
            "a..b",
            "a/../b",
            "../",
            "./",
            "this.",
            "...",
            "@",
            "@.",
            "@this",
            "[a]b",
            "a[b]",
            "a&b",
            "this.@index",
            "a.#",
        ] {
            assert_eq!(Path::parse(raw, &[]), None, "{raw}");
        }
    }

    #[test]
    fn a_variable_keeps_its_sub_path() {
        let path = Path::parse("@../state.a.b", &[]).unwrap();

        let origin = Origin::Variable {
            up: 1,
            name: "state".into(),
        };
        assert_eq!(
            path,
            Path {
                origin,
                keys: vec!["a".into(), "b".into()]
            }
        );
    }

    #[test]
    fn a_block_parameter_hides_a_key_unless_the_path_is_explicit() {
        let parameters = [vec!["a".into()], vec!["b".into(), "c".into()]];

        let outer = Path::parse("a.x", &parameters).unwrap();
        let inner = Path::parse("c", &parameters).unwrap();

        assert_eq!(
            outer,
            Path {
                origin: Origin::Parameter { up: 1, slot: 0 },
                keys: vec!["x".into()]
            }
        );
        assert_eq!(
            inner,
            Path {
                origin: Origin::Parameter { up: 0, slot: 1 },
                keys: vec![]
            }
        );
        assert_eq!(Path::parse("./a", &parameters), Some(scope(0, &["a"])));
    }
}
