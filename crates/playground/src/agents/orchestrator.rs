//! An orchestrator: delegates tasks to the other agents.

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent> {
    let orchestrator = app
        .agent("orchestrator")
        .description("hands tasks to the chef, the coder and the planner: “Let the chef say what is in season in month 2, and the coder print a list”")
        .system(
            "You are an orchestrator. Hand each part of the request to the agent it is for, with everything the agent \
             needs to know, and then sum up the answers.",
        )
        .use_middleware(Delegation::to(["chef", "coder", "planner"]).max_delegations(4));
    keep(orchestrator, "orchestrator", files).define()
}
