//! The top-level modules of a crate depend on each other without cycles.
//!
//! The test reads the sources, because the compiler accepts modules that use each other. `crate::Name` is
//! resolved through the re-exports of `lib.rs` to the module that defines the name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that each module uses, with one file that does.
type Edges = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn no_top_level_module_uses_itself_through_others() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut cycles = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        if !source.join("lib.rs").exists() {
            continue;
        }
        let name = source
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let edges = module_graph(&source);
        cycles.extend(cycle(&edges).map(|cycle| format!("{name}: {}", described(&cycle, &edges))));
    }

    assert!(cycles.is_empty(), "modules in a circle:\n{}", cycles.join("\n"));
}

#[test]
fn a_cycle_through_a_re_export_is_found_and_named() {
    let root = root_names("pub use self::{a::One, b::{Two, three::Four as Five}}; mod a; mod b;");
    let mut edges = Edges::new();
    for (file, text) in [
        ("a.rs", "use crate::{x, Five};"),
        ("b/three.rs", "fn f() { super::super::a::g() }"),
    ] {
        note_uses(&mut edges, &root, Path::new(file), text);
    }

    let found = cycle(&edges).unwrap();

    assert_eq!(described(&found, &edges), "a -> b (a.rs) -> a (b/three.rs)");
}

fn module_graph(source: &Path) -> Edges {
    let root = root_names(&code_of(&source.join("lib.rs")));
    let mut edges = Edges::new();
    for file in rust_files(source) {
        let relative = file.strip_prefix(source).unwrap();
        note_uses(&mut edges, &root, relative, &code_of(&file));
    }
    edges
}

/// Every file below a folder, without tests and programs.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "bin"].contains(&name.as_str()) {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !["lib.rs", "main.rs", "tests.rs"].contains(&name.as_str())
        {
            files.push(path);
        }
    }
    files
}

/// Returns a file's text without comments and without the tests at its end.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code: Vec<&str> = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .take_while(|line| line.trim() != "mod tests {")
        .collect();
    code.join("\n")
}

/// The names at the root of a crate, and the top-level module in which each is found.
fn root_names(lib: &str) -> BTreeMap<String, String> {
    let words: Vec<&str> = lib.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let modules = words
        .windows(2)
        .filter(|pair| pair[0] == "mod")
        .map(|pair| pair[1].to_owned());
    let mut names: BTreeMap<String, String> = modules.map(|module| (module.clone(), module)).collect();
    for path in lib
        .match_indices("self::")
        .flat_map(|(at, prefix)| paths(&lib[at + prefix.len()..]))
    {
        if let [module, .., name] = path.as_slice()
            && names.contains_key(module)
        {
            names.entry(name.clone()).or_insert_with(|| module.clone());
        }
    }
    names
}

fn note_uses(edges: &mut Edges, root: &BTreeMap<String, String>, file: &Path, code: &str) {
    let mut module: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    module.retain(|part| part != "mod");
    let is_whole_word = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
    let from_crate = code
        .match_indices("crate::")
        .filter(|(at, _)| is_whole_word(*at))
        .map(|(at, prefix)| at + prefix.len());
    // A path goes up as many steps as the module is deep to reach the root.
    let up = "super::".repeat(module.len());
    let from_above = code
        .match_indices(&up)
        .filter(|(at, _)| is_whole_word(*at))
        .map(|(at, prefix)| at + prefix.len());
    for path in from_crate.chain(from_above).flat_map(|at| paths(&code[at..])) {
        if let Some(used) = path.first().and_then(|name| root.get(name))
            && *used != module[0]
        {
            let uses = edges.entry(module[0].clone()).or_default();
            uses.entry(used.clone())
                .or_insert_with(|| file.display().to_string());
        }
    }
}

/// Returns the paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim_start();
    if let Some(group) = tree.strip_prefix('{') {
        return members(group).into_iter().flat_map(paths).collect();
    }
    let end = tree
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(tree.len());
    let (name, rest) = tree.split_at(end);
    if name.is_empty() {
        return Vec::new();
    }
    if let Some(alias) = rest.strip_prefix(" as ") {
        return paths(alias)
            .into_iter()
            .map(|alias| [vec![name.to_owned()], alias].concat())
            .collect();
    }
    let below = rest.strip_prefix("::").map(paths).unwrap_or_default();
    if below.is_empty() {
        return vec![vec![name.to_owned()]];
    }
    below
        .into_iter()
        .map(|path| [vec![name.to_owned()], path].concat())
        .collect()
}

/// Returns the text from an opening brace, already read, to its closing brace, split at commas.
fn members(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            found.push(&group[start..at]);
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Returns the modules of one cycle in order, if there is a cycle.
fn cycle(edges: &Edges) -> Option<Vec<String>> {
    fn visit(
        module: &str,
        edges: &Edges,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = path.iter().position(|known| known == module) {
            return Some(path[begin..].to_vec());
        }
        if done.contains(module) {
            return None;
        }
        path.push(module.to_owned());
        for used in edges.get(module).into_iter().flat_map(BTreeMap::keys) {
            if let Some(found) = visit(used, edges, path, done) {
                return Some(found);
            }
        }
        path.pop();
        done.insert(module.to_owned());
        None
    }
    let mut done = BTreeSet::new();
    edges
        .keys()
        .find_map(|module| visit(module, edges, &mut Vec::new(), &mut done))
}

fn described(cycle: &[String], edges: &Edges) -> String {
    let mut text = cycle[0].clone();
    for (at, module) in cycle.iter().enumerate() {
        let next = &cycle[(at + 1) % cycle.len()];
        write!(text, " -> {next} ({})", edges[module][next]).unwrap();
    }
    text
}
