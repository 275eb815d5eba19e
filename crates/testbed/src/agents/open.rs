//! An agent with all client permissions, whose model needs media inline. No conformance case uses it; hostile
//! clients do.

use std::time::Duration;

use everturn_agent::ClientPermissions;
use everturn_ai::{
    FetchRules, HttpMediaFetcher, MediaDownload, Model, ModelRequest, ModelResponse, ModelResponseChunk,
    Resource, define_resource, register_model,
};
use everturn_core::{Context, Emitter, HandlerResult, Result};

use super::prompted::prompted;
use crate::Harness;

/// The URI of a resource of a megabyte.
const LARGE_RESOURCE: &str = "recipe://large";

/// The name of the model that needs media inline.
const INLINE: &str = "inlineModel";

pub(super) fn define(harness: &mut Harness) -> Result<()> {
    let (registry, store) = (&harness.registry().clone(), harness.store());
    register_model(registry, INLINE, InlineModel)?;
    define_resource(
        registry,
        &Resource::new(LARGE_RESOURCE, |_| async { Ok("x".repeat(1024 * 1024)) }),
    )?;
    let rules = FetchRules::hosts(["127.0.0.1"])
        .allow_http()
        .allow_private_addresses();
    let permissions = ClientPermissions::none()
        .instructions()
        .tools()
        .custom()
        .output_schema()
        .fetch_media(rules.time(Duration::from_secs(1)));
    let open = prompted(registry, "promptAgentOpenToClients")
        .model(INLINE)
        .resources([LARGE_RESOURCE]);
    harness.define(open.client_permissions(permissions).store(store.clone()))?;
    // The agent without permissions.
    harness.define(prompted(registry, "promptAgentInline").model(INLINE).store(store))
}

/// A model that, unlike the programmable one, records no requests, because hostile clients are measured by
/// their memory.
struct InlineModel;

impl Model for InlineModel {
    fn media_download(&self) -> Option<MediaDownload> {
        Some(MediaDownload::new(HttpMediaFetcher::default()))
    }

    async fn generate(
        &self,
        _request: ModelRequest,
        _emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        Ok(ModelResponse::text_of("soup"))
    }
}
