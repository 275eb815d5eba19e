//! The Rust paths in the map of the design documents lead to public items.
//!
//! `cargo doc` resolves the same paths as links, in the documentation of the testbed. This test needs no
//! documentation, and finds an item that was renamed or removed by reading the sources.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn map() -> String {
    fs::read_to_string(workspace().join("docs/design-map.md")).unwrap()
}

/// The paths in a text: those in brackets and backticks.
fn paths(text: &str) -> Vec<&str> {
    let links = text.split("[`").skip(1);
    links
        .map(|rest| rest.split_once("`]").expect("a link has an end").0)
        .collect()
}

/// Returns the sources of a crate, without comments.
fn sources(name: &str) -> String {
    let folder = workspace()
        .join("crates")
        .join(name.replace('_', "-"))
        .join("src");
    let mut text = String::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&entry).unwrap();
                let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
                text.extend(code.flat_map(|line| [line, "\n"]));
            }
        }
    }
    text
}

fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Returns whether a text contains these words, not followed by another letter.
fn has(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        let ends = |c: Option<char>| c.is_none_or(|c| !is_word(&c.to_string()));
        ends(before) && ends(after)
    })
}

/// Whether an item is declared as public.
fn declares(source: &str, name: &str) -> bool {
    let kinds = [
        "struct", "enum", "trait", "type", "fn", "async fn", "const", "mod",
    ];
    kinds
        .iter()
        .any(|kind| has(source, &format!("pub {kind} {name}")))
}

/// Returns the contents of the braces after the declarations and implementations of a type.
fn bodies<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
    let mut bodies = Vec::new();
    for (at, _) in source.match_indices('\n') {
        let rest = &source[at + 1..];
        let starts = ["impl", "pub struct ", "pub enum ", "pub trait "];
        if !starts.iter().any(|start| rest.starts_with(start)) {
            continue;
        }
        let Some(open) = rest.find('{') else { continue };
        if has(&rest[..open], name) {
            // Items end with a brace in the first column.
            let end = rest.find("\n}").unwrap_or(rest.len());
            bodies.push(&rest[open.min(end)..end]);
        }
    }
    bodies
}

fn has_member(source: &str, owner: &str, member: &str) -> bool {
    let declared = [
        format!("fn {member}"),
        format!("pub {member}:"),
        format!("const {member}"),
    ];
    let in_body = |body: &str| {
        let is_variant = |line: &str| {
            let line = line.trim();
            line.strip_prefix(member)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([',', '(', ' ']))
        };
        declared.iter().any(|words| body.contains(words.as_str())) || body.lines().any(is_variant)
    };
    let by_macro = || has(source, &format!("{member} =")) && declares(source, owner);
    bodies(source, owner).into_iter().any(in_body) || by_macro()
}

#[test]
fn every_path_in_the_map_is_declared_in_its_crate() {
    let map = map();
    let paths = paths(&map);

    let mut crates: HashMap<&str, String> = HashMap::new();
    let mut wrong = Vec::new();
    for path in &paths {
        let segments: Vec<&str> = path.split("::").collect();
        let source = crates.entry(segments[0]).or_insert_with(|| sources(segments[0]));
        let [.., owner, last] = segments[..] else {
            panic!("'{path}' names no item");
        };
        let is_member = segments.len() > 2 && owner.starts_with(char::is_uppercase);
        let found = if is_member {
            has_member(source, owner, last)
        } else {
            declares(source, last)
        };
        if !found {
            wrong.push(*path);
        }
    }

    assert!(paths.len() > 150, "the map has {} paths", paths.len());
    assert!(wrong.is_empty(), "these are not in the sources: {wrong:#?}");
}

#[test]
fn every_row_of_the_map_has_a_place_or_a_reason() {
    let map = map();
    let rows = map.lines().filter(|line| line.starts_with("| "));

    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();

        assert_eq!(cells.len(), 2, "{row}");
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{row}");
    }
}

#[test]
fn the_search_finds_missing_items() {
    let source = sources("everturn_agent");

    assert!(declares(&source, "AgentBuilder") && !declares(&source, "AgentBuild"));
    assert!(has_member(&source, "AgentBuilder", "store"));
    assert!(has_member(&source, "SnapshotEvent", "TurnEnd"));
    assert!(has_member(&source, "Snapshot", "turn_index"));
    assert!(!has_member(&source, "SnapshotEvent", "TurnStart"));
    assert!(!has_member(&source, "AgentBuilder", "shop"));
}
