//! A support desk: customers ask about their orders, and staff decide about refunds.
//!
//! | file | holds |
//! |---|---|
//! | `desk.rs` | the agent and its state |
//! | `tools.rs` | what the agent can do |
//! | `orders.rs` | the shop's orders, on which the tools depend |
//! | `house_model.rs` | the plugin of the house's own model server |
//! | `people.rs` | who calls: customers and staff |
//! | `serve.rs` | the server, its page and its settings |

pub mod desk;
pub mod house_model;
pub mod orders;
pub mod people;
pub mod serve;
pub mod tools;
