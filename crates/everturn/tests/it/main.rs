//! All integration tests in one program, because each further program is linked and stored separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod answering;
mod building;
mod checked_at_start;
mod dependencies;
mod design_map;
mod errors;
#[cfg(all(feature = "sqlite", feature = "server"))]
mod freed_applications;
mod front_page;
mod module_graph;
mod one_way_of_writing;
mod prompt_folder;
mod published_crates;
mod recovering;
mod studio_in_development;
mod tools;
mod wire_guide;
