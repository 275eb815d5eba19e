//! Processes die at random points of a turn in which approved calls run, and the conversation is resumed on
//! two branches: no approved call is made twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentFinishReason, AgentInit, AgentInput, AgentOutput, Interrupt, agent};
use everturn_ai::{Answers, Tool, ToolContext};
use everturn_core::Result;
use serde_json::{Value, json};

use crate::journal_support::{once, registry};
use crate::support::{FaultyStore, Fuse, World};

const KILLS: usize = 200;
const TOOLS: [&str; 2] = ["pay", "post"];

/// A tool that asks, and must not run twice.
fn tool(name: &'static str, fuse: &Fuse, world: &Arc<World>) -> Tool {
    let (fuse, world) = (fuse.clone(), Arc::clone(world));
    Tool::dynamic(name, "Does it.", None, move |_, cx: ToolContext| {
        let (fuse, world) = (fuse.clone(), Arc::clone(&world));
        async move {
            if cx.answer::<Value>()?.is_none() {
                return Err(cx.interrupt(json!({"ask": name})).into());
            }
            fuse.step().await;
            world.count(name);
            world.saw_key(name, cx.effect_id().as_str());
            fuse.step().await;
            Ok(json!(format!("{name} is done")))
        }
    })
}

/// The agent as one process has it.
fn clerk(store: &MemoryStore, fuse: &Fuse, world: &Arc<World>) -> Agent {
    agent(&registry(fuse, world, once(&TOOLS)), "clerk")
        .tools(TOOLS.map(|name| tool(name, fuse, world)))
        .store(FaultyStore::shared(store, fuse, world))
        .define()
        .unwrap()
}

async fn turn(agent: &Agent, init: AgentInit, input: impl Into<AgentInput>) -> Result<AgentOutput> {
    let mut connection = agent.connect(init);
    connection.send(input).await?;
    connection.close();
    while connection.next().await.is_some() {}
    connection.output().await
}

fn questions(output: &AgentOutput) -> Vec<Interrupt> {
    let message = output.message.iter();
    message
        .flat_map(|message| message.interrupts().filter_map(Interrupt::of))
        .collect()
}

/// A conversation in which both tools have asked.
struct Asked {
    store: MemoryStore,
    world: Arc<World>,
    output: AgentOutput,
}

impl Asked {
    fn new() -> Self {
        let (store, world, fuse) = (MemoryStore::new(), Arc::new(World::default()), Fuse::never());
        let ask = async { turn(&clerk(&store, &fuse, &world), AgentInit::session("s"), "go").await };
        let output = fuse.process(ask).unwrap().unwrap();
        assert_eq!(questions(&output).len(), TOOLS.len());
        Self { store, world, output }
    }

    fn approval(&self) -> AgentInput {
        let approved = |question: Interrupt| question.restart(json!({"approved": true})).unwrap();
        AgentInput::from(
            questions(&self.output)
                .into_iter()
                .map(approved)
                .collect::<Answers>(),
        )
    }

    /// Approves both calls in a separate process; `None` if it dies.
    fn approve(&self, fuse: &Fuse, at: AgentInit) -> Option<AgentOutput> {
        let approve = async { turn(&clerk(&self.store, fuse, &self.world), at, self.approval()).await };
        fuse.process(approve).map(|output| output.unwrap())
    }

    /// Like [`Asked::approve`], in a process that lives; `None` if the session no longer waits for an answer.
    fn approve_if_open(&self, at: AgentInit) -> Option<AgentOutput> {
        self.approve(&Fuse::never(), at)
            .filter(|output| output.error.is_none())
    }

    /// The snapshot with the questions.
    fn snapshot(&self) -> AgentInit {
        AgentInit::snapshot(self.output.snapshot_id.clone().unwrap())
    }
}

