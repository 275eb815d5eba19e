//! The surface as clients see it, over HTTP.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod background;
mod chat_completions;
mod client_permissions;
mod content_addressed;
mod conversation_routes;
mod errors;
mod items_sent_back;
mod leaving;
mod repeated_requests;
mod response_routes;
mod structured_output;
mod support;
mod tenants;
