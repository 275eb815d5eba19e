//! Chat Completions against the record of a session: which of the client's messages are known, and where to continue.
//!
//! The protocol has no ids, so messages are compared by role, text and call.

use everturn_agent::{AgentInit, AgentInput, ClientTool, SessionId};
use everturn_ai::{History, Message, Part, Role, metadata};
use everturn_core::Context;
use everturn_server::exposure_of;

use crate::agents::Agent;
use crate::fault::Fault;
use crate::ids::place_of_item;
use crate::json_cut::JsonCut;
use crate::plan::{Plan, hearsay, input_of, without_instructions};
use crate::said::Said;

/// One entry of the record as this protocol shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    what: What,
    /// The number of messages up to and with this entry.
    pub(crate) end: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    User(String),
    Assistant(String),
    Call(usize, usize),
    Output(String),
}

/// Returns the record as this protocol shows it: without the calls of the agent's own tools, and with the texts of a turn
/// joined by an empty line. No more of a long record is read than shows that it has more than `most` entries.
pub(crate) fn shown(messages: &History, most: usize) -> Vec<Shown> {
    let mut entries: Vec<Shown> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        if entries.len() > most {
            break;
        }
        let end = place + 1;
        match message.role() {
            Role::User => entries.push(Shown {
                what: What::User(message.text().into_owned()),
                end,
            }),
            Role::Model => said(&mut entries, place, message),
            Role::Tool => {
                let answered = message
                    .content()
                    .iter()
                    .filter(|part| part.metadata_entry(metadata::INTERRUPT_RESPONSE).is_some())
                    .filter_map(Part::as_tool_response);
                let outputs: Vec<Shown> = answered
                    .map(|response| Shown {
                        what: What::Output(response.name.clone()),
                        end,
                    })
                    .collect();
                match entries.last_mut() {
                    // The work of the agent's own tools is part of what it says.
                    Some(last) if outputs.is_empty() => last.end = end,
                    _ => entries.extend(outputs),
                }
            }
            Role::System => {}
        }
    }
    entries
}

fn said(entries: &mut Vec<Shown>, place: usize, message: &Message) {
    let end = place + 1;
    let text = message.text();
    match entries.last_mut() {
        Some(Shown {
            what: What::Assistant(before),
            end: until,
        }) => {
            if !text.is_empty() && !before.is_empty() {
                before.push_str("\n\n");
            }
            before.push_str(&text);
            *until = end;
        }
        _ => entries.push(Shown {
            what: What::Assistant(text.into_owned()),
            end,
        }),
    }
    let mut number = 0;
    let mut last_is_text = false;
    for part in message.content() {
        let is_call = part.as_tool_request().is_some();
        let is_text = part.as_text().is_some_and(|text| !text.is_empty());
        let is_visible =
            part.interrupt().is_some() || part.metadata_entry(metadata::RESOLVED_INTERRUPT).is_some();
        if is_call && is_visible {
            if matches!(entries.last(), Some(Shown { what: What::Assistant(text), .. }) if text.is_empty()) {
                entries.pop();
            }
            entries.push(Shown {
                what: What::Call(place, number),
                end,
            });
        }
        let starts = is_call || is_text && !last_is_text || part.as_reasoning().is_some();
        number += usize::from(starts);
        last_is_text = is_text;
    }
}

impl Shown {
    fn is(&self, said: &Said) -> bool {
        match (&self.what, said) {
            (What::User(text), Said::User { content, .. }) => {
                let told: String = content.iter().filter_map(Part::as_text).collect();
                *text == told
            }
            // Clients that asked for JSON were told no words around it.
            (What::Assistant(text), Said::Assistant { text: told, .. }) => {
                let told = told.trim();
                text.trim() == told || !told.is_empty() && JsonCut::of(text) == told
            }
            (What::Call(message, _), Said::Call { id, .. }) => {
                place_of_item(id).is_some_and(|key| key.message == *message)
            }
            (What::Output(_), Said::Output { .. }) => true,
            _ => false,
        }
    }

    fn is_user(&self) -> bool {
        matches!(self.what, What::User(_))
    }
}

