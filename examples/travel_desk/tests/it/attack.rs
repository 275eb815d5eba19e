//! Random attacks, then a recovery, then the comparison of the desk's state with the records of the booking service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use everturn::prelude::{Value, json};
use tempfile::TempDir;

use crate::desks::{Desks, Response, customer, staff_for};
use crate::flaky_service::FlakyService;

/// Customers who attack at the same time; each has one session.
const CUSTOMERS: usize = 4;

/// How many attacks all customers make together, unless `ATTACKS` gives the number.
const ATTACKS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_attacks_book_nothing_twice_lose_no_booking_and_approve_nothing_on_sqlite() {
    let folder = TempDir::new().unwrap();
    attack(folder.path().join("desk.db").to_str().unwrap()).await;
}

async fn attack(database: &str) {
    let service = FlakyService::start().await;
    let desks = Arc::new(Desks::start(database, &service.url).await);
    let attacks = std::env::var("ATTACKS").map_or(ATTACKS, |number| number.parse().unwrap());
    let left = Arc::new(AtomicUsize::new(attacks));

    let customers = (0..CUSTOMERS).map(|number| {
        let customer = Customer::new(number, Arc::clone(&desks));
        tokio::spawn(customer.attack(Arc::clone(&left)))
    });
    let mut attacked = Vec::new();
    for customer in customers.collect::<Vec<_>>() {
        attacked.push(customer.await.unwrap());
    }
    service.records.recover();
    for customer in &mut attacked {
        customer.finish().await;
    }

    let mut counts = BTreeMap::<&str, usize>::new();
    let (mut booked, mut refunded) = (BTreeSet::new(), BTreeSet::new());
    for customer in &attacked {
        let state = customer.state().await;
        for booking in state["custom"]["bookings"].as_array().into_iter().flatten() {
            assert!(booked.insert(booking.to_string()), "{booking} is in the state twice");
        }
        for number in state["custom"]["refunded"].as_array().into_iter().flatten() {
            assert!(refunded.insert(number.to_string()), "refund {number} is in the state twice");
            assert!(customer.approved.contains(&number.as_u64().unwrap()), "{number} was not approved by staff");
        }
        for (attack, count) in &customer.counts {
            *counts.entry(attack).or_default() += count;
        }
    }
    let orders = service.records.bookings.lock().unwrap();
    let hotels: BTreeSet<_> = orders.iter().map(|order| order.record["hotel"].to_string()).collect();
    assert_eq!(hotels.len(), orders.len(), "a hotel was booked twice: {orders:#?}");
    let recorded: BTreeSet<_> = orders.iter().map(|order| order.record.to_string()).collect();
    assert_eq!(recorded, booked, "the state has all bookings of the service and no others");
    let refunds = service.records.refunds.lock().unwrap();
    let recorded: BTreeSet<_> = refunds.iter().map(|order| order.record.to_string()).collect();
    assert_eq!(recorded.len(), refunds.len(), "a booking was refunded twice: {refunds:#?}");
    assert_eq!(recorded, refunded, "the state has all refunds of the service and no others");
    println!("{counts:?}; {} bookings, {} refunds", orders.len(), refunds.len());
    assert!(counts.len() == 7 && !orders.is_empty() && !refunds.is_empty(), "every attack was made: {counts:?}");
}

/// A customer, and the member of staff who serves them.
struct Customer {
    session: String,
    token: String,
    staff: String,
    desks: Arc<Desks>,
    random: fastrand::Rng,
    /// The hotels asked for so far.
    asked: Vec<String>,
    /// The bookings whose refund staff approved.
    approved: BTreeSet<u64>,
    counts: BTreeMap<&'static str, usize>,
}

impl Customer {
    fn new(number: usize, desks: Arc<Desks>) -> Self {
        let name = format!("customer-{number}");
        Self {
            token: customer(&name),
            staff: staff_for(&name),
            session: name,
            desks,
            random: fastrand::Rng::with_seed(number as u64),
            asked: Vec::new(),
            approved: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    async fn attack(mut self, left: Arc<AtomicUsize>) -> Self {
        let take = |left: usize| left.checked_sub(1);
        while left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            let attack = match self.random.u8(..12) {
                0..=3 => self.book().await,
                4 => self.talk_over().await,
                5 => self.retry().await,
                6 | 7 => self.ask_for_refund().await,
                8 => self.approve_as_customer().await,
                9 => self.decide_as_staff().await,
                _ => self.kill_while_booking().await,
            };
            *self.counts.entry(attack).or_default() += 1;
        }
        self
    }

    async fn book(&mut self) -> &'static str {
        let message = self.booking();
        self.send(&message).await;
        "book"
    }

