//! Agents whose model and tools may die with their process, and are counted in the world outside.

use std::sync::Arc;

use everturn_agent::store::{Detail, MemoryStore, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentFinishReason, AgentInit, AgentInput, AgentOutput, CustomState, Interrupt, Snapshot, agent,
};
use everturn_ai::{
    Message, ModelInfo, ModelRequest, ModelResponse, Part, Role, Tool, ToolContext, ToolRequest,
    define_model, set_default_model,
};
use everturn_core::{Registry, Result, Status};
use serde_json::{Value, json};

use crate::support::{FaultyStore, Fuse, World};

/// A registry whose model answers by how often tools have answered, and may die before and after it does.
pub(crate) fn registry(
    fuse: &Fuse,
    world: &Arc<World>,
    answer: impl Fn(usize) -> ModelResponse + Send + Sync + 'static,
) -> Registry {
    registry_of(fuse, world, move |request| {
        let answers = request
            .messages
            .iter()
            .filter(|message| message.role() == Role::Tool);
        answer(answers.count())
    })
}

/// A registry whose model answers by the request, and may die before and after the answer.
pub(crate) fn registry_of(
    fuse: &Fuse,
    world: &Arc<World>,
    answer: impl Fn(&ModelRequest) -> ModelResponse + Send + Sync + 'static,
) -> Registry {
    let registry = Registry::new();
    let (fuse, world, answer) = (fuse.clone(), Arc::clone(world), Arc::new(answer));
    define_model(
        &registry,
        "cook",
        ModelInfo::default(),
        move |request, _emitter, _context| {
            let (fuse, world, answer) = (fuse.clone(), Arc::clone(&world), Arc::clone(&answer));
            async move {
                fuse.step().await;
                world.count("model");
                let response = answer(&request);
                fuse.step().await;
                Ok(response)
            }
        },
    )
    .unwrap();
    set_default_model(&registry, "cook");
    registry
}

/// The session that all processes talk about.
pub(crate) fn session() -> AgentInit {
    AgentInit {
        session_id: Some("s".into()),
        ..AgentInit::default()
    }
}

/// Runs one input of the session to its end.
pub(crate) async fn turn<S: CustomState>(
    agent: &Agent<S>,
    input: impl Into<AgentInput>,
) -> Result<AgentOutput> {
    let mut connection = agent.connect(session());
    connection.send(input).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}

/// The session's latest snapshot.
pub(crate) fn latest(store: &MemoryStore) -> Option<Snapshot> {
    let read = async { store.latest(&Scope::default(), &"s".into(), Detail::Whole).await };
    Fuse::never().process(read).unwrap().unwrap()
}

/// How many journals there are.
pub(crate) fn journals(store: &MemoryStore) -> u64 {
    // Of a copy, so to speak: everything is older than the end of time.
    let text = format!("{store:?}");
    let count = text.split("journals: ").nth(1).unwrap();
    count
        .chars()
        .take_while(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap()
}

/// A reply that asks for these tools.
pub(crate) fn asks(names: &[&str]) -> ModelResponse {
    let request = |name: &&str| Part::from(ToolRequest::new(*name, json!({})).with_reference(*name));
    ModelResponse::new(Message::model(names.iter().map(request).collect::<Vec<_>>()))
}

/// Asks for these tools once, then is done.
pub(crate) fn once(names: &'static [&'static str]) -> impl Fn(usize) -> ModelResponse + Send + Sync {
    move |rounds| match rounds {
        0 => asks(names),
        _ => ModelResponse::text_of("Done."),
    }
}

/// A tool that is counted, and then does what `then` does with the number of its run.
pub(crate) fn tool<F, Fut>(name: &'static str, world: &Arc<World>, then: F) -> Tool
where
    F: Fn(usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value>> + Send + 'static,
{
    let (world, then) = (Arc::clone(world), Arc::new(then));
    Tool::dynamic(name, "Does it.", None, move |_, _: ToolContext| {
        world.count(name);
        let run = world.counted(name);
        let then = Arc::clone(&then);
        async move { Ok(then(run).await?) }
    })
}

pub(crate) fn done(name: &'static str, world: &Arc<World>) -> Tool {
    tool(name, world, move |_| async move {
        Ok(json!(format!("{name} is done")))
    })
}

/// A tool whose first run takes the process with it.
pub(crate) fn deadly(name: &'static str, world: &Arc<World>, fuse: &Fuse) -> Tool {
    let fuse = fuse.clone();
    tool(name, world, move |run| {
        let fuse = fuse.clone();
        async move {
            if run == 1 {
                fuse.die().await;
            }
            Ok(json!(format!("{name} is done")))
        }
    })
}

/// A store and the world outside, for processes that come and go.
pub(crate) struct Setting {
    pub(crate) store: MemoryStore,
    pub(crate) world: Arc<World>,
}

impl Setting {
    pub(crate) fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            world: Arc::new(World::default()),
        }
    }

    /// This store, as a process sees it.
    pub(crate) fn shared(&self, fuse: &Fuse) -> FaultyStore {
        FaultyStore::shared(&self.store, fuse, &self.world)
    }

    pub(crate) fn agent(
        &self,
        fuse: &Fuse,
        answer: impl Fn(usize) -> ModelResponse + Send + Sync + 'static,
        tools: impl IntoIterator<Item = Tool>,
    ) -> Agent {
        agent(&registry(fuse, &self.world, answer), "cook")
            .tools(tools)
            .store(self.shared(fuse))
            .define()
            .unwrap()
    }
}

/// Runs a turn of an agent in a separate process; `None` if the process died.
pub(crate) fn run(fuse: &Fuse, agent: &Agent, input: impl Into<AgentInput>) -> Option<Result<AgentOutput>> {
    fuse.process(turn(agent, input))
}

pub(crate) fn interrupt(output: &AgentOutput) -> Interrupt {
    assert_eq!(
        output.finish_reason,
        Some(AgentFinishReason::Interrupted),
        "{output:?}"
    );
    Interrupt::of(output.message.as_ref().unwrap().interrupts().next().unwrap()).unwrap()
}

pub(crate) fn status(output: &AgentOutput) -> Status {
    output.error.as_ref().unwrap().status.unwrap()
}
