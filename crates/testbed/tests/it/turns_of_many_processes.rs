//! Three worker processes, 64 sessions and two clients per session: nothing is lost or mixed, and no rejected
//! turn does any work.
#![cfg(unix)]

use std::collections::{HashMap, HashSet};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everturn_agent::archive::Archive;
use everturn_agent::store::{Detail, Order, Scope, SessionStore, SnapshotQuery};
use everturn_agent::{Snapshot, SnapshotId};
use everturn_testkit::real_pause;
use testbed::worker::{Effects, Orders, POLICIES, SPENT};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::processes::{Process, Site};

const WORKERS: usize = 3;
const SESSIONS: usize = 64;
const CLIENTS: usize = 2;

/// The number of turns of each client under each policy: with all sessions, clients and policies 10,368 in
/// all.
const TURNS: usize = 27;

/// The number while workers are killed.
const TURNS_UNDER_FIRE: usize = 9;

/// How long the locks of a killed worker stay held.
const LEASE: Duration = Duration::from_secs(2);

/// A lease longer than any pause of a process on a busy machine.
const NO_END: Duration = Duration::from_mins(30);

/// How often a worker is killed during the turns of its clients.
const KILLS: usize = 30;

/// The outcome of a turn.
#[derive(Debug, Clone)]
enum Outcome {
    Done(SnapshotId),
    Refused(String),
    Failed(String),
    /// The worker died first.
    Unknown,
}

/// The lines printed by workers.
#[derive(Default)]
struct Output {
    begun: Mutex<Vec<String>>,
    awaited: Mutex<HashMap<usize, oneshot::Sender<Outcome>>>,
}

impl Output {
    fn receive(&self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (kind, subject) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let rest = words.next().unwrap_or_default().to_owned();
        let outcome = match kind {
            "begun" => return self.begun.lock().unwrap().push(subject.to_owned()),
            "done" => Outcome::Done(rest.into()),
            "refused" => Outcome::Refused(rest),
            "failed" => Outcome::Failed(rest),
            _ => return,
        };
        if let Some(awaited) = self.awaited.lock().unwrap().remove(&subject.parse().unwrap()) {
            let _ = awaited.send(outcome);
        }
    }
}

/// A worker process, which is restarted after it was killed.
struct Worker {
    orders: Orders,
    output: Arc<Output>,
    running: tokio::sync::Mutex<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    /// Reads its output, and ends with it.
    reader: JoinHandle<()>,
    /// The turns sent to this process.
    sent: Vec<usize>,
}

impl Worker {
    async fn start(orders: Orders) -> Self {
        let output = Arc::<Output>::default();
        let running = Self::run(&orders, &output).await;
        Self {
            orders,
            output,
            running: tokio::sync::Mutex::new(running),
        }
    }

    async fn run(orders: &Orders, output: &Arc<Output>) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_worker"))
            .arg(serde_json::to_string(orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        let output = Arc::clone(output);
        let reader = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                output.receive(&line);
            }
        });
        Running {
            child,
            input,
            reader,
            sent: Vec::new(),
        }
    }

    /// Runs a turn on the worker, and waits for its end.
    async fn turn(&self, number: usize, policy: &str, session: &str, text: &str) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        {
            let mut running = self.running.lock().await;
            running.sent.push(number);
            self.output.awaited.lock().unwrap().insert(number, sender);
            let line = format!("{number} {policy} {session} {text}\n");
            if running.input.write_all(line.as_bytes()).await.is_err() {
                return Outcome::Unknown;
            }
        }
        outcome.await.unwrap_or(Outcome::Unknown)
    }

    /// Kills the process at any point, and starts another.
    async fn kill(&self) {
        let mut running = self.running.lock().await;
        running.child.kill().await.unwrap();
        // Its last lines may still be in the pipe.
        (&mut running.reader).await.unwrap();
        let sent = std::mem::take(&mut running.sent);
        {
            let mut awaited = self.output.awaited.lock().unwrap();
            for number in sent {
                drop(awaited.remove(&number));
            }
        }
        *running = Self::run(&self.orders, &self.output).await;
    }

    fn begun(&self) -> HashSet<String> {
        let begun = self.output.begun.lock().unwrap();
        let texts: HashSet<String> = begun.iter().cloned().collect();
        assert_eq!(texts.len(), begun.len(), "a turn began twice");
        texts
    }
}

