//! The tools of the desk. Both have effects outside the session and must run once.

use everturn::prelude::*;

use crate::booking_service::{Booking, BookingService};
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
    service: Dep<BookingService>,
    call: &ToolContext,
) -> Result<Booking> {
    let booking = service.book(call.effect_id().as_str(), &hotel).await?;
    trip.update_custom(|trip| trip.bookings.push(booking.clone()));
    Ok(booking)
}

/// Refunds a booking by its number. Staff are asked first.
#[tool(replay = "once", answer = "restart", decision = Decision, by = "staff", outcome_by = "staff")]
pub async fn refund(
    number: u64,
    trip: Session<Trip>,
    service: Dep<BookingService>,
    call: &ToolContext,
) -> Result<String> {
    match call.answer::<Decision>()? {
        None => Err(call.interrupt(json!({"question": format!("Refund booking {number}?")}))),
        Some(Decision { approved: false }) => Ok("staff declined: nothing is refunded".to_owned()),
        Some(Decision { approved: true }) => {
            service.refund(call.effect_id().as_str(), number).await?;
            trip.update_custom(|trip| trip.refunded.push(number));
            Ok(format!("booking {number} is refunded"))
        }
    }
}

/// Finds out whether a booking was made whose call has no known outcome, and completes the state.
///
/// # Errors
/// If the service does not answer; the turn fails, and a retry asks again.
pub async fn booked(_: Value, call: ToolContext) -> HandlerResult<Reconciliation<Booking>> {
    let found = service(&call)?.find_booking(call.effect_id().as_str()).await?;
    Ok(match found {
        None => Reconciliation::NeverHappened,
        Some(booking) => {
            let trip = Session::<Trip>::from_tool_context(&call)?;
            trip.update_custom(|trip| trip.bookings.push(booking.clone()));
            Reconciliation::Happened(booking)
        }
    })
}

/// Finds out whether a refund was made whose call has no known outcome, and completes the state.
///
/// # Errors
/// If the service does not answer; the turn fails, and a retry asks again.
pub async fn refunded(_: Value, call: ToolContext) -> HandlerResult<Reconciliation<String>> {
    let found = service(&call)?.find_refund(call.effect_id().as_str()).await?;
    Ok(match found {
        None => Reconciliation::NeverHappened,
        Some(number) => {
            let trip = Session::<Trip>::from_tool_context(&call)?;
            trip.update_custom(|trip| trip.refunded.push(number));
            Reconciliation::Happened(format!("booking {number} is refunded"))
        }
    })
}

fn service(call: &ToolContext) -> HandlerResult<Dep<BookingService>> {
    Dep::from_tool_context(call)
}
