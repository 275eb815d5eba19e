//! A running program.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::{Detail, Scope, SessionStore};
use everturn_agent::{
    Agent, AgentInit, AgentInput, Answers, Clock, SessionId, SessionState, Snapshot, SnapshotId, Timeline,
    WhileInterrupted,
};
use everturn_ai::{History, Message, Messages, Part, history};
use everturn_core::Result as Outcome;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::agents::{Setting, replies, tool_reply};
use super::{Checked, Fault};
use crate::provider_rules::Provider;
use crate::{Gate, Reply, ScriptedModel};

/// Longer than a lease without a heartbeat.
const LEASE: i64 = 61;

pub(super) struct Runner {
    setting: Setting,
    clerk: Agent,
    rewinding: Agent,
    writer: Agent,
    probe: Agent,
    /// The model of the examining agent.
    probe_model: ScriptedModel,
    archive: Archive,
    seconds: Arc<AtomicI64>,
    session: SessionId,
    sessions: usize,
    /// The ids of all snapshots ever created.
    seen: Vec<SnapshotId>,
    summary: Checked,
    /// The number of checked requests of the agents' model.
    checked: usize,
}

impl Runner {
    pub(super) fn new(store: Arc<dyn SessionStore>, policy: WhileInterrupted) -> Self {
        let seconds = Arc::new(AtomicI64::new(0));
        let clock = Clock::new({
            let seconds = Arc::clone(&seconds);
            // Each reading of the clock advances it, so that snapshots are ordered.
            move || {
                let millis = SignedDuration::from_millis(seconds.fetch_add(1, Ordering::SeqCst));
                Timestamp::UNIX_EPOCH + millis
            }
        });
        let setting = Setting {
            store: Arc::clone(&store),
            clock: clock.clone(),
            model: ScriptedModel::new().otherwise(|_| "well"),
            policy,
        };
        let probe_model = ScriptedModel::new().otherwise(|_| "probe_model");
        let probing = Setting {
            model: probe_model.clone(),
            ..setting.clone()
        };
        Self {
            clerk: setting.clerk(Timeline::Branching),
            rewinding: setting.clerk(Timeline::Linear),
            writer: setting.writer(),
            probe: probing.probe(),
            probe_model,
            archive: Archive::of(store, Scope::default()).with_clock(clock),
            setting,
            seconds,
            session: "s0".into(),
            sessions: 1,
            seen: Vec::new(),
            summary: Checked::default(),
            checked: 0,
        }
    }

    pub(super) fn summary(&self) -> Checked {
        self.summary
    }

    /// Applies a fault. Rejected and failed inputs are part of the program.
    ///
    /// # Errors
    /// A description of a changed stored message.
    pub(super) async fn apply(&mut self, fault: Fault) -> Result<(), String> {
        let before = self.seen.len();
        let outcome = match fault {
            Fault::Say { at, reply } => self.say(&self.clerk, at, reply).await,
            Fault::Rewind { at, reply } => self.say(&self.rewinding, at, reply).await,
            Fault::Answer { at, how } => self.answer(at, how).await,
            Fault::Retry { at } => self.run(&self.clerk, at, AgentInput::default()).await,
            Fault::Detach { at, reply } => {
                self.expect(replies(reply));
                self.in_background(at).await
            }
            Fault::Abort { at, after_tool } => self.abort(at, after_tool).await,
            Fault::Leave { at, after_tool } => self.leave(at, after_tool).await,
            Fault::Kill {
                at,
                after_tool,
                is_detached,
            } => self.kill(at, after_tool, is_detached).await,
            Fault::AddMessages { at, messages } => self.run(&self.writer, at, messages.to_string()).await,
            Fault::Move => self.relocate().await,
        };
        self.summary.failures += usize::from(outcome.is_err());
        self.clerk.idle().await;
        self.rewinding.idle().await;
        self.note_snapshots().await;
        match fault {
            Fault::Say { .. } | Fault::AddMessages { .. } => self.check_kept(before).await,
            _ => Ok(()),
        }
    }

    fn expect(&self, replies: impl IntoIterator<Item = Reply>) {
        for reply in replies {
            self.setting.model.push(reply);
        }
    }