    /// Sends a second message to the other process while the first is answered.
    async fn talk_over(&mut self) -> &'static str {
        let message = self.booking();
        let (desks, token, session) = (&self.desks, &self.token, &self.session);
        let hello = says("hello");
        tokio::join!(
            desks.turn(0, token, session, &message),
            desks.turn(1, token, session, &hello)
        );
        "talk over"
    }

    /// Continues a turn that failed.
    async fn retry(&mut self) -> &'static str {
        self.send(&json!({})).await;
        "retry"
    }

    async fn ask_for_refund(&mut self) -> &'static str {
        let state = self.state().await;
        let bookings = state["custom"]["bookings"].as_array().cloned().unwrap_or_default();
        let refunded = state["custom"]["refunded"].as_array().cloned().unwrap_or_default();
        let open = bookings.iter().map(|booking| &booking["number"]);
        if let Some(number) = open.filter(|number| !refunded.contains(number)).last() {
            self.send(&says(&format!("refund {number}"))).await;
        }
        "ask for a refund"
    }

    async fn approve_as_customer(&mut self) -> &'static str {
        for question in self.questions().await {
            let token = self.token.clone();
            let response = self.decide(&token, &question, true).await;
            if let Some(response) = response {
                assert_ne!(response.status, 200, "a customer's approval is refused: {response:?}");
            }
        }
        "approve as a customer"
    }

    async fn decide_as_staff(&mut self) -> &'static str {
        for question in self.questions().await {
            let approves = self.random.bool();
            if approves {
                self.approved.extend(question["toolRequest"]["input"]["number"].as_u64());
            }
            let staff = self.staff.clone();
            self.decide(&staff, &question, approves).await;
        }
        "decide as staff"
    }

    /// Kills the process that books, a moment after it was asked to.
    async fn kill_while_booking(&mut self) -> &'static str {
        let message = self.booking();
        let index = self.random.usize(..2);
        let moments = self.random.usize(..400);
        let (desks, token, session) = (&self.desks, &self.token, &self.session);
        let kill = async {
            // Moments are turns of the scheduler, so that the kill meets every point of the booking.
            for _ in 0..moments {
                tokio::task::yield_now().await;
            }
            desks.kill(index).await;
        };
        tokio::join!(desks.turn(index, token, session, &message), kill);
        "kill"
    }

    /// Brings the session to its end: continues what failed, and asks again for hotels whose message was lost.
    async fn finish(&mut self) {
        todo!()
    }

    fn booking(&mut self) -> Value {
        let hotel = format!("{}-hotel-{}", self.session, self.asked.len());
        let message = says(&format!("book {hotel}"));
        self.asked.push(hotel);
        message
    }

    async fn send(&mut self, input: &Value) -> Option<Response> {
        let index = self.random.usize(..2);
        self.desks.turn(index, &self.token, &self.session, input).await
    }

    async fn decide(&mut self, token: &str, question: &Value, approved: bool) -> Option<Response> {
        let mut restart = question.clone();
        restart["metadata"] = json!({"resumed": {"approved": approved}});
        let index = self.random.usize(..2);
        let input = json!({"resume": {"restart": [restart]}});
        self.desks.turn(index, token, &self.session, &input).await
    }

    async fn state(&self) -> Value {
        for index in [0, 1].into_iter().cycle() {
            if let Some(state) = self.desks.state(index, &self.token, &self.session).await {
                return state;
            }
        }
        unreachable!("the processes are started again")
    }

    /// Returns the refunds that wait for a decision.
    async fn questions(&self) -> Vec<Value> {
        let state = self.state().await;
        let last = state["messages"].as_array().and_then(|messages| messages.last()).cloned();
        let parts = last.map(|message| message["content"].clone()).unwrap_or_default();
        let parts = parts.as_array().cloned().unwrap_or_default();
        let is_open = |part: &Value| !part["metadata"]["interrupt"].is_null();
        parts.into_iter().filter(is_open).collect()
    }
}

fn says(text: &str) -> Value {
    json!({"message": {"role": "user", "content": [{"text": text}]}})
}