/// The turns of one session, and their outcomes.
type TurnOutcomes = Vec<(String, Outcome)>;

/// Runs the turns of two clients in every session under a policy, on any worker.
async fn talk(
    workers: &Arc<Vec<Worker>>,
    policy: &'static str,
    turns: usize,
) -> HashMap<String, TurnOutcomes> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let mut clients = tokio::task::JoinSet::new();
    for (session, client) in
        (0..SESSIONS).flat_map(|session| (0..CLIENTS).map(move |client| (session, client)))
    {
        let workers = Arc::clone(workers);
        clients.spawn(async move {
            let session = format!("{policy}-{session}");
            let mut outcomes = Vec::new();
            for turn in 0..turns {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let text = format!("{session}-{client}-{turn}");
                let worker = &workers[fastrand::usize(..WORKERS)];
                outcomes.push((text.clone(), worker.turn(number, policy, &session, &text).await));
            }
            (session, outcomes)
        });
    }
    let mut sessions: HashMap<String, TurnOutcomes> = HashMap::new();
    while let Some(client) = clients.join_next().await {
        let (session, outcomes) = client.unwrap();
        sessions.entry(session).or_default().extend(outcomes);
    }
    sessions
}

async fn snapshots(store: &dyn SessionStore, session: &str) -> Vec<Snapshot> {
    let mut query = SnapshotQuery::of(session.into()).limit(1_000);
    query.order = Order::Oldest;
    query.detail = Detail::Whole;
    let page = store.list(&Scope::default(), &query).await.unwrap();
    assert!(page.next.is_none());
    page.items
}

/// Returns the questions of a snapshot, each of which is followed by its own answer.
fn questions(snapshot: &Snapshot) -> Vec<String> {
    let messages: Vec<String> = snapshot
        .state
        .iter()
        .flat_map(|state| state.messages.iter())
        .map(|message| message.text().into_owned())
        .collect();
    for pair in messages.chunks(2) {
        assert_eq!(pair[1], format!("re: {}", pair[0]), "turns were mixed");
    }
    messages.into_iter().step_by(2).collect()
}

/// Checks one session: it contains every completed turn once, and no other.
async fn check(store: &dyn SessionStore, policy: &str, session: &str, outcomes: &TurnOutcomes) {
    let snapshots = snapshots(store, session).await;
    let by_id: HashMap<&SnapshotId, &Snapshot> = snapshots
        .iter()
        .map(|snapshot| (&snapshot.snapshot_id, snapshot))
        .collect();
    let mut texts = HashSet::new();
    for (text, outcome) in outcomes {
        match outcome {
            Outcome::Done(id) => {
                let snapshot = by_id.get(id).unwrap_or_else(|| panic!("'{text}' is lost"));
                assert_eq!(questions(snapshot).last(), Some(text));
                texts.insert(text);
            }
            // A process without time to renew its locks is fenced, as it should be.
            Outcome::Refused(why) => assert!(
                policy == "reject" || why.contains("lost its lock"),
                "'{text}' was refused: {why}"
            ),
            Outcome::Failed(why) => panic!("'{text}' failed: {why}"),
            Outcome::Unknown => {}
        }
    }
    let mut parents = HashSet::new();
    for snapshot in &snapshots {
        let all = questions(snapshot);
        let unique: HashSet<&String> = all.iter().collect();
        assert_eq!(unique.len(), all.len(), "a turn is there twice");
        let own = all.last().unwrap();
        let outcome = outcomes
            .iter()
            .find(|(text, _)| text == own)
            .map(|(_, outcome)| outcome);
        assert!(
            matches!(outcome, Some(Outcome::Done(_) | Outcome::Unknown)),
            "'{own}' is stored, and its client received {outcome:?}"
        );
        let is_first = parents.insert(snapshot.parent_id.clone());
        assert!(is_first || policy == "fork", "two turns follow one snapshot");
    }
    if policy != "fork" {
        let all: HashSet<String> = snapshots
            .last()
            .map(questions)
            .unwrap_or_default()
            .into_iter()
            .collect();
        assert!(texts.iter().all(|text| all.contains(*text)), "a turn is lost");
        assert_eq!(all.len(), snapshots.len());
    }
}

