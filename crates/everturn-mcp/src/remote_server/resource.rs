//! Resources of a server, registered as resources.

use std::sync::Arc;

use everturn_ai::{JsonObject, ResourceInput, ResourceOutput};
use everturn_core::{Action, ActionType, Context, Registry, Result};
use rmcp::model::{
    ClientRequest, ReadResourceRequest, ReadResourceRequestParams, Resource, ResourceTemplate, ServerResult,
};
use serde_json::json;

use super::prompt::asks;
use super::{Offered, RemoteServer};
use crate::{content, fault};

/// The address and description of a resource.
#[derive(PartialEq)]
pub(crate) struct Address {
    pub(crate) name: String,
    description: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    template: Option<String>,
}

impl Address {
    pub(crate) fn of(listed: &Resource) -> Self {
        Self {
            name: listed.name.clone(),
            description: listed.description.clone(),
            mime_type: listed.mime_type.clone(),
            uri: Some(listed.uri.clone()),
            template: None,
        }
    }

    pub(crate) fn of_template(listed: &ResourceTemplate) -> Self {
        Self {
            name: listed.name.clone(),
            description: listed.description.clone(),
            mime_type: listed.mime_type.clone(),
            uri: None,
            template: Some(listed.uri_template.clone()),
        }
    }

    /// The URI, or the template of URIs.
    pub(crate) fn text(&self) -> &str {
        let address = self.uri.as_deref().or(self.template.as_deref());
        address.unwrap_or_default()
    }
}

/// Registers a listed resource, or a template of resources.
pub(crate) fn register(
    server: &Arc<RemoteServer>,
    offered: &Offered,
    address: &Address,
    registry: &Registry,
) -> Result<()> {
    let read = {
        let server = Arc::clone(server);
        move |input: ResourceInput, context: Context| {
            let server = Arc::clone(&server);
            async move { Ok(read(&server, input.uri, &context).await?) }
        }
    };
    let origin =
        json!({ "server": server.name.as_ref(), "resource": address.name, "mimeType": address.mime_type });
    let metadata = JsonObject::from_iter([
        ("type".to_owned(), json!("resource")),
        (
            "resource".to_owned(),
            json!({ "uri": address.uri, "template": address.template }),
        ),
        ("mcp".to_owned(), origin),
    ]);
    let mut action = Action::new(ActionType::RESOURCE, offered.name(), read).with_metadata(metadata);
    if let Some(description) = &address.description {
        action = action.with_description(description.as_str());
    }
    registry.register(Arc::new(action))
}

async fn read(server: &Arc<RemoteServer>, uri: String, context: &Context) -> Result<ResourceOutput> {
    let params = ReadResourceRequestParams::new(uri.as_str());
    let request = ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params));
    match server.request(request, context, None).await? {
        ServerResult::ReadResourceResult(result) => Ok(ResourceOutput {
            content: result.contents.into_iter().map(content::resource_part).collect(),
        }),
        ServerResult::InputRequiredResult(_) => Err(asks(server, "resource", &uri)),
        _ => Err(fault::unexpected(&server.name, "a resource")),
    }
}
