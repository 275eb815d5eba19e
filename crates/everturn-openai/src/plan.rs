//! From what a request says to the turn that is run.
//!
//! The server's record is the truth. Items that the caller's record of the agent holds are recognised, what follows them is
//! new, and nothing that only the agent can say or do is taken from a client into a kept conversation.

mod hearsay;
mod pending;

use everturn_agent::{AgentInit, AgentInput, ClientTool, SessionId, Snapshot};
use everturn_ai::Part;
use everturn_core::Context;
use everturn_server::exposure_of;

pub(crate) use self::hearsay::hearsay;
pub(crate) use self::pending::{Pending, input_of, pending};
use crate::agents::Agent;
use crate::fault::Fault;
use crate::ids::{ItemKey, parse_item_id, parse_response_id};
use crate::items::Setting;
use crate::said::Said;

/// The greatest number of ids that are looked up for one request.
const MOST_LOOKED_UP: usize = 64;

/// The turn to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) init: AgentInit,
    pub(crate) input: AgentInput,
    /// Whether the turn becomes part of a session that is kept.
    pub(crate) is_kept: bool,
    /// Whether the conversation begins anew in a session that exists.
    pub(crate) begins_anew: bool,
    /// The snapshot that the turn continues.
    pub(crate) base: Option<Snapshot>,
}

impl Plan {
    /// Returns what must be known of the turn to tell its items.
    pub(crate) fn setting(&self, agent: &Agent) -> Setting {
        Setting {
            prior: self.prior(),
            respond_only: agent.respond_only(),
            of_client: self.input.tools.iter().map(|tool| tool.name.clone()).collect(),
            is_json: self.input.output_schema.is_some(),
        }
    }

    fn prior(&self) -> Vec<Part> {
        let last = self
            .base
            .as_ref()
            .and_then(|base| base.state.as_ref()?.messages.last());
        last.map(|message| message.tool_request_parts().cloned().collect())
            .unwrap_or_default()
    }
}

/// Where a request to `/responses` wants to continue.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) previous: Option<String>,
    pub(crate) conversation: Option<SessionId>,
    pub(crate) store: Option<bool>,
}

/// Plans the turn of a request to `/responses`.
pub(crate) async fn plan_response(
    agent: &Agent,
    said: Vec<Said>,
    wanted: Wanted,
    tools: Vec<ClientTool>,
    context: &Context,
) -> Result<Plan, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
    let (said, instructions) = without_instructions(said, agent);
    if !agent.has_store() {
        if wanted.previous.is_some() {
            return Err(previous_not_found(wanted.previous.as_deref().unwrap_or_default()));
        }
        return hearsay(said, instructions, tools);
    }
    let known = last_known(agent, &said, context).await.map_err(failed)?;
    let base = match (&wanted.previous, &wanted.conversation) {
        (Some(id), _) => {
            let found = match parse_response_id(id).filter(|(_, name)| name == agent.name()) {
                Some((turn, _)) => agent.turn(turn, context).await.map_err(failed)?,
                None => None,
            };
            Some(found.ok_or_else(|| previous_not_found(id))?)
        }
        (None, Some(session)) => agent.tip(session, context).await.map_err(failed)?,
        (None, None) => known.as_ref().map(|(_, snapshot)| snapshot.clone()),
    };
    let is_kept = base.is_some() || wanted.conversation.is_some();
    let told_by_client = |said: &Said| matches!(said, Said::Assistant { .. } | Said::Call { .. });
    if !is_kept && said.iter().any(told_by_client) {
        if wanted.store == Some(true) {
            return Err(Fault::invalid(
                "unsupported_value",
                "store",
                "A conversation that the client tells is not stored: leave 'store' out, or continue with \
                 'previous_response_id' or 'conversation'.",
            ));
        }
        return hearsay(said, instructions, tools);
    }
    let new: Vec<Said> = match known {
        Some((index, _)) => said.into_iter().skip(index + 1).collect(),
        None => said,
    };
    if let Some(other) = new.iter().find(|said| !is_new_input(said)) {
        return Err(not_taken(other));
    }
    let input = input_of(new, base.as_ref(), agent)?;
    let init = match (&base, &wanted.previous, wanted.conversation) {
        // The tip is resumed by the session, so that the turn continues whatever is the tip when it starts.
        (_, None, Some(session)) => AgentInit::session(session),
        (Some(base), _, _) => AgentInit::snapshot(base.snapshot_id.clone()),
        (None, _, _) => AgentInit::default(),
    };
    Ok(Plan {
        init,
        input: AgentInput {
            tools,
            instructions,
            ..input
        },
        is_kept: wanted.store != Some(false),
        begins_anew: false,
        base,
    })
}

fn previous_not_found(id: &str) -> Fault {
    Fault::invalid(
        "previous_response_not_found",
        "previous_response_id",
        format!("Previous response with id '{id}' not found."),
    )
}

fn not_taken(said: &Said) -> Fault {
    match said {
        Said::Known { id, what } if what == "item_reference" => Fault::invalid(
            "item_not_found",
            "input",
            format!("Item with id '{id}' not found."),
        ),
        Said::Known { id, what } => refused_item(what, Some(id)),
        Said::Call { id, .. } => refused_item("function_call", Some(id)),
        Said::Assistant { id, .. } => refused_item("message of the assistant", id.as_ref()),
        _ => refused_item("item", None),
    }
}

fn refused_item(what: &str, id: Option<&String>) -> Fault {
    let id = id.filter(|id| !id.is_empty());
    let what = id.map_or_else(|| what.to_owned(), |id| format!("{what} '{id}'"));
    Fault::invalid(
        "unsupported_value",
        "input",
        format!(
            "The conversation is kept here, and only the agent adds to it: an unknown item ({what}) is not taken."
        ),
    )
}

fn is_new_input(said: &Said) -> bool {
    matches!(
        said,
        Said::User { .. } | Said::Output { .. } | Said::Approval { .. }
    )
}

/// Takes the texts for the model out of what was said. They are ignored where the agent does not accept them: most clients
/// always send some.
pub(crate) fn without_instructions(said: Vec<Said>, agent: &Agent) -> (Vec<Said>, Vec<String>) {
    let mut instructions = Vec::new();
    let rest = said
        .into_iter()
        .filter_map(|said| match said {
            Said::Instructions(text) => {
                instructions.push(text);
                None
            }
            other => Some(other),
        })
        .collect();
    if !agent.accepts_instructions() {
        instructions.clear();
    }
    (rest, instructions)
}

/// Finds the last entry that is an item of this agent on the caller's record, with the snapshot that holds it.
async fn last_known(
    agent: &Agent,
    said: &[Said],
    context: &Context,
) -> everturn_core::Result<Option<(usize, Snapshot)>> {
    let named = said
        .iter()
        .enumerate()
        .rev()
        .filter_map(|(index, said)| Some((index, parse_item_id(said.id()?)?)));
    for (index, (turn, key)) in named.take(MOST_LOOKED_UP) {
        let found = agent.turn(turn, context).await?;
        if let Some(snapshot) = found.filter(|found| is_held(found, key)) {
            return Ok(Some((index, snapshot)));
        }
    }
    Ok(None)
}

/// Returns whether a conversation reaches as far as the place of an item.
fn is_held(snapshot: &Snapshot, key: ItemKey) -> bool {
    let state = snapshot.state.as_ref();
    state.is_some_and(|state| key.message < state.messages.len())
}