/// Plans the turn of a request to `/chat/completions` in a session.
pub(crate) async fn plan_chat(
    agent: &Agent,
    said: Vec<Said>,
    session: SessionId,
    tools: Vec<ClientTool>,
    context: &Context,
) -> Result<Plan, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
    let (said, instructions) = without_instructions(said, agent);
    let tip = agent.tip(&session, context).await.map_err(failed)?;
    let empty = History::default();
    let record = tip
        .as_ref()
        .and_then(|tip| tip.state.as_ref())
        .map_or(&empty, |state| &state.messages);
    let entries = shown(record, said.len());
    let known = entries
        .iter()
        .zip(&said)
        .take_while(|(entry, said)| entry.is(said))
        .count();
    if known == 0 && !entries.is_empty() {
        // Front ends ask the same agent, in the same chat, for titles and tags, which must not become turns.
        return hearsay(said, instructions, tools).map_err(Fault::in_messages);
    }
    let is_whole = known == entries.len();
    let base = match &tip {
        // Something that is on record was edited or left out: the turn branches before it.
        Some(tip) if !is_whole => {
            let anchor = entries[known - 1].end;
            agent.ending_at(tip, anchor, context).await.map_err(failed)?
        }
        tip => tip.clone(),
    };
    let length = base
        .as_ref()
        .and_then(|base| base.state.as_ref())
        .map_or(0, |state| state.messages.len());
    let again = entries[..known]
        .iter()
        .zip(&said)
        .filter(|(entry, _)| entry.is_user() && entry.end > length)
        .map(|(_, said)| said.clone());
    let new: Vec<Said> = again.chain(new_input(&said, known)).collect();
    if new.is_empty() {
        return Err(Fault::invalid(
            "invalid_value",
            "messages",
            "The request brings nothing new: its last message is not the user's.",
        ));
    }
    let input = input_of(new, base.as_ref(), agent).map_err(Fault::in_messages)?;
    Ok(Plan {
        begins_anew: base.is_none() && tip.is_some(),
        init: match &base {
            Some(base) if !is_whole => AgentInit::snapshot(base.snapshot_id.clone()),
            _ => AgentInit::session(session),
        },
        input: AgentInput {
            tools,
            instructions,
            ..input
        },
        is_kept: true,
        base,
    })
}

/// Returns what is new of the client's messages, of which this many are known: the user's words and outputs of calls. What the
/// client puts into the agent's mouth is left out; in a conversation of which nothing is on record, so is everything before
/// it, because old commands are not carried out again.
fn new_input(said: &[Said], known: usize) -> impl Iterator<Item = Said> {
    let is_users = |said: &Said| matches!(said, Said::User { .. });
    let since = match known {
        0 => said
            .iter()
            .rposition(|said| !is_users(said))
            .map_or(0, |last| last + 1),
        known => known,
    };
    let new = said[since..].iter();
    new.filter(move |said| is_users(said) || matches!(said, Said::Output { .. }))
        .cloned()
}

#[cfg(test)]
mod tests {
    use everturn_ai::{ToolRequest, ToolResponse};
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Said {
        Said::User {
            id: None,
            content: vec![Part::text(text)],
        }
    }

    fn assistant(text: &str) -> Said {
        Said::Assistant {
            id: None,
            text: text.into(),
        }
    }

    #[test]
    fn the_work_of_the_agents_own_tools_is_not_shown() {
        let look = ToolRequest::new("look", json!({})).with_reference("1");
        let record = History::from_iter([
            Message::user("hi"),
            Message::model(vec![Part::text("Let me look."), Part::tool_request(look.clone())]),
            Message::tool(vec![Part::tool_response(ToolResponse::to(&look, "seen"))]),
            Message::model("Found."),
            Message::user("thanks"),
        ]);

        let entries = shown(&record, usize::MAX);

        let told = [user("hi"), assistant("Let me look.\n\nFound."), user("thanks")];
        assert_eq!(entries.len(), told.len());
        assert!(entries.iter().zip(&told).all(|(entry, told)| entry.is(told)));
        assert_eq!(
            entries.iter().map(|entry| entry.end).collect::<Vec<_>>(),
            [1, 4, 5]
        );
    }

    #[test]
    fn calls_that_the_client_answers_are_shown_with_their_place() {
        let ask = Part::tool_request(ToolRequest::new("paint", json!({})).with_reference("1"))
            .with_metadata_entry(metadata::INTERRUPT, json!({"clientTool": true}));
        let answer = ask.respond("done", None).unwrap();
        let record = History::from_iter([
            Message::user("paint"),
            Message::model(vec![ask]),
            Message::tool(vec![answer]),
            Message::model("Painted."),
        ]);

        let entries = shown(&record, usize::MAX);

        let call = Said::Call {
            id: "call_0199_1".into(),
            name: "paint".into(),
            arguments: json!({}),
        };
        let output = Said::Output {
            call: "call_0199_1".into(),
            output: json!("done"),
        };
        let told = [user("paint"), call, output, assistant("Painted.")];
        assert_eq!(entries.len(), told.len(), "{entries:?}");
        assert!(
            entries.iter().zip(&told).all(|(entry, told)| entry.is(told)),
            "{entries:?}"
        );
    }
}
