//! Running actions for the tools: one service for both transports, also under the keys of earlier designs of
//! the tools.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use everturn_core::stream_log::JsonText;
use everturn_core::{
    ActionType, Context, DynAction, Emitter, Error, JsonCall, ParsedKey, Registry, Result, SpanIds,
    SpanLabels, SpanObserver, TraceId,
};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::exporter::Exporter;
use crate::wire;

/// A request to run an action. The tools may send `null` for absent fields, and fields of later versions.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunRequest {
    pub(crate) key: String,
    #[serde(default)]
    input: Option<Value>,
    #[serde(default)]
    init: Option<Value>,
    #[serde(default)]
    context: Option<Map<String, Value>>,
    #[serde(default)]
    telemetry_labels: Option<Map<String, Value>>,
    #[serde(default)]
    pub(crate) stream: bool,
}

/// A running action. Dropping this does not end it: the tools may read its trace later.
pub(crate) struct Run {
    /// The ids of the outermost span, as soon as it exists; an error if there will be none.
    pub(crate) started: oneshot::Receiver<SpanIds>,
    pub(crate) chunks: mpsc::Receiver<JsonText>,
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// The outcome of an action, and its trace.
pub(crate) struct Ended {
    pub(crate) result: Result<Value>,
    pub(crate) ids: Option<SpanIds>,
}

impl Ended {
    /// Returns `{"result": …}` or `{"error": …}`.
    pub(crate) fn into_json(self) -> Value {
        match self.result {
            Ok(value) => wire::result(&value, self.ids),
            Err(error) => json!({ "error": wire::failure(&error, self.ids) }),
        }
    }
}

/// The actions that run for the tools. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Runs(Arc<Shared>);

struct Shared {
    registry: Registry,
    exporter: Exporter,
    /// The cancellation of each run, from the start of its outermost span to its end.
    running: Mutex<HashMap<TraceId, CancellationToken>>,
    tasks: TaskTracker,
    /// Cancels every run.
    over: CancellationToken,
}

impl Runs {
    pub(crate) fn new(registry: &Registry, exporter: Exporter) -> Self {
        Self(Arc::new(Shared {
            registry: registry.clone(),
            exporter,
            running: Mutex::default(),
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
        }))
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn exporter(&self) -> &Exporter {
        &self.0.exporter
    }

    /// Starts an action. With `inputs` the action is opened as a bidirectional one and receives them.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such action.
    pub(crate) async fn start(
        &self,
        mut request: RunRequest,
        inputs: Option<mpsc::UnboundedReceiver<Value>>,
    ) -> Result<Run> {
        let alias = StoreKey::parse(&request.key).map(|(call, agent)| (call, call.action(agent)));
        let key = alias.as_ref().map_or(&request.key, |(_, key)| key);
        let Some(action) = self.0.registry.lookup(key).await? else {
            return Err(Error::not_found(format!("action {} not found", request.key)));
        };
        if let Some((call, _)) = alias {
            request.input = call.input(request.input);
        }
        let (start, started) = oneshot::channel();
        let (chunk_sender, chunks) = mpsc::channel(1);
        let (end, ended) = oneshot::channel();
        let ids = Arc::new(Mutex::new(None));
        let context = self.context(&mut request, start, Arc::clone(&ids));
        let this = self.clone();
        self.0.tasks.spawn(async move {
            let chunks = request.stream.then_some(chunk_sender);
            let result = match inputs {
                Some(inputs) => converse(action.as_ref(), request, context.clone(), inputs, chunks).await,
                None => once(action.as_ref(), request, context.clone(), chunks).await,
            };
            let ids = *ids.lock();
            if let Some(ids) = ids {
                this.0.running.lock().remove(&ids.trace);
            }
            // A command of the tools exits after the response, and its trace server with it, so spans are
            // sent first.
            this.0.exporter.flush().await;
            let result = match alias {
                Some((call, _)) => result.map(|answer| call.answer(answer)),
                None => result,
            };
            // The client may have disconnected.
            let _ = end.send(Ended { result, ids });
        });
        Ok(Run {
            started,
            chunks,
            ended,
        })
    }

    /// Returns the context of a run, whose observer registers the run as soon as its span begins.
    fn context(
        &self,
        request: &mut RunRequest,
        start: oneshot::Sender<SpanIds>,
        known: Arc<Mutex<Option<SpanIds>>>,
    ) -> Context {
        let context = Context::new()
            .with_cancellation(self.0.over.child_token())
            .with_values(request.context.take().unwrap_or_default())
            .with_dependencies(self.0.registry.dependencies());
        let labels = SpanLabels(request.telemetry_labels.take().unwrap_or_default());
        let token = context.cancellation().clone();
        // The observer holds the service weakly: it is part of a context that a background run keeps.
        let shared = Arc::downgrade(&self.0);
        let start = Mutex::new(Some(start));
        let observer = SpanObserver::new(move |recorder| {
            let (Some(ids), Some(start)) = (recorder.ids(), start.lock().take()) else {
                return;
            };
            *known.lock() = Some(ids);
            if let Some(shared) = shared.upgrade() {
                shared.running.lock().insert(ids.trace, token.clone());
            }
            let _ = start.send(ids);
        });
        context
            .with_extension(Arc::new(labels))
            .with_extension(Arc::new(observer))
    }

    /// Cancels the run with this trace id. Returns whether there is one.
    pub(crate) fn cancel(&self, trace: &str) -> bool {
        let running = self.0.running.lock();
        let found = running.iter().find(|(id, _)| id.to_string() == trace);
        if let Some((_, token)) = found {
            token.cancel();
        }
        found.is_some()
    }

    /// Cancels every run and waits until they have ended.
    pub(crate) async fn end(&self) {
        self.0.over.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// Runs an action with one input.
async fn once(
    action: &dyn DynAction,
    request: RunRequest,
    context: Context,
    chunks: Option<mpsc::Sender<JsonText>>,
) -> Result<Value> {
    // A disconnected client does not end the action.
    let emitter = chunks.map(|chunks| {
        Emitter::new(move |chunk: JsonText| {
            let chunks = chunks.clone();
            async move {
                let _ = chunks.send(chunk).await;
                Ok(())
            }
        })
    });
    let call = JsonCall {
        input: request.input,
        init: request.init,
        context,
        emitter,
    };
    action.run_json(call).await
}

/// Opens a bidirectional action and passes the inputs to it.
async fn converse(
    action: &dyn DynAction,
    request: RunRequest,
    context: Context,
    mut inputs: mpsc::UnboundedReceiver<Value>,
    chunks: Option<mpsc::Sender<JsonText>>,
) -> Result<Value> {
    let mut connection = action.connect_json(request.init, &context)?;
    let sender = connection.sender();
    let feeding = async move {
        if let Some(first) = request.input.filter(|input| !input.is_null()) {
            // An action that has ended accepts no inputs; its output contains the cause.
            let _ = sender.send(first).await;
        }
        while let Some(input) = inputs.recv().await {
            if sender.send(input).await.is_err() {
                break;
            }
        }
        sender.close();
        std::future::pending::<Infallible>().await
    };
    let talking = async {
        while let Some(chunk) = connection.receive().next().await {
            if let Some(chunks) = &chunks {
                let _ = chunks.send(JsonText::of(&chunk)?).await;
            }
        }
        connection.output().await
    };
    tokio::select! {
        output = talking => output,
        never = feeding => match never {},
    }
}

/// An action of an agent, by the key with which earlier designs of the tools call it.
///
/// | key | result |
/// |---|---|
/// | `/session-store/{agent}/getSnapshot`, `/snapshot-store/{agent}/getSnapshot` | the snapshot |
/// | `/session-store/{agent}/listSnapshots`, `/snapshot-store/{agent}/listSnapshots` | all snapshots |
/// | `/session-store/{agent}/getSession` | the session's id and its current state |
///
/// Listed snapshots include their states; the newest is first.
///
/// The tools reject lists with unknown action types, so these keys can be run but are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKey {
    GetSnapshot,
    ListSnapshots,
    GetSession,
}

impl StoreKey {
    /// Splits an earlier key into the action and the agent's name; `None` for any other key.
    pub(crate) fn parse(key: &str) -> Option<(Self, &str)> {
        let parsed = ParsedKey::parse(key)?;
        let (agent, call) = parsed.name.rsplit_once('/')?;
        let call = match (parsed.action_type, call) {
            ("session-store" | "snapshot-store", "getSnapshot") => Self::GetSnapshot,
            ("session-store" | "snapshot-store", "listSnapshots") => Self::ListSnapshots,
            ("session-store", "getSession") => Self::GetSession,
            _ => return None,
        };
        Some((call, agent))
    }

    /// Returns the key of the corresponding action of the agent.
    pub(crate) fn action(self, agent: &str) -> String {
        let action_type = match self {
            Self::GetSnapshot => ActionType::AGENT_SNAPSHOT,
            Self::ListSnapshots => ActionType::AGENT_SNAPSHOTS,
            Self::GetSession => ActionType::AGENT_SESSION,
        };
        action_type.key(agent)
    }

    /// Returns the input for that action.
    pub(crate) fn input(self, input: Option<Value>) -> Option<Value> {
        let mut input = input?;
        if let (Self::ListSnapshots, Some(members)) = (self, input.as_object_mut()) {
            members.entry("whole").or_insert(true.into());
        }
        Some(input)
    }

    /// Converts that action's result to the format of the earlier key.
    pub(crate) fn answer(self, mut answer: Value) -> Value {
        match self {
            Self::GetSnapshot => answer,
            Self::ListSnapshots => answer["snapshots"].take(),
            Self::GetSession => json!({
                "id": answer["sessionId"].take(),
                "snapshotId": answer["latest"]["snapshotId"].take(),
                "state": answer["latest"]["state"].take(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_the_store_are_known() {
        for key in [
            "/session-store/chef/getSnapshot",
            "/snapshot-store/chef/getSnapshot",
        ] {
            assert_eq!(
                StoreKey::parse(key),
                Some((StoreKey::GetSnapshot, "chef")),
                "{key}"
            );
        }
        assert_eq!(StoreKey::parse("/snapshot-store/chef/getSession"), None);
        assert_eq!(StoreKey::parse("/agent/chef"), None);
    }
}
