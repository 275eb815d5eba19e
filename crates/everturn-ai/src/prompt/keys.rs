//! The keys that the frontmatter of a `.prompt` file may have.

use dotprompt::ParsedPrompt;
use serde_json::Value;

/// The keys at the top, those of the format and those of this framework. Others are allowed with a dot:
/// `my.key`.
const KEYS: [&str; 17] = [
    "config",
    "description",
    "ext",
    "input",
    "maxTurns",
    "metadata",
    "model",
    "name",
    "output",
    "raw",
    "returnToolRequests",
    "toolChoice",
    "toolDefs",
    "tools",
    "use",
    "variant",
    "version",
];

/// The keys inside those that hold keys of the format.
const NESTED: [(&str, &[&str]); 2] = [
    ("input", &["default", "schema"]),
    ("output", &["format", "schema"]),
];

/// Returns a message for each unused key, with its location.
pub(super) fn unknown_keys(parsed: &ParsedPrompt) -> Vec<String> {
    let Some(written) = parsed.metadata().raw() else {
        return Vec::new();
    };
    let mut unknown = Vec::new();
    for key in written.keys().filter(|key| !key.contains('.')) {
        if !KEYS.contains(&key.as_str()) {
            unknown.push(describe(parsed, &[key], &KEYS));
        }
    }
    for (outer, known) in NESTED {
        let Some(inner) = written.get(outer).and_then(Value::as_object) else {
            continue;
        };
        for key in inner.keys().filter(|key| !known.contains(&key.as_str())) {
            unknown.push(describe(parsed, &[outer, key], known));
        }
    }
    unknown
}

fn describe(parsed: &ParsedPrompt, path: &[&str], known: &[&str]) -> String {
    let key = path.join(".");
    let last = path.last().copied().unwrap_or_default();
    let advice = match closest(last, known) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known are {}", known.join(", ")),
    };
    let advice = match path {
        [_] => format!("{advice} Keys of your own have a dot, as in 'my.{key}'"),
        _ => advice,
    };
    match parsed.locate(path) {
        Some(place) => format!("{place}: unknown key '{key}': {advice}"),
        None => format!("unknown key '{key}': {advice}"),
    }
}

/// Returns the known key that was probably meant: at most two edits away, where a transposition counts as
/// two.
fn closest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let distances = known.iter().map(|key| (distance(written, key), *key));
    distances
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, key)| key)
}

/// The edit distance, ignoring case.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(other));
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_nearly_right_is_recognised() {
        assert_eq!(closest("modle", &KEYS), Some("model"));
        assert_eq!(closest("Tools", &KEYS), Some("tools"));
        assert_eq!(closest("maxturn", &KEYS), Some("maxTurns"));
        assert_eq!(closest("temperature", &KEYS), None);
    }

    #[test]
    fn the_distance_counts_changed_letters() {
        for (one, other, changes) in [
            ("use", "use", 0),
            ("", "use", 3),
            ("usee", "use", 1),
            ("modle", "model", 2),
        ] {
            assert_eq!(distance(one, other), changes, "{one} {other}");
        }
    }
}
