//! From what a request says to the turn that is run.
//!
//! The server's record is the truth. Items that the caller's record of the agent holds are recognised, what follows them is
//! new, and nothing that only the agent can say or do is taken from a client into a kept conversation.

use everturn_agent::{AgentInit, AgentInput, ClientTool, SessionId, SessionState, Snapshot};
use everturn_ai::history::awaiting;
use everturn_ai::{Answers, Declined, History, Message, Part, Role, ToolRequest, ToolResponse, metadata};
use everturn_core::{Context, Exposure};
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::fault::Fault;
use crate::ids::{ItemKey, parse_response_id, snapshot_of_item};
use crate::items::{ItemKind, Setting, items_of};
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
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure(context));
    let (said, instructions) = without_instructions(said);
    if !agent.has_store() {
        if wanted.previous.is_some() {
            return Err(previous_not_found(wanted.previous.as_deref().unwrap_or_default()));
        }
        return hearsay(said, instructions, tools, agent);
    }
    let known = last_known(agent, &said, context).await.map_err(failed)?;
    let base = match (&wanted.previous, &wanted.conversation) {
        (Some(id), _) => {
            let found = match parse_response_id(id).filter(|(_, name)| name == agent.name()) {
                Some((snapshot, _)) => agent.snapshot(&snapshot, context).await.map_err(failed)?,
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
        return hearsay(said, instructions, tools, agent);
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
        base,
    })
}

/// Returns how much of an error the caller may see.
pub(crate) fn exposure(context: &Context) -> Exposure {
    context
        .extension::<Exposure>()
        .map_or(Exposure::Public, |exposure| *exposure)
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
        Said::Known { what, .. } => refused_item(what),
        Said::Call { name, .. } => refused_item(&format!("function_call of '{name}'")),
        _ => refused_item("message of the assistant"),
    }
}

fn refused_item(what: &str) -> Fault {
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

/// Takes the texts for the model out of what was said.
pub(crate) fn without_instructions(said: Vec<Said>) -> (Vec<Said>, Vec<String>) {
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
        .filter_map(|(index, said)| Some((index, snapshot_of_item(said.id()?)?)));
    for (index, id) in named.take(MOST_LOOKED_UP) {
        if let Some(snapshot) = agent.snapshot(&id, context).await? {
            return Ok(Some((index, snapshot)));
        }
    }
    Ok(None)
}

/// A call that waits for an answer, under the id that clients know it by.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: String,
    pub(crate) part: Part,
    pub(crate) is_approval: bool,
}

/// Returns the calls that wait at the end of a conversation, which the snapshot of this name holds.
pub(crate) fn pending(messages: &History, name: &str, agent: &Agent) -> Vec<Pending> {
    let asking = awaiting(messages).and_then(|place| Some((place, messages.get(place)?)));
    let Some((place, last)) = asking else {
        return Vec::new();
    };
    let setting = Setting {
        respond_only: agent.respond_only(),
        ..Setting::default()
    };
    let items = items_of(place, std::slice::from_ref(last), &setting);
    let mut parts = last.interrupts();
    items
        .iter()
        .filter_map(|item| match item.kind {
            ItemKind::Question(_) => Some((item.key, false)),
            ItemKind::Approval(_) => Some((item.key, true)),
            _ => None,
        })
        .filter_map(|(key, is_approval)| {
            Some(Pending {
                id: ItemKey::id(key, "call", name),
                part: parts.next()?.clone(),
                is_approval,
            })
        })
        .collect()
}

/// Makes the input of a turn that continues `base`.
pub(crate) fn input_of(new: Vec<Said>, base: Option<&Snapshot>, agent: &Agent) -> Result<AgentInput, Fault> {
    let name = base.map(|base| base.snapshot_id.to_string()).unwrap_or_default();
    let history = base
        .and_then(|base| base.state.as_ref())
        .map(|state| &state.messages);
    let pending = history
        .map(|messages| pending(messages, &name, agent))
        .unwrap_or_default();
    let mut users = Vec::new();
    let mut answers = Vec::new();
    for said in new {
        match said {
            Said::User { content, .. } => users.push(Message::user(content)),
            Said::Output { call, output } => answers.push((call, Answer::Output(output))),
            Said::Approval {
                call,
                approve,
                reason,
            } => answers.push((call, Answer::Approval(approve, reason))),
            _ => {}
        }
    }
    if answers.is_empty() {
        if let Some(open) = pending.first() {
            return Err(Fault::invalid(
                "failed_precondition",
                "input",
                format!("No tool output found for function call {}.", open.id),
            ));
        }
        let message = users.pop().ok_or_else(|| Fault::missing("input"))?;
        return Ok(AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        });
    }
    if !users.is_empty() {
        return Err(Fault::invalid(
            "invalid_value",
            "input",
            "Answers to calls and new messages cannot be sent together: send the answers first.",
        ));
    }
    Ok(AgentInput::answers(answered(&pending, answers)?))
}

/// An answer to a call.
enum Answer {
    Output(Value),
    Approval(bool, Option<String>),
}

