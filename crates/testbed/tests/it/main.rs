//! All integration tests in one program, because each further program is linked separately.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

mod abort_from_another_process;
mod agent_conformance;
mod agreed_cases;
mod branches_under_turns;
mod deleting_is_real;
mod earlier_versions;
mod histories;
mod killed_workers;
mod processes;
mod real_clients;
mod recordings;
mod schemathesis;
mod served;
mod soak;
mod stopped_workers;
mod the_harness_is_complete;
mod the_runner_can_fail;
mod timelines_on_every_store;
mod turns_of_many_processes;
mod unknown_outcomes_on_every_store;
mod watched_from_another_process;
