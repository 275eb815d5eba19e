//! The tenants of an agent's store as actions. They are for the store's operator: a server decides who that
//! is.

use std::sync::Arc;
use std::time::Duration;

use everturn_core::{ActionType, Context, DynAction, Error, Principal, Result};

use super::archive_actions::lasting_action;
use crate::archive::{
    DeleteTenantRequest, Deleted, ListTenantsRequest, RetainRequest, Retained, Retention, TenantList, Tenants,
};
use crate::invocation::Definition;
use crate::store::Scope;

/// Returns the actions on all tenants.
pub(super) fn tenant_actions(agent: &Arc<Definition>) -> Vec<Arc<dyn DynAction>> {
    let lists = "Lists the tenants of agent '{}'.";
    let deletes = "Deletes everything of a tenant of agent '{}' for good.";
    let retains = "Applies rules of retention to all tenants of agent '{}'.";
    vec![
        lasting_action(agent, ActionType::AGENT_TENANTS, lists, tenants, list),
        lasting_action(agent, ActionType::AGENT_DELETE_TENANT, deletes, tenants, delete),
        lasting_action(agent, ActionType::AGENT_RETAIN, retains, tenants, retain),
    ]
}

fn tenants(definition: &Definition, _: &Context) -> Result<Tenants> {
    definition.tenants()
}

async fn list(tenants: Tenants, request: Option<ListTenantsRequest>) -> Result<TenantList> {
    let after = request.unwrap_or_default().after.map(Scope::new);
    let page = tenants.list(after.as_ref()).await?;
    let name = |tenant: &Scope| tenant.as_str().to_owned();
    let readable = |tenant: &Scope| Some((name(tenant), tenant.tenant()?.to_owned()));
    Ok(TenantList {
        tenants: page.items.iter().map(name).collect(),
        principals: page.items.iter().filter_map(readable).collect(),
        next: page.next.as_ref().map(name),
    })
}

async fn delete(tenants: Tenants, request: DeleteTenantRequest) -> Result<Deleted> {
    let scope = match (request.tenant, request.principal) {
        (Some(tenant), None) => Scope::new(tenant),
        (None, Some(principal)) => Principal::new(principal).scope(),
        _ => {
            let message = "say whose sessions to delete: a 'tenant' by its name in the list, or a 'principal' by its id";
            return Err(Error::invalid_argument(message).with_public());
        }
    };
    let snapshots = tenants.delete(&scope, request.request_id.as_deref()).await?;
    Ok(Deleted { snapshots })
}

async fn retain(tenants: Tenants, request: RetainRequest) -> Result<Retained> {
    let mut rules = Retention::default();
    if let Some(seconds) = request.max_age_seconds {
        rules = rules.no_older_than(Duration::from_secs(seconds));
    }
    if let Some(count) = request.newest {
        rules = rules.newest(count);
    }
    if request.even_labelled {
        rules = rules.even_labelled();
    }
    let report = tenants.retain(&rules).await?;
    Ok(Retained {
        sessions: report.sessions,
        snapshots: report.snapshots,
    })
}
