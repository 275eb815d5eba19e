//! Random attacks and a recovery; then the state of all sessions is compared with the records of the booking
//! service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use everturn::prelude::Value;
use tempfile::TempDir;
use travel_desk::booking_service::{BookingService, Order};

use crate::customer::Customer;
use crate::desks::{Desks, Place};

/// The number of concurrent customers. Each has one session.
const CUSTOMERS: u64 = 6;

/// The total number of attacks, unless `ATTACKS` sets it.
const ATTACKS: u64 = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_book_nothing_twice_lose_no_booking_and_approve_nothing_on_sqlite() {
    let folder = TempDir::new().unwrap();
    let database = folder.path().join("desk.db").display().to_string();
    attack(database, String::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_book_nothing_twice_lose_no_booking_and_approve_nothing_on_postgres() {
    let Ok(database) = std::env::var("EVERTURN_TEST_POSTGRES") else {
        println!("skipped: EVERTURN_TEST_POSTGRES names no server; ./test starts one");
        return;
    };
    attack(database, format!("travel_desk_{:016x}", fastrand::u64(..))).await;
}

async fn attack(database: String, schema: String) {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let seed = number("SEED", fastrand::u64(..));
    println!("SEED={seed}");
    let service = BookingService::start("127.0.0.1:0", seed).await.unwrap();
    let desks = Desks::start(Place {
        database,
        schema,
        booking_url: service.url().to_owned(),
    });
    let desks = Arc::new(desks.await);

    let attacks = number("ATTACKS", ATTACKS);
    let left = Arc::new(AtomicU64::new(attacks));
    let attacking: Vec<_> = (0..CUSTOMERS)
        .map(|number| Customer::new(number, seed, Arc::clone(&desks)).attack(Arc::clone(&left)))
        .map(tokio::spawn)
        .collect();
    let mut customers = Vec::new();
    for attack in attacking {
        customers.push(attack.await.unwrap());
    }
    service.recover();
    let (mut booked, mut refunded) = (Vec::new(), Vec::new());
    let mut counts = BTreeMap::<&str, usize>::new();
    for customer in &mut customers {
        customer.finish().await;
        let trip = customer.snapshot().await["state"]["custom"].take();
        let list = |name: &str| trip[name].as_array().cloned().unwrap_or_default();
        booked.extend(list("bookings"));
        for number in list("refunded") {
            let is_approved = customer.approved.contains(&number.as_u64().unwrap());
            assert!(is_approved, "staff did not approve the refund of {number}");
            refunded.push(number);
        }
        for (attack, count) in &customer.counts {
            *counts.entry(attack).or_default() += count;
        }
    }

    let (bookings, refunds) = (service.orders("bookings"), service.orders("refunds"));
    println!(
        "{counts:?}; {} timeouts, {} bookings, {} refunds",
        service.unanswered(),
        bookings.len(),
        refunds.len()
    );
    // Half of the expected number of each attack and fewer: 30 kills and 5 timeouts of 500 attacks.
    let least = |percent: u64| usize::try_from(attacks * percent / 100).unwrap();
    for attack in ["kill", "talk over", "retry"] {
        assert!(counts[attack] >= least(6), "{attack}: {counts:?}");
    }
    assert!(counts["approve as a customer"] >= 1, "{counts:?}");
    assert!(
        service.unanswered() >= least(1),
        "{} timeouts",
        service.unanswered()
    );
    let hotels = bookings.iter().map(|order| order.record["hotel"].clone());
    assert_eq!(twice(hotels), Vec::<Value>::new(), "no hotel is booked twice");
    let numbers = refunds.iter().map(|order| order.record.clone());
    assert_eq!(
        twice(numbers),
        Vec::<Value>::new(),
        "no booking is refunded twice"
    );
    let lost = difference(&records(&bookings), &booked);
    for customer in &customers {
        if lost
            .iter()
            .any(|booking| booking.to_string().contains(&customer.name))
        {
            println!("{}", customer.log.lock().unwrap().join("\n"));
        }
    }
    assert_eq!(lost, Vec::<Value>::new(), "every booking is in a session");
    assert_eq!(
        booked.len(),
        bookings.len(),
        "every booking is in one session, once"
    );
    let lost = difference(&records(&refunds), &refunded);
    assert_eq!(lost, Vec::<Value>::new(), "every refund is in a session");
    assert_eq!(
        refunded.len(),
        refunds.len(),
        "every refund is in one session, once"
    );
}

fn records(orders: &[Order]) -> Vec<Value> {
    orders.iter().map(|order| order.record.clone()).collect()
}

/// Returns the values that are not among the others.
fn difference(values: &[Value], others: &[Value]) -> Vec<Value> {
    let missing = values.iter().filter(|value| !others.contains(value));
    missing.cloned().collect()
}

/// Returns the values that occur more than once.
fn twice(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let values: Vec<Value> = values.collect();
    let is_again = |(place, value): &(usize, &Value)| values[..*place].contains(value);
    let again = values.iter().enumerate().filter(is_again);
    again.map(|(_, value)| value.clone()).collect()
}
