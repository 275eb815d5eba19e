//! The text that is printed when the server is ready: its address and examples.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use everturn::prelude::{SessionId, Value, json};

use crate::agents::Demo;

/// The address and a few requests that can be pasted into a shell.
pub(crate) struct Greeting {
    address: SocketAddr,
    database: PathBuf,
    agents: Vec<(String, String)>,
    /// The description of the model.
    model: String,
    notice: Option<String>,
    /// Distinguishes the sessions of these requests from those of an earlier start.
    mark: String,
}

impl Greeting {
    pub(crate) fn new(
        address: SocketAddr,
        database: &Path,
        demos: &[Demo],
        model: String,
        notice: Option<String>,
    ) -> Self {
        let id = SessionId::fresh();
        Self {
            address: reachable(address),
            database: database.to_owned(),
            agents: demos
                .iter()
                .map(|demo| (demo.name.clone(), demo.about.clone()))
                .collect(),
            model,
            notice,
            mark: id.as_str().rsplit('-').next().unwrap_or_default().to_owned(),
        }
    }

    /// Formats a request as a line for a shell.
    fn curl(&self, options: &str, path: &str, body: &Value) -> String {
        let address = self.address;
        format!("curl {options}'http://{address}{path}' -H 'Content-Type: application/json' -d '{body}'")
    }

    fn streamed(&self, text: &str) -> String {
        let session = format!("dinner-{}", self.mark);
        let body = json!({ "data": { "message": said(text) }, "init": { "sessionId": session } });
        self.curl("-N ", "/agents/chef?stream=true", &body)
    }

    fn detached(&self, text: &str) -> String {
        let data = json!({ "message": said(text), "detach": true });
        let body = json!({ "data": data, "init": { "sessionId": self.week() } });
        self.curl("", "/agents/planner", &body)
    }

    fn read_snapshot(&self) -> String {
        let body = json!({ "data": { "sessionId": self.week() } });
        self.curl("", "/agents/planner/getSnapshot", &body)
    }

    /// Returns the address of the page.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the agents and a few requests.
    pub(crate) fn requests(&self) -> String {
        let agents: Vec<String> = self
            .agents
            .iter()
            .map(|(name, about)| format!("  /agents/{name:<12} {about}\n"))
            .collect();
        format!(
            "\n{}\nA turn, streamed:\n\n{}\n\nThe same conversation resumed, now or after a restart:\n\n{}\n\n\
             A run in the background, then its snapshot:\n\n{}\n{}\n\n\
             Every route is described at /openapi.json; /healthz says whether the server is well. Ctrl-C ends it.\n",
            agents.concat(),
            self.streamed("Stock the pantry with leeks"),
            self.streamed("What did I say before?"),
            self.detached("Plan the week"),
            self.read_snapshot(),
        )
    }

    fn week(&self) -> String {
        format!("week-{}", self.mark)
    }
}

/// The two lines that are always printed.
impl fmt::Display for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.display();
        let notice = self.notice.as_deref().unwrap_or_default();
        writeln!(
            f,
            "Serving on {}\nConversations are kept in {database}. {}{}{notice}",
            self.url(),
            self.model,
            if notice.is_empty() { "" } else { " " },
        )
    }
}

fn said(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "text": text }] })
}

/// Returns an address to send requests to: the one for all interfaces is for listening only.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_go_to_an_address_that_can_be_reached() {
        let reached = |address: &str| reachable(address.parse().unwrap()).to_string();

        assert_eq!(reached("0.0.0.0:80"), "127.0.0.1:80");
        assert_eq!(reached("[::]:80"), "[::1]:80");
        assert_eq!(reached("192.0.2.1:80"), "192.0.2.1:80");
    }
}
