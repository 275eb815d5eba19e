//! Replaying recorded calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_ai::{
    Middleware, Model, ModelCall, ModelRequest, ModelResponse, ModelResponseChunk, NextModel, async_trait,
};
use everturn_core::{Context, Emitter, Error, HandlerResult, Reason, Result};
use parking_lot::Mutex;
use serde_json::Value;

use crate::Difference;
use crate::cassette::{Cassette, Recording, canonical, remove};
use crate::difference::{differences, distance};

/// The reason of the error `NOT_FOUND` for a request that no recording matches. The message names the nearest
/// recording and its differences.
pub const NO_RECORDING: Reason = Reason::new("no-recording");

/// The maximum number of differences in a message.
const MAX_SHOWN: usize = 3;

/// Answers from a cassette of a [`Recorder`](crate::Recorder), without a model.
///
/// Use it as a middleware, in the place of every model that a generation calls, or register
/// [`Replayer::as_model`]. A request is matched by the model's name and by its content; credentials, the
/// order of members and the references of tool calls do not matter. Several matching recordings are played
/// once each, in their order, and the last one again from then on. The chunks are the recorded ones: a call
/// that was recorded without streaming streams nothing.
///
/// Clones share the cassette.
#[derive(Debug, Clone)]
pub struct Replayer {
    tape: Arc<Tape>,
    ignored: Vec<String>,
}

#[derive(Debug)]
struct Tape {
    path: PathBuf,
    recordings: Vec<Recording>,
    played: Mutex<Vec<bool>>,
}

impl Replayer {
    /// Loads a cassette.
    ///
    /// # Errors
    /// `NOT_FOUND` if the file cannot be read, `INVALID_ARGUMENT` if it is not a cassette.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let recordings = Cassette::load(path)?.recordings;
        let played = Mutex::new(vec![false; recordings.len()]);
        Ok(Self {
            tape: Arc::new(Tape {
                path: path.to_owned(),
                recordings,
                played,
            }),
            ignored: Vec::new(),
        })
    }

    /// Also ignores the value at a JSON pointer of the requests, such as `/config/seed` or a system message
    /// with the date.
    pub fn ignoring(mut self, pointer: impl Into<String>) -> Self {
        self.ignored.push(pointer.into());
        self
    }

    /// Returns a model that answers from the recordings of this name.
    pub fn as_model(&self, name: impl Into<String>) -> ReplayedModel {
        ReplayedModel {
            name: name.into(),
            replayer: self.clone(),
        }
    }

    /// Returns the number of recordings that have not been played.
    pub fn recordings_left(&self) -> usize {
        let played = self.tape.played.lock();
        played.iter().filter(|played| !**played).count()
    }

    async fn play(
        &self,
        model: &str,
        request: &ModelRequest,
        emitter: &Emitter<ModelResponseChunk>,
    ) -> Result<ModelResponse> {
        let recording = self.find(bare(model), request)?.clone();
        for chunk in recording.chunks {
            emitter.send(chunk).await?;
        }
        recording.outcome.into_result()
    }

    fn find(&self, model: &str, request: &ModelRequest) -> Result<&Recording> {
        let asked = self.comparable(canonical(request)?);
        let of_model = || {
            self.tape
                .recordings
                .iter()
                .enumerate()
                .filter(|(_, one)| bare(&one.model) == model)
        };
        let matching: Vec<usize> = of_model()
            .filter(|(_, recording)| self.comparable(recording.request.clone()) == asked)
            .map(|(index, _)| index)
            .collect();
        let Some(&last) = matching.last() else {
            let nearest = of_model()
                .map(|(index, recording)| {
                    (
                        index,
                        differences(&self.comparable(recording.request.clone()), &asked),
                    )
                })
                .min_by_key(|(_, differences)| distance(differences));
            return Err(self.no_recording(model, nearest));
        };
        let mut played = self.tape.played.lock();
        let index = matching.into_iter().find(|&index| !played[index]).unwrap_or(last);
        played[index] = true;
        Ok(&self.tape.recordings[index])
    }

    fn comparable(&self, mut request: Value) -> Value {
        self.ignored
            .iter()
            .for_each(|pointer| remove(&mut request, pointer));
        request
    }

    fn no_recording(&self, model: &str, nearest: Option<(usize, Vec<Difference>)>) -> Error {
        let path = self.tape.path.display();
        let problem = match nearest {
            None => format!("{path} has no recording of the model '{model}'"),
            Some((index, differences)) => {
                let shown: Vec<String> = differences
                    .iter()
                    .take(MAX_SHOWN)
                    .map(Difference::to_string)
                    .collect();
                let more = match differences.len().saturating_sub(MAX_SHOWN) {
                    0 => String::new(),
                    more => format!("; and {more} more"),
                };
                let shown = shown.join("; ");
                format!(
                    "no recording in {path} matches this request to '{model}'; nearest is /recordings/{index}, {shown}{more}"
                )
            }
        };
        Error::not_found(problem).with_reason(NO_RECORDING)
    }
}

/// Returns the name of a model, given its name or key.
fn bare(model: &str) -> &str {
    model.strip_prefix("/model/").unwrap_or(model)
}

#[async_trait]
impl Middleware for Replayer {
    async fn model(&self, call: ModelCall, _next: NextModel) -> HandlerResult<ModelResponse> {
        Ok(self.play(&call.model, &call.request, &call.emitter).await?)
    }
}

/// A model that answers from a cassette; made by [`Replayer::as_model`].
#[derive(Debug, Clone)]
pub struct ReplayedModel {
    name: String,
    replayer: Replayer,
}

impl Model for ReplayedModel {
    async fn generate(
        &self,
        request: ModelRequest,
        emitter: Emitter<ModelResponseChunk>,
        _context: Context,
    ) -> HandlerResult<ModelResponse> {
        Ok(self.replayer.play(&self.name, &request, &emitter).await?)
    }
}
