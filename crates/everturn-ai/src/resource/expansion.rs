//! Replacing links to resources by the resources' content.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use everturn_core::{ActionType, Context, Error, Registry, Result};
use serde_json::Value;

use super::{Resource, ResourceInput};
use crate::{Feature, Message, Messages, Part, metadata, reason};

/// The size of all content that replaces links in one request to a model.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Replaces every resource link by the resource's content, and reads each URI once. Resources of the call are
/// searched before registered ones.
///
/// # Errors
/// `NOT_FOUND` for a URI that no resource has, `RESOURCE_EXHAUSTED` for more content than 8 MiB, and the
/// errors of the resources.
pub(crate) async fn expand_resources(
    messages: &mut Messages,
    at_hand: &[Resource],
    registry: &Registry,
    context: &Context,
) -> Result<()> {
    let mut start = 0;
    let mut expansion = Expansion::default();
    while let Some(index) = messages.next_with(Feature::Resource, start) {
        if let Some(message) = messages.get(index) {
            // Boxed, because few messages have links.
            let expanded = Box::pin(expansion.expanded(message, at_hand, registry, context)).await?;
            messages.replace(index, expanded);
        }
        start = index + 1;
    }
    Ok(())
}

/// The resources that one request has read.
#[derive(Default)]
struct Expansion {
    read: HashMap<String, Vec<Part>>,
    bytes: usize,
}

impl Expansion {
    async fn expanded(
        &mut self,
        message: &Message,
        at_hand: &[Resource],
        registry: &Registry,
        context: &Context,
    ) -> Result<Message> {
        let mut parts = Vec::with_capacity(message.content().len());
        for part in message.content() {
            let Some(link) = part.as_resource() else {
                parts.push(part.clone());
                continue;
            };
            let found = match self.read.entry(link.uri.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let (resource, input) = find(&link.uri, at_hand, registry)?;
                    let provenance = resource.provenance(&link.uri);
                    let found = resource.read(input, context.clone()).await?.into_iter();
                    new.insert(found.map(|part| stamped(part, &provenance)).collect())
                }
            };
            // Content that is inserted again counts again, because the model receives it again.
            self.bytes += found.iter().map(Part::heap_size).sum::<usize>();
            if self.bytes > MAX_BYTES {
                return Err(Error::resource_exhausted(format!(
                    "the linked resources up to '{}' have more than {MAX_BYTES} bytes: link fewer or smaller ones",
                    link.uri
                ))
                .with_public());
            }
            parts.extend(found.iter().cloned());
        }
        Ok(message.clone().with_content(parts))
    }
}

fn find(uri: &str, at_hand: &[Resource], registry: &Registry) -> Result<(Resource, ResourceInput)> {
    let serve = |resource: &Resource| {
        let variables = resource.matches(uri)?;
        Some((
            resource.clone(),
            ResourceInput {
                uri: uri.to_owned(),
                variables,
            },
        ))
    };
    // A call's own resources take precedence over registered ones.
    if let Some(found) = at_hand.iter().find_map(serve) {
        return Ok(found);
    }
    let registered = registry.of_type(&ActionType::RESOURCE);
    let found = registered
        .values()
        .find_map(|action| serve(&Resource::from_action(Arc::clone(action))?));
    found.ok_or_else(|| {
        Error::not_found(format!("no resource has the URI '{uri}'")).with_reason(reason::RESOURCE_NOT_FOUND)
    })
}

/// Records the origin of a part; a part that already has one came through this resource from another.
fn stamped(part: Part, provenance: &Value) -> Part {
    let entry = match part.metadata_entry(metadata::RESOURCE) {
        Some(Value::Object(inner)) => {
            let mut inner = inner.clone();
            inner.insert("parent".to_owned(), provenance.clone());
            Value::Object(inner)
        }
        _ => provenance.clone(),
    };
    part.with_metadata_entry(metadata::RESOURCE, entry)
}
