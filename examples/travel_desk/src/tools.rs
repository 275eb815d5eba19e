//! The tools of the desk. Both have effects outside the session that must happen once.

use everturn::ai::FromToolContext as _;
use everturn::prelude::*;

use crate::bookings::{Booking, Bookings, Kind};
use crate::desk::Trip;

/// The role that approves refunds and resolves calls whose outcome is unknown.
pub const STAFF: &str = "staff";

/// The decision of staff about a refund.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether the booking is refunded.
    pub approved: bool,
}

/// Books a hotel.
#[tool(replay = "once", outcome_by = "staff")]
pub async fn book(
    hotel: String,
    trip: Session<Trip>,
    bookings: Dep<Bookings>,
    call: &ToolContext,
) -> Result<Booking> {
    let order = json!({ "hotel": hotel });
    let booking: Booking = bookings
        .order(Kind::Bookings, call.effect_id().as_str(), &order)
        .await?;
    trip.update_custom(|trip| trip.add_booking(&booking));
    Ok(booking)
}

/// Determines whether a hotel was booked by a call whose outcome is unknown, and completes the state.
///
/// # Errors
/// If the service does not answer. The turn fails, and the next one reconciles again.
pub async fn reconcile_booking(_: Value, call: ToolContext) -> HandlerResult<Reconciliation<Booking>> {
    let bookings = Dep::<Bookings>::from_context(call.context())?;
    let found: Option<Booking> = bookings.settle(Kind::Bookings, call.effect_id().as_str()).await?;
    let Some(booking) = found else {
        return Ok(Reconciliation::NeverHappened);
    };
    Session::<Trip>::from_tool_context(&call)?.update_custom(|trip| trip.add_booking(&booking));
    Ok(Reconciliation::Happened(booking))
}

/// Refunds a booking, by its number. Staff are asked first.
#[tool(replay = "once", answer = "restart", decision = Decision, by = "staff", outcome_by = "staff")]
pub async fn refund(
    number: u64,
    trip: Session<Trip>,
    bookings: Dep<Bookings>,
    call: &ToolContext,
) -> Result<String> {
    match call.answer::<Decision>()? {
        None => Err(call.interrupt(json!({"question": format!("Refund booking {number}?")}))),
        Some(Decision { approved: false }) => Ok("staff declined: nothing is refunded".to_owned()),
        Some(Decision { approved: true }) => {
            let order = json!({ "number": number });
            let refunded: u64 = bookings
                .order(Kind::Refunds, call.effect_id().as_str(), &order)
                .await?;
            trip.update_custom(|trip| trip.add_refund(refunded));
            Ok(format!("booking {refunded} is refunded"))
        }
    }
}

/// Determines whether a booking was refunded by a call whose outcome is unknown, and completes the state.
///
/// # Errors
/// If the service does not answer. The turn fails, and the next one reconciles again.
pub async fn reconcile_refund(_: Value, call: ToolContext) -> HandlerResult<Reconciliation<String>> {
    let bookings = Dep::<Bookings>::from_context(call.context())?;
    let found: Option<u64> = bookings.settle(Kind::Refunds, call.effect_id().as_str()).await?;
    let Some(number) = found else {
        return Ok(Reconciliation::NeverHappened);
    };
    Session::<Trip>::from_tool_context(&call)?.update_custom(|trip| trip.add_refund(number));
    Ok(Reconciliation::Happened(format!("booking {number} is refunded")))
}
