//! Resources: listed with their addresses, read by them.

use std::sync::Arc;

use everturn_ai::{Resource, ResourceInput, ResourceOutput};
use everturn_core::{ActionType, Descriptor, Error, JsonCall, Result};
use rmcp::model::{ReadResourceResponse, ReadResourceResult, ResourceTemplate};
use serde_json::Value;

use super::Exposed;
use super::session::Request;
use crate::content;

/// Returns the exposed resources and resource templates.
pub(super) fn all(exposed: &Exposed) -> (Vec<rmcp::model::Resource>, Vec<ResourceTemplate>) {
    (list(exposed), templates(exposed))
}

/// Returns the exposed resources.
pub(super) fn list(exposed: &Exposed) -> Vec<rmcp::model::Resource> {
    let described = |descriptor: &Descriptor| {
        let mut resource = rmcp::model::Resource::new(address(descriptor, "uri")?, descriptor.name.as_str());
        resource.description.clone_from(&descriptor.description);
        resource.mime_type = mime_type(descriptor);
        Some(resource)
    };
    let listed = exposed.of_type(&ActionType::RESOURCE);
    listed.iter().filter_map(described).collect()
}

/// Returns the exposed resource templates.
pub(super) fn templates(exposed: &Exposed) -> Vec<ResourceTemplate> {
    let described = |descriptor: &Descriptor| {
        let mut template = ResourceTemplate::new(address(descriptor, "template")?, descriptor.name.as_str());
        template.description.clone_from(&descriptor.description);
        template.mime_type = mime_type(descriptor);
        Some(template)
    };
    let listed = exposed.of_type(&ActionType::RESOURCE);
    listed.iter().filter_map(described).collect()
}

fn address<'a>(descriptor: &'a Descriptor, kind: &str) -> Option<&'a str> {
    descriptor.metadata.get("resource")?.get(kind)?.as_str()
}

fn mime_type(descriptor: &Descriptor) -> Option<String> {
    let known = descriptor.metadata.get("mcp")?.get("mimeType");
    known.and_then(Value::as_str).map(str::to_owned)
}

/// Reads the resource behind an address.
pub(super) async fn read(request: &Request<'_>, uri: &str) -> Result<ReadResourceResponse> {
    let registered = request.exposed.registry.of_type(&ActionType::RESOURCE);
    let found = registered.into_values().find_map(|action| {
        if !(request.exposed.filter)(action.descriptor()) {
            return None;
        }
        let variables = Resource::from_action(Arc::clone(&action))?.matches(uri)?;
        let uri = uri.to_owned();
        Some((action, ResourceInput { uri, variables }))
    });
    let (action, input) =
        found.ok_or_else(|| Error::not_found(format!("no resource has the URI '{uri}'")).with_public())?;
    let call = JsonCall {
        context: request.context.clone(),
        ..JsonCall::new(serde_json::to_value(input)?)
    };
    let output: ResourceOutput = serde_json::from_value(action.run_json(call).await?)?;
    let contents = output
        .content
        .iter()
        .filter_map(|part| content::resource_contents(uri, part));
    Ok(ReadResourceResult::new(contents.collect()).into())
}
