//! The company's own models: a server that accepts and answers requests in Genkit's format, at one address.

use std::sync::Arc;

use everturn::model_prelude::*;

/// The plugin of the company's model server: its models are `house/NAME`.
#[derive(Debug, Clone)]
pub struct House {
    client: reqwest::Client,
    url: String,
}

impl House {
    /// Returns the plugin of the server at this address.
    pub fn new(url: impl Into<String>) -> Self {
        everturn::core::install_tls_provider();
        Self {
            client: reqwest::Client::new(),
            url: url.into(),
        }
    }
}

impl Plugin for House {
    fn name(&self) -> &'static str {
        "house"
    }

    fn check(&self) -> HandlerResult<()> {
        if reqwest::Url::parse(&self.url).is_err() {
            let message = format!(
                "'{}' is not the address of a model server: set MODEL_URL",
                self.url
            );
            return Err(Error::failed_precondition(message).into());
        }
        Ok(())
    }

    fn resolve<'a>(
        &'a self,
        action_type: &'a ActionType,
        id: &'a str,
    ) -> BoxFuture<'a, HandlerResult<Option<Arc<dyn DynAction>>>> {
        Box::pin(async move {
            if *action_type != ActionType::MODEL {
                return Ok(None);
            }
            let model = HouseModel {
                house: self.clone(),
                name: id.to_owned(),
            };
            let action = model_action(format!("house/{id}"), model);
            Ok(Some(Arc::new(action) as Arc<dyn DynAction>))
        })
    }
}

struct HouseModel {
    house: House,
    name: String,
}

impl Model for HouseModel {
    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        let House { client, url } = &self.house;
        let asked = client
            .post(url)
            .json(&json!({"model": self.name, "request": request}));
        let unreachable = |error: reqwest::Error| {
            Error::unavailable(format!("the model server at {url}: {error}")).with_source(error)
        };
        let answer = asked.send().await.map_err(unreachable)?;
        if !answer.status().is_success() {
            let status = answer.status();
            return Err(Error::unavailable(format!("the model server at {url} answered {status}")).into());
        }
        let response: ModelResponse = answer.json().await.map_err(unreachable)?;
        if let Some(message) = &response.message {
            emitter
                .send(ModelResponseChunk::new(message.content().to_vec()))
                .await?;
        }
        Ok(response)
    }
}
