//! Matches the messages of Chat Completions with the stored history of a session.
//!
//! The protocol has no ids, so messages are compared by role, text and call.

use everturn_agent::{AgentInput, ClientTool, SessionId};
use everturn_ai::{History, Message, Part, Role, metadata};
use everturn_core::Context;
use everturn_server::{MessagePosition, ServedAgent, TurnPlan, exposure_of, messages_of};

use crate::client_transcript::TranscriptItem;
use crate::fault::Fault;
use crate::json_cut::JsonCut;
use crate::plan::{input_of, plan_stateless, without_instructions};

/// One entry of the history as this protocol represents it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HistoryEntry {
    kind: EntryKind,
    /// The number of messages up to and including this entry.
    pub(crate) end: usize,
}

#[derive(Debug, Clone, PartialEq)]
enum EntryKind {
    User(String),
    Assistant(String),
    Call(usize, usize),
    Output(String),
}

/// Returns the history as this protocol represents it: without the calls of the agent's own tools, and with
/// the texts of a turn joined by an empty line. Reading stops when there are more than `most` entries.
pub(crate) fn entries_of(messages: &History, most: usize) -> Vec<HistoryEntry> {
    let mut entries: Vec<HistoryEntry> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        if entries.len() > most {
            break;
        }
        let end = place + 1;
        match message.role() {
            Role::User => entries.push(HistoryEntry::new(
                EntryKind::User(message.text().into_owned()),
                end,
            )),
            Role::Model => add_model_message(&mut entries, place, message),
            Role::Tool => {
                let answered = message
                    .content()
                    .iter()
                    .filter(|part| part.metadata_entry(metadata::INTERRUPT_RESPONSE).is_some())
                    .filter_map(Part::as_tool_response);
                let outputs: Vec<HistoryEntry> = answered
                    .map(|response| HistoryEntry::new(EntryKind::Output(response.name.clone()), end))
                    .collect();
                match entries.last_mut() {
                    // The calls of the agent's own tools are part of its answer.
                    Some(last) if outputs.is_empty() => last.end = end,
                    _ => entries.extend(outputs),
                }
            }
            Role::System => {}
        }
    }
    entries
}

fn add_model_message(entries: &mut Vec<HistoryEntry>, place: usize, message: &Message) {
    let end = place + 1;
    let text = message.text();
    match entries.last_mut() {
        Some(HistoryEntry {
            kind: EntryKind::Assistant(before),
            end: until,
        }) => {
            if !text.is_empty() && !before.is_empty() {
                before.push_str("\n\n");
            }
            before.push_str(&text);
            *until = end;
        }
        _ => entries.push(HistoryEntry::new(EntryKind::Assistant(text.into_owned()), end)),
    }
    let mut number = 0;
    let mut last_is_text = false;
    for part in message.content() {
        let is_call = part.as_tool_request().is_some();
        let is_text = part.as_text().is_some_and(|text| !text.is_empty());
        let is_visible =
            part.interrupt().is_some() || part.metadata_entry(metadata::RESOLVED_INTERRUPT).is_some();
        if is_call && is_visible {
            if matches!(entries.last(), Some(HistoryEntry { kind: EntryKind::Assistant(text), .. }) if text.is_empty())
            {
                entries.pop();
            }
            entries.push(HistoryEntry::new(EntryKind::Call(place, number), end));
        }
        let starts = is_call || is_text && !last_is_text || part.as_reasoning().is_some();
        number += usize::from(starts);
        last_is_text = is_text;
    }
}

impl HistoryEntry {
    fn new(kind: EntryKind, end: usize) -> Self {
        Self { kind, end }
    }

    fn is(&self, item: &TranscriptItem) -> bool {
        match (&self.kind, item) {
            (EntryKind::User(text), TranscriptItem::User { content, .. }) => {
                let received: String = content.iter().filter_map(Part::as_text).collect();
                *text == received
            }
            // Clients that requested JSON received no text around it.
            (EntryKind::Assistant(text), TranscriptItem::Assistant { text: received, .. }) => {
                let received = received.trim();
                text.trim() == received || !received.is_empty() && JsonCut::of(text) == received
            }
            (EntryKind::Call(message, _), TranscriptItem::Call { id, .. }) => {
                MessagePosition::of_id(id).is_some_and(|key| key.message == *message)
            }
            (EntryKind::Output(_), TranscriptItem::Output { .. }) => true,
            _ => false,
        }
    }

