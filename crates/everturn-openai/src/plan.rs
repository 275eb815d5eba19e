//! Plans the turn of a request.
//!
//! The stored history is authoritative. Items of the agent's stored sessions are recognised, and only items
//! after them are new. A stored conversation accepts no assistant messages or calls from clients.

mod pending;
mod stateless;

use everturn_agent::{AgentInit, AgentInput, ClientTool, SessionId, Snapshot};
use everturn_core::Context;
use everturn_server::{ServedAgent, TurnPlan, exposure_of, messages_of};

pub(crate) use self::pending::{input_of, pending};
pub(crate) use self::stateless::plan_stateless;
use crate::client_transcript::TranscriptItem;
use crate::fault::Fault;
use crate::items::TurnInfo;
use crate::response::{parse_item_id, parse_response_id};

/// Returns the information that the items of a planned turn require.
pub(crate) fn info_of(plan: &TurnPlan, agent: &ServedAgent) -> TurnInfo {
    let last = plan.base.as_ref().and_then(|base| messages_of(base).last());
    let prior = last.map(|message| message.tool_request_parts().cloned().collect());
    TurnInfo {
        prior: prior.unwrap_or_default(),
        respond_only: agent.respond_only(),
        of_client: plan.input.tools.iter().map(|tool| tool.name.clone()).collect(),
        is_json: plan.input.output_schema.is_some(),
    }
}

/// The position from which a request to `/responses` continues.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    pub(crate) previous: Option<String>,
    pub(crate) conversation: Option<SessionId>,
    pub(crate) store: Option<bool>,
}

/// Plans the turn of a request to `/responses`.
pub(crate) async fn plan_response(
    agent: &ServedAgent,
    transcript: Vec<TranscriptItem>,
    continuation: Continuation,
    tools: Vec<ClientTool>,
    context: &Context,
) -> Result<TurnPlan, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
    let (transcript, instructions) = without_instructions(transcript, agent);
    if !agent.has_store() {
        if continuation.previous.is_some() {
            return Err(previous_not_found(
                continuation.previous.as_deref().unwrap_or_default(),
            ));
        }
        return plan_stateless(transcript, instructions, tools);
    }
    let known = last_known(agent, &transcript, context).await.map_err(failed)?;
    let base = match (&continuation.previous, &continuation.conversation) {
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
    let is_stored = base.is_some() || continuation.conversation.is_some();
    let is_of_agent = |item: &TranscriptItem| {
        matches!(
            item,
            TranscriptItem::Assistant { .. } | TranscriptItem::Call { .. }
        )
    };
    if !is_stored && transcript.iter().any(is_of_agent) {
        if continuation.store == Some(true) {
            return Err(Fault::unsupported(
                "store",
                "A conversation supplied by the client is not stored: leave 'store' out, or continue with \
                 'previous_response_id' or 'conversation'.",
            ));
        }
        return plan_stateless(transcript, instructions, tools);
    }
    let new: Vec<TranscriptItem> = match known {
        Some((index, _)) => transcript.into_iter().skip(index + 1).collect(),
        None => transcript,
    };
    if let Some(other) = new.iter().find(|item| !is_new_input(item)) {
        return Err(rejected(other));
    }
    let input = input_of(new, base.as_ref(), agent)?;
    let init = match (&base, &continuation.previous, continuation.conversation) {
        // Resuming by session id continues from the latest snapshot at the start of the turn.
        (_, None, Some(session)) => AgentInit::session(session),
        (Some(base), _, _) => AgentInit::snapshot(base.snapshot_id.clone()),
        (None, _, _) => AgentInit::default(),
    };
    Ok(TurnPlan {
        init,
        input: AgentInput {
            tools,
            instructions,
            ..input
        },
        is_stored: continuation.store != Some(false),
        restarts: false,
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

fn rejected(item: &TranscriptItem) -> Fault {
    match item {
        TranscriptItem::Known { id, what } if what == "item_reference" => Fault::invalid(
            "item_not_found",
            "input",
            format!("Item with id '{id}' not found."),
        ),
        TranscriptItem::Known { id, what } => refused_item(what, Some(id)),
        TranscriptItem::Call { id, .. } => refused_item("function_call", Some(id)),
        TranscriptItem::Assistant { id, .. } => refused_item("message of the assistant", id.as_ref()),
        _ => refused_item("item", None),
    }
}

fn refused_item(what: &str, id: Option<&String>) -> Fault {
    let id = id.filter(|id| !id.is_empty());
    let what = id.map_or_else(|| what.to_owned(), |id| format!("{what} '{id}'"));
    Fault::unsupported(
        "input",
        format!(
            "The conversation is stored, and only the agent adds items to it: the unknown item ({what}) is not accepted."
        ),
    )
}

fn is_new_input(item: &TranscriptItem) -> bool {
    matches!(
        item,
        TranscriptItem::User { .. } | TranscriptItem::Output { .. } | TranscriptItem::Approval { .. }
    )
}

/// Separates instructions from the conversation. They are ignored if the agent does not accept them, because
/// most clients always send some.
pub(crate) fn without_instructions(
    transcript: Vec<TranscriptItem>,
    agent: &ServedAgent,
) -> (Vec<TranscriptItem>, Vec<String>) {
    let mut instructions = Vec::new();
    let rest = transcript
        .into_iter()
        .filter_map(|item| match item {
            TranscriptItem::Instructions(text) => {
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

/// Finds the last entry that is a stored item of this agent and caller, with its snapshot.
async fn last_known(
    agent: &ServedAgent,
    transcript: &[TranscriptItem],
    context: &Context,
) -> everturn_core::Result<Option<(usize, Snapshot)>> {
    let position = |index: usize| parse_item_id(transcript.get(index)?.id()?);
    let names = (0..transcript.len()).rev();
    let names = names.filter_map(|index| Some((index, position(index)?.0)));
    let contains = |index, found: &Snapshot| {
        position(index).is_some_and(|(_, key)| key.message < messages_of(found).len())
    };
    agent.last_turn(names, None, contains, context).await
}
