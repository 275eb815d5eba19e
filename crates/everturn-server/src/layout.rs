//! The default paths of the agents and flows in a registry.

use everturn_agent::internal_agents;
use everturn_core::{ActionType, Registry};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::Route;

/// The companion actions of an agent and their path segments. All clients assume the first two.
const COMPANIONS: [(&str, &str); 18] = [
    ("agent-snapshot", "getSnapshot"),
    ("agent-abort", "abort"),
    ("agent-snapshots", "listSnapshots"),
    ("agent-session", "getSession"),
    ("agent-watch", "watch"),
    ("agent-sessions", "listSessions"),
    ("agent-tree", "tree"),
    ("agent-diff", "diff"),
    ("agent-usage", "usage"),
    ("agent-label", "label"),
    ("agent-fork", "fork"),
    ("agent-copy", "copy"),
    ("agent-export", "export"),
    ("agent-import", "import"),
    ("agent-delete", "delete"),
    ("agent-tenants", "listTenants"),
    ("agent-delete-tenant", "deleteTenant"),
    ("agent-retain", "retain"),
];

/// The paths of agents and flows.
///
/// By default agents are at `/agents/{name}`, their companion actions below, and flows at `/flows/{name}`. A
/// companion action has a route if the registry has the action.
///
/// ```
/// use everturn_core::{Registry, Result};
/// use everturn_server::Layout;
///
/// # fn main() -> Result<()> {
/// let registry = Registry::new();
/// registry.define_flow("menu", |theme: String| async move { Ok(format!("{theme} soup")) })?;
///
/// let routes = Layout::default().flows_at("/kitchen").routes(&registry);
///
/// assert_eq!(routes[0].path, "/kitchen/menu");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a layout is a plan; ask it for routes"]
pub struct Layout {
    agents: String,
    flows: String,
    companions: Vec<(ActionType, String)>,
}

impl Default for Layout {
    fn default() -> Self {
        let companion =
            |(action_type, segment): (&'static str, &str)| (ActionType::new(action_type), segment.to_owned());
        Self {
            agents: "/agents".into(),
            flows: "/flows".into(),
            companions: COMPANIONS.map(companion).into(),
        }
    }
}

impl Layout {
    everturn_core::setters! {
        /// Puts agents below another path; the empty path is the root.
        pub fn agents_at(mut self, prefix: impl Into<String>) { self.agents = prefix.into() }

        /// Puts flows below another path; the empty path is the root.
        pub fn flows_at(mut self, prefix: impl Into<String>) { self.flows = prefix.into() }
    }

    /// Adds or moves a companion action: an agent's action of that type is mounted under `segment`.
    pub fn companion(mut self, action_type: ActionType, segment: impl Into<String>) -> Self {
        self.companions.retain(|(known, _)| *known != action_type);
        self.companions.push((action_type, segment.into()));
        self
    }

    /// Returns the routes of a registry: agents with their companion actions by name, then flows by name.
    /// [Internal](everturn_agent::internal_agents) agents have none.
    pub fn routes(&self, registry: &Registry) -> Vec<Route> {
        let internal = internal_agents(registry);
        let agents = registry.of_type(&ActionType::AGENT).into_keys();
        let mut routes: Vec<Route> = agents
            .filter(|agent| !internal.contains(agent))
            .flat_map(|agent| self.agent_routes(registry, &agent))
            .collect();
        let flows = registry.of_type(&ActionType::FLOW).into_keys();
        routes.extend(flows.map(|flow| Route::post(below(&self.flows, &flow), ActionType::FLOW.key(&flow))));
        routes
    }

    /// Returns the routes of one agent: its turns, its WebSocket, and each companion action that the registry
    /// has.
    pub fn agent_routes(&self, registry: &Registry, agent: &str) -> Vec<Route> {
        let path = below(&self.agents, agent);
        let run = Route::post(&path, ActionType::AGENT.key(agent));
        let companions = self.companions.iter().filter_map(|(action_type, segment)| {
            let key = action_type.key(agent);
            registry.get(&key)?;
            Some(Route::post(format!("{path}/{segment}"), key))
        });
        let conversation = Route::conversation(&path, &run.key);
        [run, conversation].into_iter().chain(companions).collect()
    }
}

/// The characters of a path that are percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Returns the path of a name below a prefix, percent-encoded.
fn below(prefix: &str, name: &str) -> String {
    let name = utf8_percent_encode(name, ENCODED);
    format!("{}/{name}", prefix.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_unusual_characters_is_encoded_once() {
        assert_eq!(below("/agents/", "küche/{x}"), "/agents/k%C3%BCche/%7Bx%7D");
        assert_eq!(below("", "chef"), "/chef");
    }
}
