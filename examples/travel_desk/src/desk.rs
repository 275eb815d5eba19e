//! The agents: the desk that customers talk to, and the scout that it delegates searches to.

use everturn::prelude::*;

use crate::booking_service::Booking;
use crate::tools::{book, booked, refund, refunded};

/// The state of a conversation.
#[payload]
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Trip {
    /// The bookings that were made in it.
    pub bookings: Vec<Booking>,
    /// The numbers of those that were refunded.
    pub refunded: Vec<u64>,
}

/// Defines both agents, whose conversations are kept in the store.
///
/// The scout is a sub-agent, so servers do not offer it to customers.
///
/// # Errors
/// If an agent is defined already, or the application has no booking service.
pub fn define(app: &Everturn, store: impl everturn::agent::IntoStore) -> Result<Agent<Trip>> {
    app.agent("scout")
        .description("finds hotels")
        .system("You find hotels.")
        .define()?;
    app.agent("desk")
        .description("books hotels and refunds bookings")
        .custom::<Trip>()
        .system("You are a travel desk. Booked so far: {{@custom.bookings}}.")
        .tool(book.tool().with_reconcile(booked))
        .tool(refund.tool().with_reconcile(refunded))
        .use_middleware(Delegation::to([AgentRef::new("scout")]))
        .limits(Limits::new().per_session(Budget::new().model_calls(1_000)))
        .store(store)
        .define()
}
