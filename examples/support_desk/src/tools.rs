//! What the desk can do.

use everturn::prelude::*;

use crate::desk::Ticket;
use crate::orders::Orders;
use crate::people::Caller;

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

/// The number on the receipt.
#[payload]
#[derive(Debug, Clone)]
pub struct OrderNumber {
    /// The number on the receipt.
    pub number: u32,
}

/// Returns the tool that looks up one of the customer's orders.
pub fn look_up(orders: &Orders) -> Tool {
    let orders = orders.clone();
    let look_up = move |order: OrderNumber, call: ToolContext| {
        let orders = orders.clone();
        async move {
            let caller = Caller::of(call.context())?;
            Ok(orders.find(&caller.customer, order.number)?.clone())
        }
    };
    Tool::new("look_up", "Looks up one of the customer's orders.", look_up).with_replay(Replay::Pure)
}

/// Writes a note for the colleague who takes over.
#[tool(replay = "pure")]
pub async fn note(text: String, ticket: Session<Ticket>) -> Result<usize> {
    ticket.update_custom(|ticket| ticket.notes.push(text));
    Ok(ticket.custom().notes.len())
}

/// Returns the tool that refunds one of the customer's orders, after it has asked staff.
pub fn refund(orders: &Orders) -> Tool {
    let orders = orders.clone();
    let refund = move |order: OrderNumber, call: ToolContext| {
        let orders = orders.clone();
        async move { Ok(decide(&orders, order.number, &call)?) }
    };
    let description = "Refunds one of the customer's orders. Staff are asked first.";
    Tool::new("refund", description, refund).with_replay(Replay::Keyed)
}

fn decide(orders: &Orders, number: u32, call: &ToolContext) -> Result<String> {
    let caller = Caller::of(call.context())?;
    let order = orders.find(&caller.customer, number)?;
    let approval = Approval {
        question: format!("Refund {} of order {number}?", order.goods),
        cents: order.cents,
    };
    match call.answer::<Decision>()? {
        // The question stays open if somebody else than staff answers it.
        Some(Decision { approved }) if caller.is_staff => {
            if !approved {
                return Ok("staff declined: nothing is refunded".to_owned());
            }
            orders.refund(call.effect_id().as_str(), order)?;
            Ok(format!("order {number} is refunded"))
        }
        _ => Err(call.interrupt(approval)),
    }
}
