//! The printed texts: the server's address, and example requests.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use everturn::prelude::{SessionId, Value, json};

/// The two lines printed when the server is ready.
pub(crate) struct Greeting {
    address: SocketAddr,
    database: PathBuf,
    /// The description of the model.
    model: String,
    notice: Option<String>,
}

impl Greeting {
    pub(crate) fn new(address: SocketAddr, database: &Path, model: String, notice: Option<String>) -> Self {
        Self {
            address: reachable(address),
            database: database.to_owned(),
            model,
            notice,
        }
    }

    /// Returns the address of the page.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A few requests to paste into a shell.
pub(crate) struct Requests {
    address: SocketAddr,
    /// The header of the token, if one is needed.
    authorization: String,
    /// Distinguishes the sessions of these requests from those printed earlier.
    mark: String,
}

impl Requests {
    pub(crate) fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let id = SessionId::generate();
        Self {
            address: reachable(address),
            authorization: token.map_or_else(String::new, |token| {
                format!(" -H 'Authorization: Bearer {token}'")
            }),
            mark: id.as_str().rsplit('-').next().unwrap_or_default().to_owned(),
        }
    }

    /// Formats a request as a line for a shell.
    fn curl(&self, options: &str, path: &str, body: &Value) -> String {
        let (address, token) = (self.address, &self.authorization);
        format!(
            "curl {options}'http://{address}{path}'{token} -H 'Content-Type: application/json' -d '{body}'"
        )
    }

    fn streamed(&self, text: &str) -> String {
        let session = format!("dinner-{}", self.mark);
        let body = json!({ "data": { "message": user_message(text) }, "init": { "sessionId": session } });
        self.curl("-N ", "/agents/chef?stream=true", &body)
    }

    fn detached(&self, text: &str) -> String {
        let data = json!({ "message": user_message(text), "detach": true });
        let body = json!({ "data": data, "init": { "sessionId": self.week() } });
        self.curl("", "/agents/planner", &body)
    }

    fn read_snapshot(&self) -> String {
        let body = json!({ "data": { "sessionId": self.week() } });
        self.curl("", "/agents/planner/getSnapshot", &body)
    }

    fn week(&self) -> String {
        format!("week-{}", self.mark)
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "A turn, streamed:\n\n{}\n\nThe same conversation resumed, now or after a restart:\n\n{}\n\n\
             A run in the background, then its snapshot:\n\n{}\n{}\n\n\
             The agents are listed at /agents, and every route is described at /openapi.json.",
            self.streamed("Stock the pantry with leeks"),
            self.streamed("What did I say before?"),
            self.detached("Plan the week"),
            self.read_snapshot(),
        )
    }
}

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

fn user_message(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "text": text }] })
}

/// Returns an address for requests: the address of all interfaces is for listening only.
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
