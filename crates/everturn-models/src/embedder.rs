//! Embedders: documents in, vectors out.

use everturn_ai::{
    Document, EmbedRequest, EmbedResponse, EmbedderAction, EmbedderInfo, Embedding, JsonObject,
    embedder_action,
};
use everturn_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{ApiKey, Call, Service, Settings};

/// Fields that the request itself fills.
const RESERVED: [&str; 3] = ["model", "input", "content"];

/// A request to an embedder, with parsed options.
pub(crate) struct EmbedCall {
    pub(crate) service: Service,
    pub(crate) model: String,
    pub(crate) documents: Vec<Document>,
    /// A key for this request alone.
    key: Option<ApiKey>,
    options: JsonObject,
}

/// Returns the action that embeds with the model of that name; `embed` gives a vector for each document, in
/// order.
pub(crate) fn action<Fut>(
    service: &Service,
    id: &str,
    embed: impl Fn(EmbedCall) -> Fut + Copy + Send + Sync + 'static,
) -> EmbedderAction
where
    Fut: Future<Output = Result<Vec<Vec<f32>>>> + Send,
{
    let name = format!("{}/{id}", service.provider());
    let info = EmbedderInfo {
        label: Some(name.clone()),
        ..EmbedderInfo::default()
    };
    let (service, id) = (service.clone(), id.to_owned());
    embedder_action(name, &info, None, move |request, _context| {
        let (service, id) = (service.clone(), id.clone());
        async move {
            let provider = service.provider().to_owned();
            let wanted = request.input.len();
            let vectors = embed(EmbedCall::new(service, id, request)?).await?;
            Ok(response(vectors, wanted, &provider)?)
        }
    })
}

impl EmbedCall {
    fn new(service: Service, id: String, request: EmbedRequest) -> Result<Self> {
        let mut settings = Settings::new(request.options.as_ref(), &RESERVED)?;
        Ok(Self {
            service,
            model: settings.take_text("version")?.unwrap_or(id),
            documents: request.input,
            key: settings.take_key()?,
            options: settings.into_rest(),
        })
    }

    /// Returns an object with the caller's options merged over it.
    pub(crate) fn with_options(&self, mut fields: Value) -> Value {
        if let Value::Object(fields) = &mut fields {
            fields.extend(self.options.clone());
        }
        fields
    }

    /// Posts a body.
    ///
    /// # Errors
    /// The error of the service.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: Value) -> Result<T> {
        let call = Call {
            key: self.key.clone(),
            ..Call::post(path, body)
        };
        self.service.json(&call).await
    }
}

fn response(vectors: Vec<Vec<f32>>, wanted: usize, provider: &str) -> Result<EmbedResponse> {
    if vectors.len() != wanted {
        let given = vectors.len();
        return Err(Error::internal(format!(
            "{provider} gave {given} vectors for {wanted} documents"
        )));
    }
    let embedding = |embedding| Embedding {
        embedding,
        metadata: None,
    };
    Ok(EmbedResponse {
        embeddings: vectors.into_iter().map(embedding).collect(),
    })
}
