//! The host names that a server answers to, and the pages whose requests it answers.
//!
//! A page of a foreign origin whose name resolves to this machine (DNS rebinding) sends its own name as
//! `Host`, and a matching `Origin`. Only the name distinguishes such a request from a legitimate one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use everturn_core::{Error, Exposure, Result};

use crate::error_body::Refusal;

/// The host names that a server answers to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// Names that were allowed, in lower case, with or without a port.
    allowed: Vec<String>,
    any: bool,
    /// The pages whose requests are answered, in addition to the server's own.
    pages: Pages,
}

/// The pages of other origins whose requests a server answers.
#[derive(Debug, Clone)]
pub(crate) enum Pages {
    /// Pages of these origins.
    Of(Vec<String>),
    /// Pages that the server's CORS settings allow: browsers send a preflight request.
    AsCorsSays,
}

impl Default for Pages {
    fn default() -> Self {
        Self::Of(Vec::new())
    }
}

impl Hosts {
    pub(crate) fn allow(&mut self, name: &str) {
        self.allowed.push(name.to_ascii_lowercase());
    }

    pub(crate) fn allow_any(&mut self) {
        self.any = true;
    }

    pub(crate) fn with_pages(&self, pages: Pages) -> Self {
        Self {
            pages,
            ..self.clone()
        }
    }

    /// Checks the names that were allowed.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a name that no `Host` can be.
    pub(crate) fn check(&self) -> Result<()> {
        let is_name = |name: &&String| {
            name.parse::<Authority>()
                .is_ok_and(|name| !name.as_str().contains('@'))
        };
        match self.allowed.iter().find(|name| !is_name(name)) {
            None => Ok(()),
            Some(name) => Err(Error::invalid_argument(format!(
                "'{name}' is no host name: write it as a browser sends it, such as 'kitchen.example' or 'kitchen.example:8080'"
            ))),
        }
    }

    /// Adds the check of host names to a router. A server on a loopback address accepts loopback names and
    /// the allowed names. Any other server checks names only if some are allowed. Without an address, the
    /// router is part of another server.
    pub(crate) fn guard(&self, router: Router, address: Option<SocketAddr>, exposure: Exposure) -> Router {
        let is_loopback = address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        if self.any || (!is_loopback && self.allowed.is_empty()) {
            return router;
        }
        let hosts = Arc::new(self.clone());
        router.layer(from_fn(move |request: Request, next: Next| {
            let refusal = hosts.admit(&request).err();
            async move {
                match refusal {
                    None => next.run(request).await,
                    Some(refusal) => refusal.respond(exposure),
                }
            }
        }))
    }

    fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let (Some(Ok(host)), None) = (hosts.next().map(|host| host.to_str()), hosts.next()) else {
            let error = Error::invalid_argument("a request must have the header 'Host' once, as plain text");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
        };
        let named = request.uri().authority().map(Authority::as_str);
        match [Some(host), named]
            .into_iter()
            .flatten()
            .find(|name| !self.answers_to(name))
        {
            None => self.admit_page(request, host),
            Some(name) => Err(foreign(name)),
        }
    }

    /// Refuses requests that a page of another origin makes. Programs send no `Origin`.
    fn admit_page(&self, request: &Request, host: &str) -> Result<(), Refusal> {
        let Pages::Of(allowed) = &self.pages else {
            return Ok(());
        };
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.split_once("://").map(|(_, host)| host);
        let is_own = own.is_some_and(|own| own.eq_ignore_ascii_case(host) || self.was_allowed(own));
        let is_allowed = || allowed.iter().any(|known| known.eq_ignore_ascii_case(origin));
        if origins.next().is_none() && (is_own || is_allowed()) {
            return Ok(());
        }
        let origin: String = origin.chars().take(100).collect();
        let message = format!(
            "pages of the origin '{origin}' may not call this server: if it is yours, allow it with Server::cors, or its \
             host with Server::allowed_hosts"
        );
        Err(Error::permission_denied(message).with_public().into())
    }

    fn answers_to(&self, name: &str) -> bool {
        let Ok(authority) = name.parse::<Authority>() else {
            return false;
        };
        if name.contains('@') {
            return false;
        }
        is_loopback_name(authority.host().trim_end_matches('.')) || self.was_allowed(name)
    }

    /// Returns whether a name was allowed, with its port or with any.
    fn was_allowed(&self, name: &str) -> bool {
        let Ok(authority) = name.parse::<Authority>() else {
            return false;
        };
        let host = authority.host().trim_end_matches('.');
        let is_it =
            |allowed: &String| allowed.eq_ignore_ascii_case(name) || allowed.eq_ignore_ascii_case(host);
        !name.contains('@') && self.allowed.iter().any(is_it)
    }
}

/// Returns whether a host is this machine by its very name, so that no page elsewhere can have it.
fn is_loopback_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let lower = host.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

fn foreign(name: &str) -> Refusal {
    let name: String = name.chars().take(100).collect();
    let message = format!(
        "this server does not answer to the host '{name}': if it is yours, allow it with Server::allowed_hosts"
    );
    Error::permission_denied(message).with_public().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_and_allowed_ones_are_answered_to() {
        let mut hosts = Hosts::default();
        hosts.allow("Kitchen.example");
        hosts.allow("pantry.example:8080");

        for own in [
            "localhost",
            "LocalHost:8080",
            "localhost.",
            "chef.localhost:1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "kitchen.example",
            "KITCHEN.example:443",
            "pantry.example:8080",
        ] {
            assert!(hosts.answers_to(own), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example@localhost",
            "localhost@evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "pantry.example:1",
            "notlocalhost",
        ] {
            assert!(!hosts.answers_to(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_name_that_no_host_can_be_is_refused() {
        for wrong in ["http://kitchen.example", "kitchen.example/", "", "a b"] {
            let mut hosts = Hosts::default();
            hosts.allow(wrong);

            assert!(hosts.check().is_err(), "{wrong}");
        }
    }
}
