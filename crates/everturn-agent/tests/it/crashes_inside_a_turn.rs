//! Processes that die at any point of turns which leave snapshots in their middle, with their client or after
//! it left. Resumed work repeats no effect and no message, and comes to the same conversation.

use std::sync::Arc;

use SnapshotEvent::{InvocationEnd, RoundEnd, TurnEnd};
use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentInput, Clock, Snapshot, SnapshotEvent, SnapshotIds, SnapshotPolicy, SnapshotStatus, Timeline,
    agent,
};
use everturn_ai::{
    Message, ModelRequest, ModelResponse, Part, Reconciliation, Role, Tool, ToolContext, ToolRequest,
};
use everturn_core::Result;
use everturn_testkit::Gate;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal_support::{journals, latest, registry_of, session, turn};
use crate::support::{FaultyStore, Fuse, World};

/// The requests of the client, one turn each.
const ASKED: [&str; 2] = ["rent", "food"];

/// How many payments each takes, one after the other.
const ROUNDS: usize = 2;

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Payment {
    what: String,
    round: usize,
}

impl Payment {
    fn name(&self) -> String {
        format!("{} {}", self.what, self.round)
    }
}

/// How the agent keeps its conversations.
#[derive(Clone, Copy)]
struct Keeping {
    events: &'static [SnapshotEvent],
    ids: SnapshotIds,
    timeline: Timeline,
}

/// The point at which the client leaves: during that payment of the second turn.
#[derive(Clone)]
struct Departure {
    round: usize,
    gate: Gate,
}

/// Requests one payment after the other, and reports when all are made.
fn answer(request: &ModelRequest) -> ModelResponse {
    let (mut what, mut round) = (String::new(), 0);
    for message in &request.messages {
        match message.role() {
            Role::User => (what, round) = (message.text().into_owned(), 0),
            Role::Tool => round += 1,
            _ => {}
        }
    }
    if round == ROUNDS {
        return ModelResponse::text_of(format!("{what} is paid"));
    }
    let payment = serde_json::to_value(Payment { what, round }).unwrap();
    let request = ToolRequest::new("pay", payment).with_reference("1");
    ModelResponse::new(Message::model(vec![Part::from(request)]))
}

/// Pays once, and can find out whether it did.
fn pay(fuse: &Fuse, world: &Arc<World>, departure: Option<&Departure>) -> Tool {
    let (fuse, paying, departure) = (fuse.clone(), Arc::clone(world), departure.cloned());
    let found = Arc::clone(world);
    Tool::new("pay", "Pays.", move |payment: Payment, _: ToolContext| {
        let (fuse, world) = (fuse.clone(), Arc::clone(&paying));
        let departure = departure.clone();
        async move {
            let leaves =
                |departure: &Departure| (payment.what.as_str(), payment.round) == (ASKED[1], departure.round);
            if let Some(departure) = departure.filter(leaves) {
                departure.gate.pass().await;
            }
            fuse.step().await;
            world.count(&payment.name());
            fuse.step().await;
            Ok(payment.name())
        }
    })
    .with_reconcile(move |payment: Payment, _| {
        let world = Arc::clone(&found);
        async move {
            Ok(match world.counted(&payment.name()) {
                0 => Reconciliation::NeverHappened,
                _ => Reconciliation::Happened(payment.name()),
            })
        }
    })
}

/// The agent as one process has it, that many hours later.
fn cashier(
    store: &MemoryStore,
    fuse: &Fuse,
    world: &Arc<World>,
    keeping: Keeping,
    hours: i64,
    departure: Option<&Departure>,
) -> Agent {
    let now = Timestamp::from_second(1_000_000).unwrap() + SignedDuration::from_hours(hours);
    agent(&registry_of(fuse, world, answer), "cashier")
        .tool(pay(fuse, world, departure))
        .store(FaultyStore::shared(store, fuse, world))
        .clock(Clock::new(move || now))
        .snapshots(SnapshotPolicy::on(keeping.events.iter().copied()))
        .snapshot_ids(keeping.ids)
        .timeline(keeping.timeline)
        .define()
        .unwrap()
}

/// Asks for everything in one connection, and leaves at the departure, if there is one. Says how many steps
/// came before.
async fn ask(agent: &Agent, fuse: &Fuse, departure: Option<&Departure>) -> Result<usize> {
    let mut connection = agent.connect(session());
    for what in ASKED {
        connection.send(what).await?;
    }
    if departure.is_none() {
        connection.close();
    }
    let listening = async { while connection.next().await.is_some() {} };
    let Some(departure) = departure else {
        listening.await;
        connection.output().await?;
        return Ok(0);
    };
    tokio::select! {
        () = departure.gate.reached() => {}
        () = listening => {}
    }
    let steps = fuse.steps();
    connection.detach().await?;
    connection.output().await?;
    departure.gate.open();
    agent.idle().await;
    Ok(steps)
}

