//! The place a command works on: a server or a store.

use std::env;

use everturn_agent::archive::Archive;
use everturn_agent::store::Scope;
use everturn_client::RemoteArchive;
use everturn_core::{Principal, Status};

use crate::arguments::Selection;
use crate::failure::{Failure, Outcome};
use crate::server::Server;
use crate::store::Store;

/// The default address of the playground and of new projects.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// A server or a store, not connected yet.
#[derive(Debug)]
pub(crate) enum Target {
    Server(Server),
    Store(Store),
}

/// How a command uses a session's snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The command reads snapshots, which every client may.
    Read,
    /// The command calls this companion action, which a server restricts to permitted callers.
    Change(&'static str),
}

impl Target {
    /// Chooses by the arguments, then by the environment.
    pub(crate) fn choose(url: Option<&str>, store: Option<&str>) -> Outcome<Self> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let (url, store) = match (url, store) {
            (None, None) => (variable("EVERTURN_URL"), variable("EVERTURN_STORE")),
            (url, store) => (url.map(str::to_owned), store.map(str::to_owned)),
        };
        match (url, store) {
            (Some(_), Some(_)) => Err(Failure::wrong("EVERTURN_URL and EVERTURN_STORE are both set")
                .or_next("choose one with --url or --store")),
            (None, Some(store)) => Ok(Self::Store(Store::parse(&store)?)),
            (Some(url), None) => Ok(Self::Server(Server::new(&url)?)),
            (None, None) => Ok(Self::Server(Server::new(DEFAULT_URL)?)),
        }
    }

    /// Returns the server, for a command that needs agents.
    pub(crate) fn server(&self, command: &str) -> Outcome<&Server> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Store(store) => Err(Failure::wrong(format!(
                "`{command}` needs a server: the store {store} has sessions, and no agents, models or tools"
            ))
            .or_next("start the program with the agents, and give its address with --url")),
        }
    }

    /// Opens the archive of the selected sessions.
    pub(crate) async fn archive(&self, selection: &Selection, access: Access) -> Outcome<AnyArchive> {
        match self {
            Self::Server(server) => {
                refuse_tenant(selection)?;
                let agent = server.agent_or_only(selection.agent.as_deref()).await?;
                if let Access::Change(action) = access {
                    agent.check_offered(action)?;
                }
                Ok(AnyArchive::Remote(agent.agent.archive()))
            }
            Self::Store(store) => {
                refuse_agent(selection)?;
                let archive = store.archive(scope(selection)).await?;
                // An import may create a tenant; other commands require an existing one.
                if selection.names_tenant() && access != Access::Change("import") {
                    store.tenant(selection).await?;
                }
                Ok(AnyArchive::Stored(archive))
            }
        }
    }

    /// Adds the next step after a failure here, unless there is one.
    pub(crate) fn advise(&self, failure: Failure) -> Failure {
        let step = match (self, failure.status()) {
            (Self::Server(server), Some(Status::Unavailable)) => server.unreachable_advice(),
            (Self::Server(_), Some(Status::Unauthenticated)) => {
                "set EVERTURN_TOKEN to a token that the server accepts".to_owned()
            }
            (Self::Server(_), Some(Status::PermissionDenied)) => {
                "set EVERTURN_TOKEN to a token with more rights; the server's `archive(ArchiveAccess::…)` decides who may change sessions"
                    .to_owned()
            }
            (_, Some(Status::NotFound)) => {
                "list sessions with `everturn sessions list`, and snapshots with `everturn sessions tree SESSION`".to_owned()
            }
            _ => return failure,
        };
        failure.or_next(step)
    }
}

/// Returns the selected tenant.
pub(crate) fn scope(selection: &Selection) -> Scope {
    match (&selection.tenant, &selection.principal) {
        (Some(tenant), _) => Scope::new(tenant.as_str()),
        (None, Some(principal)) => Principal::new(principal.as_str()).scope(),
        (None, None) => Scope::default(),
    }
}

pub(crate) fn refuse_agent(selection: &Selection) -> Outcome<()> {
    match &selection.agent {
        None => Ok(()),
        Some(_) => Err(Failure::wrong("a store has no agents").or_next("leave out --agent, or give --url")),
    }
}

pub(crate) fn refuse_tenant(selection: &Selection) -> Outcome<()> {
    if selection.names_tenant() || selection.all_tenants {
        return Err(
            Failure::wrong("on a server, the token selects the tenant").or_next(
                "leave out --tenant, --principal and --all-tenants and set EVERTURN_TOKEN, or give --store",
            ),
        );
    }
    Ok(())
}

/// An archive on a server or of a store. [`on!`] calls a method of it.
#[derive(Debug, Clone)]
pub(crate) enum AnyArchive {
    Stored(Archive),
    Remote(RemoteArchive),
}

/// Evaluates an expression for either archive; their methods have the same names and arguments.
macro_rules! on {
    ($any:expr, $archive:ident => $call:expr) => {
        match $any {
            $crate::target::AnyArchive::Stored($archive) => $call,
            $crate::target::AnyArchive::Remote($archive) => $call,
        }
    };
}

pub(crate) use on;