    /// Returns where an invocation starts: at the latest snapshot for zero, else at an earlier one.
    fn init(&self, at: u8) -> AgentInit {
        let back = usize::from(at).checked_sub(1);
        let earlier = back.and_then(|back| self.seen.get(back % self.seen.len().max(1)));
        match earlier {
            Some(id) => AgentInit::snapshot(id.clone()),
            None => AgentInit::session(self.session.clone()),
        }
    }

    async fn run(&self, agent: &Agent, at: u8, input: impl Into<AgentInput>) -> Outcome<()> {
        let mut connection = agent.connect(self.init(at));
        connection.send(input).await?;
        connection.close();
        let output = connection.output().await?;
        match output.error {
            Some(error) => Err(everturn_core::Error::internal(error.message)),
            None => Ok(()),
        }
    }

    async fn say(&self, agent: &Agent, at: u8, reply: u8) -> Outcome<()> {
        self.expect(replies(reply));
        self.run(agent, at, "hello").await
    }

    async fn answer(&self, at: u8, how: u8) -> Outcome<()> {
        let messages = self.messages(at).await;
        let asking = messages
            .iter()
            .rev()
            .find(|message| message.interrupts().next().is_some());
        let parts: Vec<&Part> = asking.into_iter().flat_map(Message::interrupts).collect();
        let respond = |part: &&Part| part.respond("yes", None);
        let restart = |part: &&Part| part.restart(Some(json!(true)), None);
        let answers: Answers = match how % 8 {
            0..=2 => parts.iter().filter_map(respond).collect(),
            3 | 4 => parts.iter().filter_map(restart).collect(),
            5 => parts.iter().take(1).filter_map(respond).collect(),
            6 => parts
                .iter()
                .filter_map(respond)
                .chain(parts.iter().filter_map(respond))
                .collect(),
            _ => parts
                .iter()
                .filter_map(|part| part.restart(None, Some(json!({"edited": how}))))
                .collect(),
        };
        let mut input = AgentInput::answers(answers);
        if how == 255 {
            input.message = Some("and a message".into());
        }
        self.run(&self.clerk, at, input).await
    }

    async fn in_background(&self, at: u8) -> Outcome<()> {
        self.run(&self.clerk, at, AgentInput::from("hello").detached())
            .await
    }

    /// Makes the model hang in the next turn; the gate is reached when it does.
    fn hang(&self, after_tool: bool) -> Gate {
        let gate = Gate::new();
        self.expect(after_tool.then(tool_reply));
        self.expect([Reply::text("never").wait(&gate)]);
        gate
    }

    async fn abort(&self, at: u8, after_tool: bool) -> Outcome<()> {
        let gate = self.hang(after_tool);
        let mut connection = self.clerk.connect(self.init(at));
        connection.send(AgentInput::from("hello").detached()).await?;
        let run = connection.output().await?.snapshot_id;
        tokio::select! {
            () = gate.reached() => {}
            () = self.clerk.idle() => {}
        }
        if let Some(run) = run {
            self.clerk.abort(run).await?;
        }
        self.clerk.idle().await;
        gate.open();
        Ok(())
    }

    async fn leave(&self, at: u8, after_tool: bool) -> Outcome<()> {
        let gate = self.hang(after_tool);
        let mut connection = self.clerk.connect(self.init(at));
        connection.send("hello").await?;
        tokio::select! {
            () = gate.reached() => {}
            _ = connection.output() => {}
        }
        drop(connection);
        self.clerk.idle().await;
        gate.open();
        Ok(())
    }

    async fn kill(&self, at: u8, after_tool: bool, is_detached: bool) -> Outcome<()> {
        let gate = self.hang(after_tool);
        let (init, setting, reached) = (self.init(at), self.setting.clone(), gate.clone());
        let killed = tokio::task::spawn_blocking(move || {
            // A separate runtime stands for a process: dropping it ends all its work.
            let process = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let clerk = setting.clerk(Timeline::Branching);
            let begun: Outcome<_> = process.block_on(async {
                let mut connection = clerk.connect(init);
                let input = AgentInput::from("hello");
                connection
                    .send(if is_detached { input.detached() } else { input })
                    .await?;
                let ended = async {
                    let _ = connection.output().await;
                    clerk.idle().await;
                };
                tokio::select! {
                    () = reached.reached() => {}
                    () = ended => {}
                }
                Ok(connection)
            });
            // Ended before the connection is dropped, which would cancel the turn regularly.
            process.shutdown_background();
            begun.map(drop)
        });
        killed.await??;
        self.seconds.fetch_add(LEASE * 1_000, Ordering::SeqCst);
        gate.open();
        let _ = self.clerk.recover().await;
        self.clerk.idle().await;
        Ok(())
    }