fn said(snapshot: Option<&Snapshot>) -> Vec<String> {
    let line = |message: &Message| {
        let part = |part: &Part| {
            let asked = part.as_tool_request().and_then(|request| request.input.clone());
            let answered = part
                .as_tool_response()
                .and_then(|response| response.output.clone());
            format!("{:?}{asked:?}{answered:?}", part.as_text())
        };
        message.content().iter().map(part).collect::<String>()
    };
    let state = snapshot.and_then(|snapshot| snapshot.state.as_ref());
    state.map_or_else(Vec::new, |state| state.messages.iter().map(line).collect())
}

/// A client that finds its session as a dead process left it: it continues the interrupted turn, and sends
/// the remaining requests.
fn come_back(store: &MemoryStore, agent: &Agent, fuse: &Fuse) {
    loop {
        let snapshot = latest(store);
        let messages = snapshot
            .and_then(|snapshot| snapshot.state)
            .unwrap_or_default()
            .messages;
        let is_paid = |what: &&&str| {
            messages
                .iter()
                .any(|message| *message.text() == format!("{what} is paid"))
        };
        let in_the_middle = messages
            .last()
            .is_some_and(|message| message.role() == Role::Tool);
        let input = match ASKED.iter().find(|what| !is_paid(what)) {
            _ if in_the_middle => AgentInput::default(),
            Some(what) => AgentInput::from(*what),
            None => return,
        };
        let output = fuse.process(turn(agent, input)).unwrap().unwrap();
        assert_eq!(output.error, None);
    }
}

/// Lets a process die at every point, and another go on.
fn wherever_it_dies(keeping: Keeping, departure: Option<usize>) {
    let departing = || {
        departure.map(|round| Departure {
            round,
            gate: Gate::new(),
        })
    };
    // What happens before the client leaves is the same whether it leaves or not.
    let (expected, first) = {
        let (store, world, fuse) = (MemoryStore::new(), Arc::new(World::default()), Fuse::never());
        let leaving = departing();
        let agent = cashier(&store, &fuse, &world, keeping, 0, leaving.as_ref());
        let asked = fuse.process(ask(&agent, &fuse, leaving.as_ref()));
        (said(latest(&store).as_ref()), asked.unwrap().unwrap())
    };
    assert_eq!(expected.len(), ASKED.len() * (2 + 2 * ROUNDS));

    let mut taken_over = 0;
    for point in first.. {
        let (store, world, fuse) = (
            MemoryStore::new(),
            Arc::new(World::default()),
            Fuse::burning_at(point),
        );
        let leaving = departing();
        let agent = cashier(&store, &fuse, &world, keeping, 0, leaving.as_ref());
        let survived = fuse.process(ask(&agent, &fuse, leaving.as_ref())).is_some();

        let fuse = Fuse::never();
        let heir = cashier(&store, &fuse, &world, keeping, 1, None);
        fuse.process(async {
            let recovery = heir.recover().await;
            taken_over += recovery.taken_over.len();
            assert!(recovery.failures.is_empty(), "{recovery:?}");
            heir.idle().await;
        });
        come_back(&store, &heir, &fuse);

        let snapshot = latest(&store).unwrap();
        assert_eq!(snapshot.status, SnapshotStatus::Completed, "at {point}");
        assert_eq!(said(Some(&snapshot)), expected, "at {point}");
        for what in ASKED {
            for round in 0..ROUNDS {
                let payment = Payment {
                    what: what.to_owned(),
                    round,
                };
                assert_eq!(world.counted(&payment.name()), 1, "{payment:?} at {point}");
            }
        }
        if survived {
            assert!(point - first > 10, "only {} points were looked at", point - first);
            assert_eq!(
                taken_over > 0,
                departure.is_some(),
                "{taken_over} runs were taken over"
            );
            assert_eq!(journals(&store), 0);
            return;
        }
    }
}

const PLAIN: Keeping = Keeping {
    events: &[RoundEnd, TurnEnd],
    ids: SnapshotIds::Uuid,
    timeline: Timeline::Branching,
};

#[test]
fn a_run_that_was_detached_in_the_middle_of_a_turn_is_taken_over_from_its_beginning() {
    for round in 0..ROUNDS {
        wherever_it_dies(PLAIN, Some(round));
    }
}

#[test]
fn a_run_without_a_snapshot_of_its_turns_beginning_is_taken_over_from_there() {
    let no_ends_of_turns = Keeping {
        events: &[RoundEnd, InvocationEnd],
        ..PLAIN
    };
    wherever_it_dies(no_ends_of_turns, Some(1));
}

#[test]
fn a_run_with_content_addressed_snapshots_on_a_linear_timeline_is_taken_over() {
    let named = Keeping {
        ids: SnapshotIds::ContentAddressed,
        timeline: Timeline::Linear,
        ..PLAIN
    };
    wherever_it_dies(named, Some(1));
}

#[test]
fn a_client_that_comes_back_to_the_middle_of_a_turn_lets_it_continue() {
    wherever_it_dies(PLAIN, None);
}
