//! The agents and flows that a server describes in its OpenAPI document.

use serde::Serialize;
use serde_json::Value;

/// The agents and flows of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenApiIndex {
    pub(crate) agents: Vec<Entry>,
    pub(crate) flows: Vec<Entry>,
}

/// An agent or a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The path at which it is called.
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// The names of the companion actions below the path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) actions: Vec<String>,
}

impl OpenApiIndex {
    /// Reads the document.
    pub(crate) fn of(document: &Value) -> Self {
        let mut index = Self::default();
        let Some(paths) = document["paths"].as_object() else {
            return index;
        };
        for (path, methods) in paths {
            let operation = &methods["post"];
            let id = operation["operationId"].as_str().unwrap_or_default();
            let entry = |name: &str| Entry {
                name: name.to_owned(),
                path: path.clone(),
                description: operation["description"].as_str().map(str::to_owned),
                actions: actions_below(path, paths.keys()),
            };
            if let Some(name) = id.strip_prefix("agent.agent/") {
                index.agents.push(entry(name));
            } else if let Some(name) = id.strip_prefix("flow.flow/") {
                index.flows.push(Entry {
                    actions: Vec::new(),
                    ..entry(name)
                });
            }
        }
        index
    }
}

fn actions_below<'a>(path: &str, paths: impl Iterator<Item = &'a String>) -> Vec<String> {
    paths
        .filter_map(|other| other.strip_prefix(path)?.strip_prefix('/'))
        .filter(|segment| !segment.contains('/'))
        .map(str::to_owned)
        .collect()
}

/// Returns the names of entries, separated by commas.
pub(crate) fn names(entries: &[Entry]) -> String {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_have_their_actions_and_flows_have_none() {
        let document = json!({ "paths": {
            "/agents": { "get": {} },
            "/agents/chef": { "post": { "operationId": "agent.agent/chef", "description": "Cooks." }, "get": {} },
            "/agents/chef/fork": { "post": { "operationId": "archive.agent-fork/chef" } },
            "/flows/menu": { "post": { "operationId": "flow.flow/menu" } },
        }});

        let index = OpenApiIndex::of(&document);

        assert_eq!(names(&index.agents), "chef");
        assert_eq!(index.agents[0].actions, ["fork"]);
        assert_eq!(index.agents[0].description.as_deref(), Some("Cooks."));
        assert_eq!(index.flows[0].path, "/flows/menu");
    }
}
