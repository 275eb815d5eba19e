//! A server with agents and flows, and the index of them in its OpenAPI document.

use std::env;

use everturn_agent::AgentTask;
use everturn_client::reqwest::{self, StatusCode, Url};
use everturn_client::{Client, RemoteAgent, RemoteFlow};
use everturn_core::{Error, Status};
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome};

/// The variable that holds the token.
const TOKEN: &str = "EVERTURN_TOKEN";

/// A server, called with the token of the environment.
#[derive(Debug)]
pub(crate) struct Server {
    /// The address without a trailing slash.
    base: String,
    http: reqwest::Client,
    token: Option<String>,
    client: Client,
}

/// An agent on a server, and its description.
pub(crate) struct ServedAgent {
    pub(crate) agent: RemoteAgent,
    /// `None` if the server does not describe its agents.
    entry: Option<Entry>,
}

impl Server {
    pub(crate) fn new(url: &str) -> Outcome<Self> {
        let is_http =
            Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if !is_http {
            return Err(Failure::wrong(format!("'{url}' is not the address of a server"))
                .or_next("give an address such as --url http://127.0.0.1:8080"));
        }
        everturn_core::install_tls_provider();
        let token = env::var(TOKEN).ok().filter(|token| !token.is_empty());
        let builder = Client::builder();
        let client = match &token {
            Some(token) => builder.header("authorization", &format!("Bearer {token}")),
            None => builder,
        };
        Ok(Self {
            base: url.trim_end_matches('/').to_owned(),
            // Follows no redirects, like the client: they could send the token to another server.
            http: reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .map_err(Error::foreign)?,
            token,
            client: client.build()?,
        })
    }

    /// Returns whether calls have a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Reads the server's OpenAPI document; `None` if it has none.
    pub(crate) async fn index(&self) -> Outcome<Option<OpenApiIndex>> {
        let mut request = self.http.get(format!("{}/openapi.json", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| {
            Error::unavailable(format!("{} cannot be reached", self.base)).with_source(error)
        });
        let response = response.map_err(|error| Failure::from(error).or_next(self.unreachable_advice()))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            code => {
                let status = Status::from_http(code.as_u16());
                let message = format!("{} answered {code}", self.base);
                return Err(Error::new(status, message).into());
            }
        }
        let document: Value = response.json().await.map_err(|error| {
            Error::internal(format!(
                "{} is not an Everturn server: its /openapi.json is not JSON",
                self.base
            ))
            .with_source(error)
        })?;
        Ok(Some(OpenApiIndex::of(&document)))
    }

    /// Returns the agent with this name.
    pub(crate) async fn agent(&self, name: &str) -> Outcome<ServedAgent> {
        let index = self.index().await?;
        let entry = match index {
            Some(index) => Some(find(name, "agent", index.agents)?),
            None => None,
        };
        let path = entry
            .as_ref()
            .map_or_else(|| below("/agents", name), |entry| entry.path.clone());
        Ok(ServedAgent {
            agent: self.client.agent(&format!("{}{path}", self.base))?,
            entry,
        })
    }

    /// Returns the agent with this name; without a name, the server's only agent.
    pub(crate) async fn agent_or_only(&self, name: Option<&str>) -> Outcome<ServedAgent> {
        if let Some(name) = name {
            return self.agent(name).await;
        }
        let agents = self.index().await?.unwrap_or_default().agents;
        match agents.as_slice() {
            [only] => Ok(ServedAgent {
                agent: self.client.agent(&format!("{}{}", self.base, only.path))?,
                entry: Some(only.clone()),
            }),
            [] => {
                Err(Failure::wrong(format!("{} names no agents", self.base)).or_next("name one with --agent"))
            }
            several => Err(
                Failure::wrong(format!("{} has several agents: {}", self.base, names(several)))
                    .or_next(format!("choose one with --agent {}", several[0].name)),
            ),
        }
    }

    /// Returns the flow with this name.
    pub(crate) async fn flow(&self, name: &str) -> Outcome<RemoteFlow> {
        let path = match self.index().await? {
            Some(index) => find(name, "flow", index.flows)?.path,
            None => below("/flows", name),
        };
        Ok(self.client.flow(&format!("{}{path}", self.base))?)
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn unreachable_advice(&self) -> String {
        format!(
            "check that a server runs at {}; name another with --url, or read a store with --store",
            self.base
        )
    }
}

impl ServedAgent {
    /// Checks that the server has a companion action that changes or exports sessions.
    pub(crate) fn check_offered(&self, action: &str) -> Outcome<()> {
        let Some(entry) = &self.entry else {
            return Ok(());
        };
        if entry.actions.iter().any(|known| known == action) {
            return Ok(());
        }
        let reason = if entry.actions.is_empty() {
            format!("the agent '{}' keeps no sessions", entry.name)
        } else {
            format!(
                "the server does not allow callers to {action} sessions of '{}'",
                entry.name
            )
        };
        Err(Failure::from(Error::permission_denied(reason))
            .exit_with(Exit::NotAllowed)
            .or_next("configure `server.archive(ArchiveAccess::…)`, or use the store directly with --store"))
    }

    pub(crate) fn task(&self, id: &str) -> AgentTask {
        self.agent.task(id)
    }
}

fn find(name: &str, kind: &str, entries: Vec<Entry>) -> Outcome<Entry> {
    let known = names(&entries);
    entries
        .into_iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            let failure = Failure::from(Error::not_found(format!("the server has no {kind} '{name}'")));
            match known.as_str() {
                "" => failure.or_next(format!("it has no {kind}s at all: check --url")),
                known => failure.or_next(format!("it has these: {known}")),
            }
        })
}

/// Returns the default path of a name, for servers without an OpenAPI document.
fn below(prefix: &str, name: &str) -> String {
    let mut path = Url::parse("http://host").expect("a constant address");
    if let Ok(mut segments) = path.path_segments_mut() {
        segments.push(prefix.trim_start_matches('/'));
        segments.extend(name.split('/'));
    }
    path.path().to_owned()
}

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
    fn only_addresses_of_servers_are_taken() {
        assert!(Server::new("https://kitchen.example/base/").is_ok());
        for wrong in ["kitchen", "sqlite:a.db", "ftp://kitchen", ""] {
            assert!(Server::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(
            below("/agents", "chef de cuisine/a"),
            "/agents/chef%20de%20cuisine/a"
        );
    }

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
