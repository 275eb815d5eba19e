//! `everturn tenants`.

use clap::Args;
use everturn_agent::archive::{ListTenantsRequest, Tenants};
use everturn_agent::store::Scope;
use serde_json::json;

use crate::failure::{Exit, Outcome};
use crate::output::{Output, table};
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct TenantsArguments {
    /// The agent, on a server with several
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

pub(crate) async fn run(arguments: TenantsArguments, target: &Target, output: Output) -> Outcome {
    let tenants = match target {
        Target::Store(store) => all(&Tenants::of(store.sessions().await?)).await?,
        Target::Server(server) => {
            let agent = server.agent_or_only(arguments.agent.as_deref()).await?;
            let archive = agent.agent.archive();
            let mut tenants = Vec::new();
            let mut request = ListTenantsRequest::default();
            loop {
                let mut page = archive.tenants(&request).await?;
                let named = |name: String| match page.principals.remove(&name) {
                    Some(principal) => Scope::new(name).with_tenant(principal),
                    None => Scope::new(name),
                };
                tenants.extend(page.tenants.into_iter().map(named));
                match page.next {
                    Some(next) => request.after = Some(next),
                    None => break tenants,
                }
            }
        }
    };
    let json = |tenant: &Scope| json!({ "tenant": tenant.as_str(), "principal": tenant.tenant() });
    let whole: Vec<_> = tenants.iter().map(json).collect();
    output.show(&json!({ "tenants": whole }), || {
        let row = |tenant: &Scope| {
            [
                tenant.tenant().unwrap_or("-").to_owned(),
                tenant.as_str().to_owned(),
            ]
        };
        let rows: Vec<_> = tenants.iter().map(row).collect();
        table(["PRINCIPAL", "TENANT"], &rows)
    })?;
    Ok(Exit::Done)
}

/// Returns all tenants of a store.
pub(crate) async fn all(tenants: &Tenants) -> Outcome<Vec<Scope>> {
    let mut all: Vec<Scope> = Vec::new();
    let mut after = None;
    loop {
        let page = tenants.list(after.as_ref()).await?;
        all.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}
