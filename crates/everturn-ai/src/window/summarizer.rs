//! Creating summaries. Each is created once, and a failure does not fail a turn.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use everturn_core::{Context, Emitter, Error, Registry, Result, WeakRegistry, catch_panic};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::instrument::{Instrument, WithSubscriber};

use crate::model::ModelHandle;
use crate::{Message, ModelReference, ModelRequest};

/// The number of summaries that are kept until conversations store them.
const REMEMBERED: usize = 256;

/// The default instructions for the model.
const INSTRUCTIONS: &str = "You keep the memory of a long conversation between a user and an assistant. Write a summary from \
    which the assistant can go on without the messages themselves: who the user is, what they want and prefer, facts, \
    names, numbers and decisions, results of tools, and what is still open. Keep everything of the earlier summary that \
    still matters. Leave out greetings and repetitions. Write only the summary.";

/// The model and the instructions for summaries.
#[derive(Debug, Clone)]
pub(super) struct Summarizer {
    pub(super) model: ModelReference,
    pub(super) instructions: Option<Arc<str>>,
    /// Whether summaries are started before they are needed.
    pub(super) ahead: bool,
}

/// A summary in progress or finished; `None` if it failed.
pub(super) type Making = Shared<BoxFuture<'static, Option<Arc<str>>>>;

/// The summaries of one window, and the tasks that create them. Dropping it ends the tasks.
#[derive(Default)]
pub(super) struct Workshop {
    state: Mutex<State>,
    /// Two keyed hashes identify a text. Conversations of different people must not get each other's
    /// summaries.
    hashers: (RandomState, RandomState),
}

#[derive(Default)]
struct State {
    makings: VecDeque<((u64, u64), Making)>,
    tasks: JoinSet<()>,
}

/// The material of a summary.
pub(super) struct Material<'a> {
    /// The summary of the messages before.
    pub(super) earlier: Option<&'a str>,
    /// The messages as text.
    pub(super) transcript: String,
    /// How many words the summary should have at most.
    pub(super) max_words: u64,
}

impl Workshop {
    /// Returns the summary of the material, and starts to create it on the first call.
    ///
    /// A task creates the summary, so a turn that ends meanwhile leaves it to the next one.
    pub(super) fn make(
        &self,
        summarizer: &Summarizer,
        material: &Material<'_>,
        registry: &Registry,
        context: &Context,
    ) -> Making {
        let text = material.text();
        let key = (self.hashers.0.hash_one(&text), self.hashers.1.hash_one(&text));
        let mut state = self.state.lock();
        if let Some((_, making)) = state.makings.iter().find(|(known, _)| *known == key) {
            return making.clone();
        }
        let request = summarizer.request(text, material.max_words);
        let name = summarizer.model.name.clone();
        // The turn may end before the summary is finished.
        let context = context.detached();
        let making = attempt(name, request, registry.downgrade(), context)
            .boxed()
            .shared();
        if let Ok(runtime) = Handle::try_current() {
            while state.tasks.try_join_next().is_some() {}
            // A task does not inherit the span and the subscriber of the code that spawns it.
            let task = making
                .clone()
                .map(drop)
                .in_current_span()
                .with_current_subscriber();
            state.tasks.spawn_on(task, &runtime);
        }
        state.makings.push_back((key, making.clone()));
        if state.makings.len() > REMEMBERED {
            state.makings.pop_front();
        }
        making
    }
}

everturn_core::opaque_debug!(Workshop);

impl Material<'_> {
    fn text(&self) -> String {
        match self.earlier {
            Some(earlier) => format!(
                "Summary of the messages before:\n{earlier}\n\nMessages since:\n{}",
                self.transcript
            ),
            None => format!("Messages:\n{}", self.transcript),
        }
    }
}

impl Summarizer {
    fn request(&self, text: String, max_words: u64) -> ModelRequest {
        let instructions = self.instructions.as_deref().unwrap_or(INSTRUCTIONS);
        let system = Message::system(format!("{instructions} Use at most {max_words} words."));
        ModelRequest {
            config: self.model.config.clone(),
            ..ModelRequest::new([system, Message::user(text)])
        }
    }
}

/// Creates a summary. A failure is logged and leaves the conversation without one.
async fn attempt(
    model: String,
    request: ModelRequest,
    registry: WeakRegistry,
    context: Context,
) -> Option<Arc<str>> {
    let asked = catch_panic("a summary", ask(&model, request, registry, context)).await;
    match asked {
        Ok(text) => Some(text),
        Err(error) => {
            tracing::warn!(
                %error,
                model,
                "a summary could not be made: the model sees the latest messages without one"
            );
            None
        }
    }
}

async fn ask(
    model: &str,
    request: ModelRequest,
    registry: WeakRegistry,
    context: Context,
) -> Result<Arc<str>> {
    // Weak, and only for the search: the registry holds the agent, which holds this task.
    let model = ModelHandle::resolve(&registry.upgrade()?, model).await?;
    let response = model.call(Box::new(request), Emitter::silent(), context).await?;
    let text = response.message.map(|message| message.text().trim().to_owned());
    match text.filter(|text| !text.is_empty()) {
        Some(text) => Ok(text.into()),
        None => Err(Error::failed_precondition("the model wrote nothing")),
    }
}
