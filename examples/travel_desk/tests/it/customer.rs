//! A customer who attacks the desk, and the staff who serve them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use everturn::prelude::{Value, json};
use travel_desk::serve::OPERATOR;
use travel_desk::tools::STAFF;

use crate::desks::{Caller, Desks, Input};

/// The maximum time from the start of a turn to its interruption, in microseconds: longer than most turns.
const LONGEST_TURN: u64 = 60_000;

/// The maximum number of inputs that complete a session after the attacks.
const PATIENCE: usize = 20;

pub(crate) struct Customer {
    pub(crate) name: String,
    me: Caller,
    staff: Caller,
    desks: Arc<Desks>,
    random: fastrand::Rng,
    /// The number of inputs so far.
    inputs: usize,
    /// The last message, if its response was lost.
    unanswered: Option<Input>,
    /// The bookings with an approved refund.
    pub(crate) approved: BTreeSet<u64>,
    /// The number of attacks of each kind.
    pub(crate) counts: BTreeMap<&'static str, usize>,
    began: Instant,
    /// The inputs and outputs of all turns.
    pub(crate) log: Mutex<Vec<String>>,
}

impl Customer {
    pub(crate) fn new(number: u64, seed: u64, desks: Arc<Desks>) -> Self {
        let name = format!("customer-{number}");
        Self {
            me: Caller::customer(&name),
            staff: Caller::serving(&name, &[STAFF, OPERATOR]),
            name,
            desks,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number)),
            inputs: 0,
            unanswered: None,
            approved: BTreeSet::new(),
            counts: BTreeMap::new(),
            began: Instant::now(),
            log: Mutex::default(),
        }
    }

    /// Attacks until no attacks are left, whose number all customers share.
    pub(crate) async fn attack(mut self, left: Arc<AtomicU64>) -> Self {
        let take = |left: u64| left.checked_sub(1);
        while left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
            .is_ok()
        {
            let attack = match self.random.u8(..16) {
                0 => self.search().await,
                1 | 2 => self.talk_over().await,
                3 | 4 => self.retry().await,
                5 | 6 => self.ask_for_refund().await,
                7 => self.approve_as_customer().await,
                8 => self.leave().await,
                9 | 10 => self.kill().await,
                _ => self.decide_as_staff().await,
            };
            *self.counts.entry(attack).or_default() += 1;
        }
        self
    }

    async fn book(&mut self) -> &'static str {
        let input = self.booking();
        self.send(input).await;
        "book"
    }

    async fn search(&mut self) -> &'static str {
        let input = self.says("find Rome");
        self.send(input).await;
        "search"
    }

    /// Sends a second message to the other process while the first is answered.
    async fn talk_over(&mut self) -> &'static str {
        let (booking, hello) = (self.booking(), self.says("hello"));
        self.unanswered = None;
        tokio::join!(self.turn(0, &booking), self.turn(1, &hello));
        "talk over"
    }

    /// Repeats the last message if its response was lost; otherwise retries a failed turn.
    async fn retry(&mut self) -> &'static str {
        let input = match self.unanswered.take() {
            Some(input) => input,
            None => self.input(json!({})),
        };
        self.send(input).await;
        "retry"
    }

    async fn ask_for_refund(&mut self) -> &'static str {
        let state = self.snapshot().await["state"]["custom"].take();
        let list = |name: &str| state[name].as_array().cloned().unwrap_or_default();
        let refunded = list("refunded");
        let bookings = list("bookings");
        let mut numbers = bookings.iter().map(|booking| &booking["number"]);
        if let Some(number) = numbers.rfind(|number| !refunded.contains(number)) {
            let input = self.says(&format!("refund {number}"));
            self.send(input).await;
            if self.random.bool() {
                return self.approve_as_customer().await;
            }
        }
        "ask for a refund"
    }

    /// Tries to answer the open questions, to use the role of staff, and to use invalid tokens of staff.
    async fn approve_as_customer(&mut self) -> &'static str {
        let before = self.snapshot().await;
        let mut callers = vec![self.me.clone(), self.me.clone().claiming_to_serve(&self.name)];
        callers.extend(self.staff.invalid());
        let mut attempts = 0;
        for question in questions(&before) {
            for answer in [restart(&question, true), respond(&question)] {
                for caller in &callers {
                    let input = self.input(json!({ "resume": answer }));
                    let index = self.random.usize(..2);
                    let output = self.desks.turn(index, caller, &self.name, &input).await;
                    attempts += 1;
                    if let Some(output) = output {
                        assert!(
                            !output["error"].is_null(),
                            "a customer's answer is refused: {output}"
                        );
                    }
                }
            }
        }
        if attempts > 0 {
            let after = self.snapshot().await;
            assert_eq!(after, before, "a customer's answer leaves no trace");
        }
        let refusal = self.desks.call_scout(&self.me).await;
        if let Some(refusal) = refusal {
            assert!(
                refusal.get("result").is_none(),
                "the scout is not public: {refusal}"
            );
        }
        if attempts > 0 {
            "approve as a customer"
        } else {
            "call the scout"
        }
    }

    /// Decides about refunds, and resolves calls with unknown outcomes: a restart reconciles them. Books if
    /// there is no question.
    async fn decide_as_staff(&mut self) -> &'static str {
        let questions = questions(&self.snapshot().await);
        if questions.is_empty() {
            return self.book().await;
        }
        let approves = self.random.u8(..4) > 0;
        self.decide(&questions, approves).await;
        "decide as staff"
    }

    async fn decide(&mut self, questions: &[Value], approves: bool) {
        let answers = questions
            .iter()
            .filter_map(|question| restart(question, approves)["restart"].as_array().cloned());
        let answers: Vec<_> = answers.collect();
        let input = self.input(json!({"resume": {"restart": answers.concat()}}));
        let index = self.random.usize(..2);
        let output = self.turn_of(&self.staff, index, &input).await;
        // Without a response, the outcome is unknown. A refused answer has no finish reason.
        let is_refused = output.is_some_and(|output| output["finishReason"].is_null());
        if is_refused || !approves {
            return;
        }
        let refunds = questions.iter().map(|question| &question["toolRequest"]);
        let refunds = refunds.filter(|call| call["name"] == "refund");
        self.approved
            .extend(refunds.filter_map(|call| call["input"]["number"].as_u64()));
    }

    /// Closes the connection before the response.
    async fn leave(&mut self) -> &'static str {
        let (input, index, moment) = (self.booking(), self.random.usize(..2), self.moment());
        let left = tokio::time::timeout(moment, self.turn(index, &input)).await;
        self.unanswered = left.ok().flatten().is_none().then_some(input);
        "leave"
    }

    /// Kills the process that is booking.
    #[expect(
        clippy::disallowed_methods,
        reason = "the process is killed at a random moment"
    )]
    async fn kill(&mut self) -> &'static str {
        let (input, index, moment) = (self.booking(), self.random.usize(..2), self.moment());
        let kill = async {
            tokio::time::sleep(moment).await;
            self.desks.kill(index).await;
        };
        let (output, ()) = tokio::join!(self.turn(index, &input), kill);
        self.unanswered = output.is_none().then_some(input);
        "kill"
    }

    /// Completes the session once the service is reliable and no process is killed.
    pub(crate) async fn finish(&mut self) {
        for _ in 0..PATIENCE {
            let questions = questions(&self.snapshot().await);
            if !questions.is_empty() {
                self.decide(&questions, false).await;
                continue;
            }
            let hello = self.says("hello");
            let output = self.send(hello).await;
            if output.is_some_and(|output| output["finishReason"] == "stop") {
                return;
            }
        }
        panic!("{} cannot go on: {}", self.name, self.snapshot().await);
    }

    /// Returns the latest snapshot of the session.
    pub(crate) async fn snapshot(&self) -> Value {
        self.desks.snapshot(&self.me, &self.name).await
    }

    /// Sends an input to one of the processes. A kill by another customer may lose the response.
    async fn send(&mut self, input: Input) -> Option<Value> {
        let index = self.random.usize(..2);
        let output = self.turn(index, &input).await;
        self.unanswered = output.is_none().then_some(input);
        output
    }

    async fn turn(&self, index: usize, input: &Input) -> Option<Value> {
        self.turn_of(&self.me, index, input).await
    }

    async fn turn_of(&self, caller: &Caller, index: usize, input: &Input) -> Option<Value> {
        let note = |what: String| {
            let line = format!("{:?} {what} at process {index}", self.began.elapsed());
            self.log.lock().unwrap().push(line);
        };
        note(format!("sends {} {}", input.id, input.data));
        let output = self.desks.turn(index, caller, &self.name, input).await;
        note(format!("gets {} {output:?}", input.id));
        output
    }

    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.random.u64(..LONGEST_TURN))
    }

    /// Returns a message that books a hotel which no other message books.
    fn booking(&mut self) -> Input {
        let hotel = format!("{}-hotel-{}", self.name, self.inputs);
        self.says(&format!("book {hotel}"))
    }

    fn says(&mut self, text: &str) -> Input {
        self.input(json!({"message": {"role": "user", "content": [{"text": text}]}}))
    }

    fn input(&mut self, data: Value) -> Input {
        self.inputs += 1;
        let id = format!("{}-{}", self.name, self.inputs);
        Input { id, data }
    }
}

/// Returns the open questions of a snapshot.
fn questions(snapshot: &Value) -> Vec<Value> {
    let messages = snapshot["state"]["messages"].as_array();
    let parts = messages
        .into_iter()
        .flatten()
        .filter_map(|message| message["content"].as_array());
    let is_open = |part: &&Value| !part["metadata"]["interrupt"].is_null();
    parts.flatten().filter(is_open).cloned().collect()
}

fn restart(question: &Value, approved: bool) -> Value {
    let mut restart = question.clone();
    restart["metadata"] = json!({"resumed": {"approved": approved}});
    json!({ "restart": [restart] })
}

fn respond(question: &Value) -> Value {
    let call = &question["toolRequest"];
    let response = json!({"name": call["name"], "ref": call["ref"], "output": "approved"});
    json!({ "respond": [{ "toolResponse": response }] })
}
