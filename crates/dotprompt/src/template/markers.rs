//! Markers: marks that an author writes as text, in the encoding of the reference implementation.
//!
//! `<<<dotprompt:role:model>>>` in a template means what `{{role "model"}}` means. Only the template's own
//! text is searched for it, when it is compiled.

use super::program::Node;
use crate::message::{Media, Role};
use crate::output::Mark;

const OPEN: &str = "<<<dotprompt:";
const CLOSE: &str = ">>>";

/// Appends `text` to `nodes` and converts its markers to marks.
pub(super) fn push_text(nodes: &mut Vec<Node>, text: String) {
    if !text.contains(OPEN) {
        push(nodes, text);
        return;
    }
    let mut plain = 0;
    let mut from = 0;
    while let Some(at) = text[from..].find(OPEN).map(|found| from + found) {
        let inner = at + OPEN.len();
        // A marker ends before the next one starts, so that nothing is searched twice.
        let next = text[inner..].find(OPEN).map_or(text.len(), |found| inner + found);
        let Some(end) = text[inner..next].find(CLOSE).map(|found| inner + found) else {
            from = next;
            continue;
        };
        match mark(&text[inner..end]) {
            Some(mark) => {
                push(nodes, text[plain..at].to_owned());
                nodes.push(Node::Mark(mark));
                plain = end + CLOSE.len();
                from = plain;
            }
            None => from = inner,
        }
    }
    push(nodes, text[plain..].to_owned());
}

fn push(nodes: &mut Vec<Node>, text: String) {
    if !text.is_empty() {
        nodes.push(Node::Text(text.into()));
    }
}

fn mark(marker: &str) -> Option<Mark> {
    if marker.contains(['\r', '\n']) {
        return None;
    }
    if marker == "history" {
        return Some(Mark::History);
    }
    if let Some(name) = marker.strip_prefix("role:") {
        return role(name);
    }
    let mut words = marker.split(' ');
    match (words.next()?, words.next().filter(|word| !word.is_empty())?) {
        ("media:url", url) => {
            let content_type = words.next().filter(|word| !word.is_empty()).map(str::to_owned);
            Some(Mark::Media(Media {
                url: url.to_owned(),
                content_type,
            }))
        }
        ("section", name) => Some(Mark::Section(name.to_owned())),
        _ => None,
    }
}

/// Returns the mark of a role, or `None` if the name is not a word of lower-case letters.
pub(super) fn role(name: &str) -> Option<Mark> {
    let is_role = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_role.then(|| Mark::Role(Role::from(name)))
}

/// Returns the text that is printed for an invalid role.
pub(super) fn role_text(name: &str) -> String {
    format!("{OPEN}role:{name}{CLOSE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(text: &str) -> Vec<String> {
        let mut nodes = Vec::new();
        push_text(&mut nodes, text.to_owned());
        nodes
            .into_iter()
            .map(|node| match node {
                Node::Text(text) => text.into(),
                Node::Mark(mark) => format!("{mark:?}"),
                _ => unreachable!("text holds only text and marks"),
            })
            .collect()
    }

    #[test]
    fn markers_in_a_template_are_marks() {
        let nodes = describe("a<<<dotprompt:role:model>>>b<<<dotprompt:history>>><<<dotprompt:section s>>>");

        assert_eq!(
            nodes,
            ["a", "Role(Role(\"model\"))", "b", "History", "Section(\"s\")"]
        );
    }

    #[test]
    fn text_that_only_looks_like_a_marker_stays_text() {
        for text in [
            "<<<dotprompt:role:Bad>>>",
            "<<<dotprompt:role:user",
            "<<<dotprompt:section\n s>>>",
        ] {
            assert_eq!(describe(text), [text]);
        }
    }
}