    fn is_user(&self) -> bool {
        matches!(self.kind, EntryKind::User(_))
    }
}

/// Plans the turn of a request to `/chat/completions` in a session.
pub(crate) async fn plan_chat(
    agent: &ServedAgent,
    transcript: Vec<TranscriptItem>,
    session: SessionId,
    tools: Vec<ClientTool>,
    context: &Context,
) -> Result<TurnPlan, Fault> {
    let failed = |error: everturn_core::Error| Fault::of_error(&error, exposure_of(context));
    let (transcript, instructions) = without_instructions(transcript, agent);
    let tip = agent.tip(&session, context).await.map_err(failed)?;
    let empty = History::default();
    let record = tip.as_ref().map_or(&empty, messages_of);
    let entries = entries_of(record, transcript.len());
    let known = entries
        .iter()
        .zip(&transcript)
        .take_while(|(entry, item)| entry.is(item))
        .count();
    if known == 0 && !entries.is_empty() {
        // Front ends send requests for titles and tags to the same agent, in the same chat. They must not
        // become turns.
        return plan_stateless(transcript, instructions, tools).map_err(Fault::in_messages);
    }
    let is_whole = known == entries.len();
    let base = match &tip {
        // A stored entry was edited or left out: the turn branches before it.
        Some(tip) if !is_whole => {
            let length_known = entries[known - 1].end;
            agent
                .ending_at(tip, length_known, context)
                .await
                .map_err(failed)?
        }
        tip => tip.clone(),
    };
    let length = base.as_ref().map_or(0, |base| messages_of(base).len());
    let again = entries[..known]
        .iter()
        .zip(&transcript)
        .filter(|(entry, _)| entry.is_user() && entry.end > length)
        .map(|(_, item)| item.clone());
    let new: Vec<TranscriptItem> = again.chain(new_input(&transcript, known)).collect();
    if new.is_empty() {
        return Err(Fault::wrong_value(
            "messages",
            "The request contains nothing new: its last message is not the user's.",
        ));
    }
    let input = input_of(new, base.as_ref(), agent).map_err(Fault::in_messages)?;
    let input = AgentInput {
        tools,
        instructions,
        ..input
    };
    Ok(TurnPlan::in_session(session, tip.as_ref(), base, input))
}

/// Returns the new messages of the client, after this many matched ones: user messages and outputs of calls.
/// Assistant messages supplied by the client are left out. If nothing matched, so is everything before them,
/// because old commands must not run again.
fn new_input(transcript: &[TranscriptItem], known: usize) -> impl Iterator<Item = TranscriptItem> {
    let is_users = |item: &TranscriptItem| matches!(item, TranscriptItem::User { .. });
    let since = match known {
        0 => transcript
            .iter()
            .rposition(|item| !is_users(item))
            .map_or(0, |last| last + 1),
        known => known,
    };
    let new = transcript[since..].iter();
    new.filter(move |item| is_users(item) || matches!(item, TranscriptItem::Output { .. }))
        .cloned()
}

#[cfg(test)]
mod tests {
    use everturn_ai::{ToolRequest, ToolResponse};
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> TranscriptItem {
        TranscriptItem::User {
            id: None,
            content: vec![Part::text(text)],
        }
    }

    fn assistant(text: &str) -> TranscriptItem {
        TranscriptItem::Assistant {
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

        let entries = entries_of(&record, usize::MAX);

        let received = [user("hi"), assistant("Let me look.\n\nFound."), user("thanks")];
        assert_eq!(entries.len(), received.len());
        assert!(
            entries
                .iter()
                .zip(&received)
                .all(|(entry, received)| entry.is(received))
        );
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

        let entries = entries_of(&record, usize::MAX);

        let call = TranscriptItem::Call {
            id: "call_0199_1".into(),
            name: "paint".into(),
            arguments: json!({}),
        };
        let output = TranscriptItem::Output {
            call: "call_0199_1".into(),
            output: json!("done"),
        };
        let received = [user("paint"), call, output, assistant("Painted.")];
        assert_eq!(entries.len(), received.len(), "{entries:?}");
        assert!(
            entries
                .iter()
                .zip(&received)
                .all(|(entry, received)| entry.is(received)),
            "{entries:?}"
        );
    }
}
