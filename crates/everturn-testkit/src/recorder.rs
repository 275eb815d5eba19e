//! Recording the calls of real models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_ai::{
    MediaDownload, Middleware, Model, ModelCall, ModelInfo, ModelRequest, ModelResponse, ModelResponseChunk,
    NextModel, async_trait,
};
use everturn_core::{Context, Emitter, HandlerResult, Result, Schema};
use futures::TryFutureExt as _;
use tokio::sync::Mutex;

use crate::Collector;
use crate::cassette::{self, Cassette, Outcome, Recording, Secrets, canonical};

/// Records the calls of real models in a file, a *cassette*, which a [`Replayer`](crate::Replayer) plays
/// later.
///
/// Use it as a middleware, around every model that a generation calls, or [`wrap`](Recorder::wrap) one model.
/// Failures are recorded like answers. The first call replaces the file, and every call writes it again. The
/// file is readable JSON and can be committed: settings with credentials, such as `apiKey`, are omitted, and
/// masked where the service repeats them.
///
/// Clones share the recording.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Tape>);

#[derive(Debug)]
struct Tape {
    path: PathBuf,
    cassette: Mutex<Cassette>,
}

impl Recorder {
    /// Returns a recorder that writes to a file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Tape {
            path: path.into(),
            cassette: Mutex::new(Cassette::new()),
        }))
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Wraps a model so that its calls are recorded under a name.
    pub fn wrap<M: Model>(&self, name: impl Into<String>, model: M) -> RecordedModel<M> {
        RecordedModel {
            name: name.into(),
            recorder: self.clone(),
            model,
        }
    }

    /// Runs a call and records it.
    async fn record<Fut>(
        &self,
        model: &str,
        request: &ModelRequest,
        emitter: &Emitter<ModelResponseChunk>,
        call: impl FnOnce(Emitter<ModelResponseChunk>) -> Fut,
    ) -> Result<ModelResponse>
    where
        Fut: Future<Output = Result<ModelResponse>>,
    {
        let asked = canonical(request)?;
        let secrets = request
            .config
            .clone()
            .map(|mut config| Secrets::take_from(&mut config));
        let chunks = Collector::new();
        let result = call(chunks.tee(emitter)).await;
        let recording = Recording {
            model: model.to_owned(),
            request: asked,
            chunks: chunks.take(),
            outcome: Outcome::of(&result),
        };
        self.keep(masked(recording, secrets.as_ref())?).await?;
        result
    }

    async fn keep(&self, recording: Recording) -> Result<()> {
        // The lock is held until the file is written, so that an earlier state never overwrites a later one.
        let mut cassette = self.0.cassette.lock().await;
        cassette.recordings.push(recording);
        let text = cassette.to_text()?;
        let tape = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || cassette::write(&tape.path, &text)).await?
    }
}

fn masked(recording: Recording, secrets: Option<&Secrets>) -> Result<Recording> {
    let Some(secrets) = secrets else {
        return Ok(recording);
    };
    let mut value = serde_json::to_value(recording)?;
    secrets.mask(&mut value);
    Ok(serde_json::from_value(value)?)
}

#[async_trait]
impl Middleware for Recorder {
    async fn model(&self, call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        let (model, request, emitter) = (call.model.clone(), call.request.clone(), call.emitter.clone());
        let record = self.record(&model, &request, &emitter, |emitter| {
            let mut call = call;
            call.emitter = emitter;
            next.run(call)
        });
        Ok(record.await?)
    }
}

/// A model whose calls are recorded; made by [`Recorder::wrap`].
#[derive(Debug, Clone)]
pub struct RecordedModel<M> {
    name: String,
    recorder: Recorder,
    model: M,
}

impl<M: Model> Model for RecordedModel<M> {
    fn info(&self) -> ModelInfo {
        self.model.info()
    }

    fn config_schema(&self) -> Option<Schema> {
        self.model.config_schema()
    }

    fn media_download(&self) -> Option<MediaDownload> {
        self.model.media_download()
    }

    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        context: Context,
    ) -> HandlerResult<ModelResponse> {
        let asked = request.clone();
        let call = |emitter| self.model.generate(request, emitter, context).err_into();
        Ok(self.recorder.record(&self.name, &asked, &emitter, call).await?)
    }
}
