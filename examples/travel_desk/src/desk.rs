//! The agents: the desk that customers talk to, and the scout that it delegates searches to.

use std::time::Duration;

use everturn::agent::IntoStore;
use everturn::prelude::*;

use crate::bookings::Booking;
use crate::tools::{book, reconcile_booking, reconcile_refund, refund};

/// The state of a conversation.
#[payload]
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Trip {
    /// The bookings that were made in it.
    pub bookings: Vec<Booking>,
    /// The numbers of the bookings that were refunded.
    pub refunded: Vec<u64>,
}

impl Trip {
    /// Adds a booking, unless it is present.
    pub fn add_booking(&mut self, booking: &Booking) {
        if !self.bookings.contains(booking) {
            self.bookings.push(booking.clone());
        }
    }

    /// Adds a refund, unless it is present.
    pub fn add_refund(&mut self, number: u64) {
        if !self.refunded.contains(&number) {
            self.refunded.push(number);
        }
    }
}

/// Defines both agents. Servers do not offer the scout to customers, because it is a sub-agent of the desk.
///
/// Several processes may share the store, so turns are locked there. The lease is the time after which the
/// lock of a process that died is free.
///
/// # Errors
/// If an agent is already defined, or the application has no booking service.
pub fn define(app: &Everturn, store: impl IntoStore, turn_lease: Duration) -> Result<Agent<Trip>> {
    app.agent("scout")
        .description("finds hotels")
        .system("You find hotels.")
        .define()?;
    app.agent("desk")
        .description("books hotels and refunds bookings")
        .custom::<Trip>()
        .system("You are a travel desk. Booked so far: {{@custom.bookings}}.")
        .tool(book.tool().with_reconcile(reconcile_booking))
        .tool(refund.tool().with_reconcile(reconcile_refund))
        .use_middleware(Delegation::to([AgentRef::new("scout")]))
        .store(store)
        .turn_locking(TurnLocking::InStore)
        .turn_lease(turn_lease)
        .concurrency(Concurrency::Queue)
        .define()
}