fn answered(pending: &[Pending], answers: Vec<(String, Answer)>) -> Result<Answers, Fault> {
    let mut parts: Vec<Option<Part>> = vec![None; pending.len()];
    for (call, answer) in answers {
        let index = pending.iter().position(|open| open.id == call).ok_or_else(|| {
            Fault::invalid(
                "invalid_value",
                "input",
                format!("No call with the id '{call}' waits for an answer."),
            )
        })?;
        parts[index] = answer_to(&pending[index], answer)?;
    }
    let unanswered = parts
        .iter()
        .position(Option::is_none)
        .map(|index| &pending[index]);
    if let Some(open) = unanswered {
        return Err(Fault::invalid(
            "failed_precondition",
            "input",
            format!("No tool output found for function call {}.", open.id),
        ));
    }
    Ok(parts.into_iter().flatten().collect())
}

fn answer_to(open: &Pending, answer: Answer) -> Result<Option<Part>, Fault> {
    let approval = match &answer {
        Answer::Approval(..) if !open.is_approval => {
            return Err(Fault::invalid(
                "invalid_value",
                "input",
                format!(
                    "The call '{}' asks for an output and not for an approval.",
                    open.id
                ),
            ));
        }
        Answer::Approval(approve, reason) => Some((*approve, reason.clone())),
        Answer::Output(output) if open.is_approval => output["approved"].as_bool().map(|approve| {
            let reason = output["reason"].as_str().map(str::to_owned);
            (approve, reason)
        }),
        Answer::Output(_) => None,
    };
    Ok(match (approval, answer) {
        (Some((true, _)), Answer::Output(output)) => open.part.restart(Some(output), None),
        (Some((true, _)), _) => open.part.restart(Some(json!({ "approved": true })), None),
        (Some((false, reason)), _) => open.part.respond(Declined::Denied { reason }.output(), None),
        (None, Answer::Output(output)) => open.part.respond(output, None),
        (None, Answer::Approval(..)) => None,
    })
}

/// Plans a turn on a conversation that the client tells. Nothing of it is stored.
pub(crate) fn hearsay(
    said: Vec<Said>,
    instructions: Vec<String>,
    tools: Vec<ClientTool>,
    agent: &Agent,
) -> Result<Plan, Fault> {
    let mut messages: Vec<Message> = Vec::new();
    let mut open: Vec<Part> = Vec::new();
    let mut answers: Vec<Part> = Vec::new();
    for said in said {
        // A group of answers ends where something else is said.
        if !answers.is_empty() && !matches!(said, Said::Output { .. }) {
            messages.push(Message::tool(std::mem::take(&mut answers)));
            open.clear();
        }
        match said {
            Said::User { content, .. } => messages.push(Message::user(content)),
            Said::Assistant { text, .. } => messages.push(Message::model(text)),
            Said::Call { id, name, arguments } => {
                let is_own = tools.iter().any(|tool| tool.name == name);
                if !is_own || !agent.takes_additions() {
                    return Err(Fault::invalid(
                        "unsupported_value",
                        "tools",
                        format!(
                            "'{name}' is not a function of this request: a client may not tell of calls of the agent's own tools."
                        ),
                    ));
                }
                let part = Part::tool_request(ToolRequest::new(name, arguments).with_reference(id));
                open.push(part.clone());
                match messages.pop() {
                    Some(last) if last.role() == Role::Model => messages.push(last.with_part(part)),
                    other => {
                        messages.extend(other);
                        messages.push(Message::model(vec![part]));
                    }
                }
            }
            Said::Output { call, output } => {
                let request = open
                    .iter()
                    .filter_map(Part::as_tool_request)
                    .find(|request| request.reference.as_deref() == Some(&call));
                let Some(request) = request else {
                    return Err(Fault::invalid(
                        "invalid_value",
                        "input",
                        format!("No call with the id '{call}' waits for an answer."),
                    ));
                };
                answers.push(Part::tool_response(ToolResponse::to(request, output)));
            }
            // Reasoning is the agent's own affair, and nothing depends on it.
            Said::Known { what, .. } if what == "reasoning" => {}
            other @ (Said::Known { .. } | Said::Approval { .. }) => return Err(not_taken(&other)),
            Said::Instructions(_) => {}
        }
    }
    let input = if answers.is_empty() {
        let since = messages
            .iter()
            .rev()
            .take_while(|message| message.role() == Role::User)
            .count();
        let mut users = messages.split_off(messages.len() - since);
        let message = users.pop().ok_or_else(|| {
            Fault::invalid(
                "invalid_value",
                "messages",
                "The last message must be the user's, or the output of a tool.",
            )
        })?;
        AgentInput {
            earlier: users,
            ..AgentInput::from(message)
        }
    } else {
        let unanswered = open.len() > answers.len();
        if unanswered {
            return Err(Fault::invalid(
                "failed_precondition",
                "messages",
                "Every call of the last message needs its output.",
            ));
        }
        if let Some(last) = messages.pop() {
            messages.push(waiting(&last));
        }
        AgentInput::answers(answers)
    };
    Ok(Plan {
        init: AgentInit::state(SessionState {
            messages: messages.into_iter().collect(),
            ..SessionState::default()
        }),
        input: AgentInput {
            tools,
            instructions,
            ..input
        },
        is_kept: false,
        base: None,
    })
}

/// Returns the message with its calls marked as the client's, which wait for the answers of this turn.
fn waiting(message: &Message) -> Message {
    let marked = |part: &Part| match part.as_tool_request() {
        Some(_) => part
            .clone()
            .with_metadata_entry(metadata::INTERRUPT, json!({ metadata::CLIENT_TOOL: true })),
        None => part.clone(),
    };
    message
        .clone()
        .with_content(message.content().iter().map(marked).collect::<Vec<_>>())
}
