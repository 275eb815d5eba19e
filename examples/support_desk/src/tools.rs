//! The desk's tools.

use everturn::prelude::*;

use crate::desk::Ticket;
use crate::orders::{Order, Orders};

/// The question to staff before money goes back.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// What is asked.
    pub question: String,
    /// How much it costs.
    pub cents: u32,
}

/// The decision of staff.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether the money goes back.
    pub approved: bool,
}

/// Looks up one of the customer's orders, by the number on the receipt.
#[tool(replay = "pure")]
pub async fn look_up(number: u32, orders: Dep<Orders>, caller: &Principal) -> Result<Order> {
    // Staff act in the tenant of the customer they serve.
    Ok(orders.find(caller.tenant(), number)?.clone())
}

/// Writes a note for the colleague who takes over.
#[tool(replay = "pure")]
pub async fn note(text: String, ticket: Session<Ticket>) -> Result<usize> {
    ticket.update_custom(|ticket| ticket.notes.push(text));
    Ok(ticket.custom().notes.len())
}

/// Refunds one of the customer's orders, by the number on the receipt. Staff are asked first.
#[tool(replay = "keyed", answer = "restart", decision = Decision, by = "staff")]
pub async fn refund(
    number: u32,
    orders: Dep<Orders>,
    caller: &Principal,
    call: &ToolContext,
) -> Result<String> {
    let order = orders.find(caller.tenant(), number)?;
    match call.answer::<Decision>()? {
        None => Err(call.interrupt(Approval {
            question: format!("Refund {} of order {number}?", order.goods),
            cents: order.cents,
        })),
        Some(Decision { approved: false }) => Ok("staff declined: nothing is refunded".to_owned()),
        Some(Decision { approved: true }) => {
            orders.refund(call.effect_id().as_str(), order)?;
            Ok(format!("order {number} is refunded"))
        }
    }
}
