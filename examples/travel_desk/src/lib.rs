//! A travel desk: customers book hotels at a service that may fail at any point, and staff approve refunds.
//!
//! | file | contents |
//! |---|---|
//! | `desk.rs` | the agents and the state of a conversation |
//! | `tools.rs` | the tools: bookings and refunds |
//! | `bookings.rs` | the client of the booking service |
//! | `booking_service.rs` | the booking service, which fails at random |
//! | `offline_model.rs` | a rule-based model, so that the desk runs without a provider |
//! | `tokens.rs` | the tokens of customers and staff |
//! | `serve.rs` | the server and its settings |

pub mod booking_service;
pub mod bookings;
pub mod desk;
pub mod offline_model;
pub mod serve;
pub mod tokens;
pub mod tools;
