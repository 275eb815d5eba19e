//! A travel desk: customers book hotels at a service that may fail at any point, and staff approve refunds.
//!
//! | file | holds |
//! |---|---|
//! | `desk.rs` | the agents and the session's state |
//! | `tools.rs` | the tools: booking, refunds |
//! | `booking_service.rs` | the client of the booking service |
//! | `offline_model.rs` | a rule-based model, so that the desk runs without a provider |
//! | `serve.rs` | the server and its settings |

pub mod booking_service;
pub mod desk;
pub mod offline_model;
pub mod serve;
pub mod tools;
