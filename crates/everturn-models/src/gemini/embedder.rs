//! Embedders of the provider.

use everturn_ai::{
    Document, EmbedRequest, EmbedResponse, EmbedderAction, EmbedderInfo, Embedding, JsonObject, ModelRequest,
    Part, embedder_action,
};
use everturn_core::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::contents::media_part;
use super::{PROVIDER, method_path};
use crate::service::{ApiKey, Call, Service};
use crate::settings::Settings;

/// How many documents a request may have.
const MAX_DOCUMENTS: usize = 100;

/// Returns the action that embeds with the model of that name.
pub(super) fn action(service: &Service, name: &str) -> EmbedderAction {
    let info = EmbedderInfo {
        label: Some(name.to_owned()),
        ..EmbedderInfo::default()
    };
    let (service, model) = (service.clone(), name.to_owned());
    embedder_action(
        format!("{PROVIDER}/{name}"),
        &info,
        None,
        move |request, _context| {
            let (service, model) = (service.clone(), model.clone());
            async move { Ok(embed(&service, &model, request).await?) }
        },
    )
}

async fn embed(service: &Service, model: &str, request: EmbedRequest) -> Result<EmbedResponse> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        embeddings: Vec<Vector>,
    }
    #[derive(Deserialize)]
    struct Vector {
        #[serde(default)]
        values: Vec<f32>,
    }

    let batches = Batches::new(model, &request)?;
    let mut embeddings = Vec::with_capacity(request.input.len());
    for documents in request.input.chunks(MAX_DOCUMENTS) {
        let call = Call {
            path: method_path(&batches.model, "batchEmbedContents").into(),
            body: Some(batches.body(documents)?),
            key: batches.key.clone(),
            ..Call::default()
        };
        let answer: Answer = service.json(&call).await?;
        embeddings.extend(answer.embeddings.into_iter().map(|vector| Embedding {
            embedding: vector.values,
            metadata: None,
        }));
    }
    Ok(EmbedResponse { embeddings })
}

/// The fields that the requests for all batches share.
struct Batches {
    model: String,
    key: Option<ApiKey>,
    settings: JsonObject,
}

impl Batches {
    fn new(model: &str, request: &EmbedRequest) -> Result<Self> {
        let config = ModelRequest {
            config: request.options.clone(),
            ..ModelRequest::default()
        };
        let mut settings = Settings::of(&config, &["content", "model"])?;
        Ok(Self {
            model: settings.take_text("version")?.unwrap_or_else(|| model.to_owned()),
            key: settings.take_key()?,
            settings: settings.into_rest(),
        })
    }

    fn body(&self, documents: &[Document]) -> Result<Value> {
        let name = if self.model.contains('/') {
            self.model.clone()
        } else {
            format!("models/{}", self.model)
        };
        let requests = documents.iter().map(|document| {
            let parts = document.content.iter().map(part).collect::<Result<Vec<_>>>()?;
            let mut request = self.settings.clone();
            request.insert("model".to_owned(), json!(name));
            request.insert("content".to_owned(), json!({ "parts": parts }));
            Ok(request)
        });
        let requests = requests.collect::<Result<Vec<_>>>()?;
        Ok(json!({ "requests": requests }))
    }
}

fn part(part: &Part) -> Result<Value> {
    match part.as_media() {
        Some(media) => media_part(media),
        None => Ok(json!({ "text": part.as_text().unwrap_or_default() })),
    }
}
