//! Tool names as a provider allows them.

use std::borrow::Cow;

use everturn_ai::ToolDefinition;

/// The names of a request's tools, and what the provider calls those that it cannot name so.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    changed: Vec<(String, String)>,
    max_chars: usize,
}

impl ToolNames {
    /// Names of at most so many letters, digits, `_` and `-`.
    pub(crate) fn new(tools: &[ToolDefinition], max_chars: usize) -> Self {
        let mut names = Self {
            changed: Vec::new(),
            max_chars,
        };
        for tool in tools {
            let allowed = allowed(&tool.name, max_chars);
            if allowed != tool.name {
                let is_taken = |name: &str| {
                    tools.iter().any(|tool| tool.name == name)
                        || names.changed.iter().any(|(_, wire)| wire == name)
                };
                let numbered =
                    (2..).map(|number| format!("{}_{number}", &allowed[..allowed.len().min(max_chars - 4)]));
                let free = std::iter::once(allowed.to_string())
                    .chain(numbered)
                    .find(|name| !is_taken(name));
                names.changed.push((tool.name.clone(), free.unwrap_or_default()));
            }
        }
        names
    }

    /// The name that the provider is told; also of a tool that the request no longer has.
    pub(crate) fn to_wire<'a>(&'a self, name: &'a str) -> Cow<'a, str> {
        match self.changed.iter().find(|(own, _)| own == name) {
            Some((_, wire)) => Cow::Borrowed(wire),
            None => allowed(name, self.max_chars),
        }
    }

    /// The name that the provider means.
    pub(crate) fn meant_by<'a>(&'a self, name: &'a str) -> &'a str {
        let known = self.changed.iter().find(|(_, wire)| wire == name);
        known.map_or(name, |(own, _)| own)
    }
}

fn allowed(name: &str, max_chars: usize) -> Cow<'_, str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.len() <= max_chars && name.chars().all(is_allowed) {
        return Cow::Borrowed(name);
    }
    let replaced = name.chars().map(|c| if is_allowed(c) { c } else { '_' });
    Cow::Owned(replaced.take(max_chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_allowed_is_changed_and_found_again() {
        let tools = ["files/read", "files_read", "time"].map(|name| ToolDefinition {
            name: name.to_owned(),
            ..ToolDefinition::default()
        });
        let names = ToolNames::new(&tools, 64);

        assert_eq!(names.to_wire("files/read"), "files_read_2");
        assert_eq!(names.meant_by("files_read_2"), "files/read");
        assert_eq!(names.meant_by("files_read"), "files_read");
        assert_eq!(names.to_wire("time"), "time");
        assert_eq!(names.to_wire("gone/tool"), "gone_tool");
    }
}
