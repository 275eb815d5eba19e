//! The agent.

use everturn::agent::IntoStore;
use everturn::prelude::*;

use crate::tools::{look_up, note, refund};

/// The desk's state of a conversation. Sessions of earlier versions lack the newer fields, which get their
/// default.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket {
    /// Notes for the colleague who takes over.
    pub notes: Vec<String>,
    /// How urgent the matter is; since version 2.
    pub priority: u8,
}

impl Default for Ticket {
    fn default() -> Self {
        Self {
            notes: Vec::new(),
            priority: 3,
        }
    }
}

/// Defines the desk, whose conversations are kept in the store. Its tools need the application's
/// [`Orders`](crate::orders::Orders).
///
/// # Errors
/// If a desk is already defined, or the application has no orders.
pub fn define(app: &Everturn, store: impl IntoStore) -> Result<Agent<Ticket>> {
    app.agent("desk")
        .description("answers customers' questions about their orders")
        .custom::<Ticket>()
        .system(
            "You are the support desk of a shop. The customer is {{@auth.customer}}. \
             Notes so far: {{@custom.notes}}. Priority: {{@custom.priority}}.",
        )
        .tool(look_up)
        .tool(note)
        .tool(refund)
        // A failed first turn is kept, so that the customer can retry it.
        .record_context(["auth"])
        .store(store)
        .define()
}
