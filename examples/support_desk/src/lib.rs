//! A support desk: customers ask about their orders, and staff decide about refunds.
//!
//! | file | contents |
//! |---|---|
//! | `desk.rs` | the agent and its state |
//! | `tools.rs` | the agent's tools |
//! | `orders.rs` | the shop's orders, which the tools depend on |
//! | `house_model.rs` | the plugin of the company's model server |
//! | `people.rs` | the callers: customers and staff |
//! | `serve.rs` | the server, its page and its settings |

pub mod desk;
pub mod house_model;
pub mod orders;
pub mod people;
pub mod serve;
pub mod tools;
