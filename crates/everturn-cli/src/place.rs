//! Where a command works: on a server, or in a store.

use std::env;

use everturn_agent::store::Scope;
use everturn_core::{Principal, Status};

use crate::archive::AnyArchive;
use crate::arguments::Whose;
use crate::failure::{Failure, Outcome};
use crate::server::Server;
use crate::store::Store;

/// The address that the playground and new projects serve at.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// A server or a store, not reached yet.
#[derive(Debug)]
pub(crate) enum Place {
    Server(Server),
    Store(Store),
}

/// How a command uses a session's snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads what every client may read.
    Read,
    /// It calls this companion action, which a server offers to those whom it allows it.
    Change(&'static str),
}

impl Place {
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

    /// Returns the server for a command that needs agents.
    pub(crate) fn server(&self, command: &str) -> Outcome<&Server> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Store(store) => Err(Failure::wrong(format!(
                "`{command}` needs a server: the store {store} has sessions, and no agents, models or tools"
            ))
            .or_next("start the program that has the agents, and give its address with --url")),
        }
    }

    /// Opens the archive of the sessions that are meant.
    pub(crate) async fn archive(&self, whose: &Whose, access: Access) -> Outcome<AnyArchive> {
        match self {
            Self::Server(server) => {
                refuse_tenant(whose)?;
                let agent = server.agent_or_only(whose.agent.as_deref()).await?;
                if let Access::Change(action) = access {
                    agent.check_offered(action)?;
                }
                Ok(AnyArchive::Remote(agent.agent.archive()))
            }
            Self::Store(store) => {
                refuse_agent(whose)?;
                let archive = store.archive(scope(whose)).await?;
                // An import may begin a tenant; everything else works on one that is there.
                if whose.names_tenant() && access != Access::Change("import") {
                    store.tenant(whose).await?;
                }
                Ok(AnyArchive::Stored(archive))
            }
        }
    }

    /// Names the step that may help after a failure here, unless one is named already.
    pub(crate) fn advise(&self, failure: Failure) -> Failure {
        let step = match (self, failure.status()) {
            (Self::Server(server), Some(Status::Unavailable)) => server.unreachable_advice(),
            (Self::Server(_), Some(Status::Unauthenticated)) => {
                "put a token that the server knows into EVERTURN_TOKEN".to_owned()
            }
            (Self::Server(_), Some(Status::PermissionDenied)) => {
                "use a token with more rights in EVERTURN_TOKEN; the server's `archive(ArchiveAccess::…)` says who may change sessions"
                    .to_owned()
            }
            (_, Some(Status::NotFound)) => {
                "`everturn sessions list` has the sessions, `everturn sessions tree SESSION` their snapshots".to_owned()
            }
            _ => return failure,
        };
        failure.or_next(step)
    }
}

/// Returns the tenant that is meant.
pub(crate) fn scope(whose: &Whose) -> Scope {
    match (&whose.tenant, &whose.principal) {
        (Some(tenant), _) => Scope::new(tenant.as_str()),
        (None, Some(principal)) => Principal::new(principal.as_str()).scope(),
        (None, None) => Scope::default(),
    }
}

pub(crate) fn refuse_agent(whose: &Whose) -> Outcome<()> {
    match &whose.agent {
        None => Ok(()),
        Some(_) => {
            Err(Failure::wrong("a store does not know agents").or_next("leave out --agent, or give --url"))
        }
    }
}

pub(crate) fn refuse_tenant(whose: &Whose) -> Outcome<()> {
    if whose.names_tenant() || whose.all_tenants {
        return Err(Failure::wrong("a server knows the tenant by the token").or_next(
            "leave out --tenant, --principal and --all-tenants and set EVERTURN_TOKEN, or give --store",
        ));
    }
    Ok(())
}