    async fn relocate(&mut self) -> Outcome<()> {
        let mut file = Vec::new();
        self.archive.export(self.session.clone(), &mut file).await?;
        let to: SessionId = format!("s{}", self.sessions).into();
        self.sessions += 1;
        let how = Import::default().into_session(to.clone());
        self.archive.import(file.as_slice(), how).await?;
        self.session = to;
        Ok(())
    }

    async fn note_snapshots(&mut self) {
        let Ok(tree) = self.archive.tree(self.session.clone()).await else {
            return;
        };
        for snapshot in tree.snapshots() {
            if !self.seen.contains(&snapshot.snapshot_id) {
                self.seen.push(snapshot.snapshot_id.clone());
            }
        }
    }

    async fn get(&self, id: &SnapshotId) -> Option<Snapshot> {
        let scope = Scope::default();
        let found = self.setting.store.get(&scope, id, Detail::Whole).await;
        found.ok().flatten()
    }

    /// Returns the messages of the snapshot that an invocation would continue.
    async fn messages(&self, at: u8) -> History {
        let snapshot = match self.init(at).snapshot_id {
            Some(id) => self.get(&id).await,
            None => self.archive.latest(self.session.clone()).await.ok(),
        };
        messages_of(snapshot)
    }

    /// Checks that new snapshots have all messages of their parents, unchanged.
    async fn check_kept(&self, before: usize) -> Result<(), String> {
        for id in &self.seen[before..] {
            let Some(snapshot) = self.get(id).await else {
                continue;
            };
            let Some(parent) = snapshot.parent_id.clone() else {
                continue;
            };
            let old = messages_of(self.get(&parent).await);
            let new = messages_of(Some(snapshot));
            if new.common_prefix(&old) < old.len() {
                return Err(format!("snapshot '{id}' changes messages of '{parent}'"));
            }
        }
        Ok(())
    }

    /// Checks all requests since the last check, and the next possible ones.
    pub(super) async fn check(&mut self) -> Result<(), String> {
        let requests = self.setting.model.requests();
        for request in &requests[self.checked..] {
            self.check_request(&request.messages)?;
        }
        self.checked = requests.len();
        let latest = self.messages(0).await;
        let touched = match self.seen.last() {
            Some(last) => messages_of(self.get(last).await),
            None => History::new(),
        };
        for messages in [latest, touched] {
            self.summary.faulty += usize::from(!history::checked(&messages).is_empty());
            let input = next_input(&messages);
            let state = SessionState {
                messages,
                ..SessionState::default()
            };
            let mut connection = self.probe.connect(AgentInit::state(state));
            let turn = async {
                connection.send(input).await?;
                connection.close();
                connection.output().await
            };
            let output = turn.await.map_err(|error| error.to_string())?;
            if let Some(error) = output.error {
                return Err(format!("the session cannot continue: {}", error.message));
            }
            let next = self
                .probe_model
                .last_request()
                .ok_or("the model was not called")?;
            self.check_request(&next.messages)?;
        }
        Ok(())
    }

    fn check_request(&mut self, messages: &Messages) -> Result<(), String> {
        self.summary.requests += 1;
        for provider in Provider::ALL {
            provider.check(messages).map_err(|reason| {
                let json = serde_json::to_string_pretty(messages).unwrap_or_default();
                format!("{reason}\nthe request was {json}")
            })?;
        }
        Ok(())
    }
}

/// Returns an input that the session must accept: a message, or answers if the outcome of a call is unknown.
fn next_input(messages: &History) -> AgentInput {
    let open = history::awaiting(messages).and_then(|place| messages.get(place));
    let questions: Vec<&Part> = open.into_iter().flat_map(Message::interrupts).collect();
    if !questions.iter().any(|question| question.is_outcome_unknown()) {
        return "hello".into();
    }
    let answers = questions
        .iter()
        .filter_map(|question| question.respond("yes", None));
    AgentInput::answers(answers.collect::<Answers>())
}

fn messages_of(snapshot: Option<Snapshot>) -> History {
    let state = snapshot.and_then(|snapshot| snapshot.state);
    state.map(|state| state.messages).unwrap_or_default()
}