/// Starts workers whose locks expire if they do not renew them for this long.
async fn start(site: &Site, lease: Duration) -> Arc<Vec<Worker>> {
    let mut orders = site.orders(lease);
    orders.talks = true;
    orders.pace = Duration::from_millis(1);
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(Worker::start(orders.clone()).await);
    }
    Arc::new(workers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_three_processes_lose_nothing_and_no_refused_turn_works() {
    let Some(site) = Site::postgres() else {
        return;
    };
    let workers = start(&site, NO_END).await;
    let store = site.store.open().await.unwrap();
    let begun_at = Instant::now();

    let (mut turns, mut refused, mut done) = (0, HashMap::new(), HashSet::new());
    for (policy, _) in POLICIES {
        let sessions = talk(&workers, policy, TURNS).await;
        for (session, outcomes) in &sessions {
            check(&*store, policy, session, outcomes).await;
            for (text, outcome) in outcomes {
                turns += 1;
                match outcome {
                    Outcome::Done(_) => drop(done.insert(text.clone())),
                    outcome => drop(refused.insert(text.clone(), outcome.clone())),
                }
            }
        }
    }

    let begun: HashSet<String> = workers.iter().flat_map(Worker::begun).collect();
    println!(
        "{turns} turns in {:?}: {} done, {} refused",
        begun_at.elapsed(),
        done.len(),
        refused.len()
    );
    assert_eq!(turns, SESSIONS * CLIENTS * TURNS * POLICIES.len());
    assert!(!refused.is_empty(), "turns did overlap");
    let in_vain: Vec<_> = refused.iter().filter(|(text, _)| begun.contains(*text)).collect();
    assert!(in_vain.is_empty(), "refused turns worked: {in_vain:?}");
    assert_eq!(begun, done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_lose_no_acknowledged_turn_and_release_their_locks() {
    let Some(site) = Site::postgres() else {
        return;
    };
    let workers = start(&site, LEASE).await;
    let store = site.store.open().await.unwrap();
    let victims = Arc::clone(&workers);
    let killer = tokio::spawn(async move {
        for _ in 0..KILLS {
            let moment = Duration::from_millis(fastrand::u64(50..400));
            real_pause(moment, "a kill may fall anywhere into the work").await;
            victims[fastrand::usize(..WORKERS)].kill().await;
        }
    });

    let mut unknown = 0;
    for (policy, _) in POLICIES {
        for (session, outcomes) in talk(&workers, policy, TURNS_UNDER_FIRE).await {
            check(&*store, policy, &session, &outcomes).await;
            let is_unknown = |(_, outcome): &&(String, Outcome)| matches!(outcome, Outcome::Unknown);
            unknown += outcomes.iter().filter(is_unknown).count();
        }
    }
    killer.await.unwrap();

    println!("{KILLS} kills met {unknown} turns under way");
    assert!(unknown > 0, "no kill met a turn");
}

/// The model calls to which a session is limited.
const CALLS: u64 = 50;

#[tokio::test]
async fn turns_of_many_processes_call_no_more_models_than_their_session_allows() {
    for site in [Some(Site::sqlite()), Some(Site::files()), Site::postgres()]
        .into_iter()
        .flatten()
    {
        let store = site.store.open().await.unwrap();
        let mut orders = site.orders(NO_END);
        orders.spends = Some(CALLS);
        orders.pace = Duration::from_millis(2);
        let workers: Vec<Process> = (0..WORKERS).map(|_| Process::start(&orders)).collect();
        for worker in &workers {
            worker.expect_line("spent");
        }

        let made = Effects::at(&orders.effects).all().unwrap().len() as u64;
        assert_eq!(made, CALLS, "model calls on {:?}", site.store);
        let archive = Archive::of(Arc::clone(&store), Scope::default());
        assert_eq!(archive.session_usage(SPENT).await.unwrap().model_calls, CALLS);
        let latest = store
            .latest(&Scope::default(), &SPENT.into(), Detail::Metadata)
            .await;
        let turns = latest.unwrap().unwrap().turn_index.unwrap() + 1;
        println!("{turns} of {CALLS} calls were committed on {:?}", site.store);
    }
}