/// Whether the calls of a resumption have their outcomes: the tool's, or a question about it.
fn is_settled(output: &AgentOutput) -> bool {
    assert!(output.error.is_none(), "{:?}", output.error);
    let open = questions(output);
    assert!(open.iter().all(Interrupt::is_outcome_unknown), "{open:?}");
    if open.is_empty() {
        assert_eq!(output.finish_reason, Some(AgentFinishReason::Stop));
    }
    open.is_empty()
}

#[test]
fn two_hundred_kills_and_two_branches_make_no_approved_call_twice() {
    let whole = Fuse::burning_at(usize::MAX - 1);
    let asked = Asked::new();
    asked.approve(&whole, asked.snapshot()).expect("it lives");
    let steps = whole.steps();
    assert!(steps > 10, "{steps} points to die at");

    let mut random = fastrand::Rng::with_seed(7);
    let mut seen = BTreeMap::<(usize, bool), usize>::new();
    for kill in 0..KILLS {
        let asked = Asked::new();
        let at = random.usize(0..steps);
        let died = asked.approve(&Fuse::burning_at(at), asked.snapshot()).is_none();
        assert!(died, "kill {kill} at step {at} of {steps}");
        let before = TOOLS.map(|name| asked.world.counted(name)).iter().sum::<usize>();

        // The client tries its turn again, or another one begins a branch; then there is a second branch.
        let retried = if random.bool() {
            asked.snapshot()
        } else {
            AgentInit::session("s")
        };
        let first = match asked.approve_if_open(retried) {
            Some(output) => is_settled(&output),
            // The session went on before the process died.
            None => true,
        };
        let second = is_settled(&asked.approve(&Fuse::never(), asked.snapshot()).unwrap());

        for name in TOOLS {
            let times = asked.world.counted(name);
            assert!(
                times <= 1,
                "kill {kill} at step {at}: '{name}' was done {times} times"
            );
            assert!(
                asked.world.keys(name) <= 1,
                "the identity of '{name}' is the same on every branch"
            );
        }
        *seen.entry((before, first && second)).or_default() += 1;
    }

    // Kills met all moments: before the effects, in the middle, and after them; known outcomes and unknown
    // ones.
    let met = |wanted: fn(&(usize, bool)) -> bool| seen.keys().any(wanted);
    assert!(met(|(before, _)| *before == 0), "{seen:?}");
    assert!(met(|(before, _)| *before == TOOLS.len()), "{seen:?}");
    assert!(
        met(|(_, settled)| *settled) && met(|(_, settled)| !*settled),
        "{seen:?}"
    );
}

#[test]
fn an_operator_settles_an_approved_call_whose_process_died() {
    let whole = Fuse::burning_at(usize::MAX - 1);
    let asked = Asked::new();
    asked.approve(&whole, asked.snapshot()).expect("it lives");

    let mut settled = 0;
    for at in 0..whole.steps() {
        let asked = Asked::new();
        assert!(asked.approve(&Fuse::burning_at(at), asked.snapshot()).is_none());
        let output = asked.approve(&Fuse::never(), asked.snapshot()).unwrap();
        if is_settled(&output) {
            continue;
        }
        // The operator looks at the world.
        let tell = |question: Interrupt| match asked.world.counted(question.name()) {
            0 => question.restart(json!({"approved": true})).unwrap(),
            _ => question.respond(format!("{} is done", question.name())).unwrap(),
        };
        let answers: Answers = questions(&output).into_iter().map(tell).collect();
        let fuse = Fuse::never();
        let init = AgentInit::snapshot(output.snapshot_id.clone().unwrap());
        let told = async {
            turn(
                &clerk(&asked.store, &fuse, &asked.world),
                init,
                AgentInput::from(answers),
            )
            .await
        };
        let end = fuse.process(told).unwrap().unwrap();

        assert!(is_settled(&end));
        assert!(TOOLS.iter().all(|name| asked.world.counted(name) == 1));
        settled += 1;
    }
    assert!(settled > 0, "no process died while a call was under way");
}
