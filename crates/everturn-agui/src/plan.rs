//! Plans the turn of a run, from its input and the stored history.

use std::collections::HashMap;
use std::sync::Arc;

use everturn_agent::{AgentInput, Snapshot, SnapshotEvent, SnapshotStatus};
use everturn_ai::{History, Message, Role};
use everturn_core::{Context, Error, Result};
use everturn_server::{ServedAgent, TurnPlan, WaitingCall, messages_of, turn_name};
use serde_json::{Value, json};

use crate::answers::{ReceivedAnswers, calls_of, given, is_of_application, pending, uncovered};
use crate::encoder::Call;
use crate::ids::parse;
use crate::ids::{NOTES, given_id};
use crate::input::{ClientContent, ClientMessage, RunInput, invalid};
use crate::matching::{LastMatch, Matching, is_end};
use crate::run_log::{RunLog, UncommittedTurns};
use crate::stored_thread::{StoredThread, user_message};

/// The turn to run.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) turn: TurnPlan,
    /// The calls that wait before the turn, with their ids in the protocol.
    pub(crate) waiting: Vec<(Call, String)>,
    /// The results that the client has, by the ids of their calls.
    pub(crate) answered: HashMap<String, String>,
    /// The events before the first chunk, which correct the client's conversation and state.
    pub(crate) first: Vec<Value>,
}

/// Plans the turn of a run on a stored session.
///
/// # Errors
/// `INVALID_ARGUMENT` or `FAILED_PRECONDITION` for a run without input, or without the answers that the
/// thread waits for; `ABORTED` for a repeated run; the store's own errors.
pub(crate) async fn plan(
    agent: &ServedAgent,
    input: &RunInput,
    sent: &[ClientMessage],
    log: &RunLog,
    context: &Context,
) -> Result<Plan> {
    let session = input.session();
    let tip = agent.tip(&session, context).await?;
    if let Some(tip) = tip.as_ref().filter(|tip| is_active(tip)) {
        return Err(Error::failed_precondition(format!(
            "a background run of the thread is active (snapshot '{}'): connect to watch it, and run again when it has ended",
            tip.snapshot_id
        ))
        .with_public());
    }
    let line = Line::of(agent, sent, tip.as_ref(), context).await?;
    let empty = History::default();
    let record = line.as_ref().map_or(&empty, Line::messages);
    let matching = Matching::new(
        sent,
        record,
        line.as_ref().and_then(Line::named_until),
        &input.run_id,
    );
    if matching.is_repeated {
        return Err(repeated(&input.run_id));
    }
    let last_match = matching.last_match(sent);
    let new = match last_match {
        Some(last_match) => &sent[last_match.index + 1..],
        None => without_match(sent, log).await,
    };
    let users: Vec<&ClientMessage> = new.iter().filter(|message| is_users(message)).collect();
    let is_at_end = last_match.is_none_or(|last_match| is_end(record, last_match.place));
    let repeats_input = last_match.is_some_and(|last_match| last_match.is_users && users.is_empty());
    let base = match (last_match, &line) {
        (Some(last_match), Some(line)) if repeats_input || !is_at_end => {
            let until = last_match.place + usize::from(!last_match.is_users);
            agent.ending_at(line.nearest(until), until, context).await?
        }
        (_, line) => line.as_ref().map(|line| line.end.clone()),
    };
    let length = base.as_ref().map_or(0, |base| messages_of(base).len());
    let open = base
        .as_ref()
        .map(|base| pending(messages_of(base), &name_of(base), agent));
    let open = open.unwrap_or_default();
    let ReceivedAnswers {
        answers,
        shown: answered,
        has_stray,
    } = given(&open, input.resume(), new)?;
    // Stored user messages between the snapshot and the last matched message are sent again.
    let again = last_match.map_or(0..0, |last_match| length..(last_match.place + 1).max(length));
    let again = again
        .filter(|_| answers.is_none())
        .filter_map(|place| record.get(place))
        .filter(|message| message.role() == Role::User)
        .map(|message| (message.content().to_vec(), given_id(message).map(str::to_owned)));
    let received = users.iter().filter_map(|message| match &message.content {
        ClientContent::User(parts) => Some((parts.clone(), Some(message.id.clone()))),
        _ => None,
    });
    let messages: Vec<Message> = again
        .chain(received)
        .map(|(parts, id)| noted(Message::user(parts), id.as_deref(), &input.run_id))
        .collect();
    let continues = has_stray && open.is_empty() && base.as_ref().is_some_and(awaits_model);
    let turn = turn_input(answers, messages, &open, (has_stray, continues), last_match)?;
    let is_contradicted =
        matching.is_contradicted(sent, last_match, |call| open.iter().any(|open| open.id == call));
    let mut first = Vec::new();
    if is_contradicted {
        first = history_events(agent, base.as_ref(), &turn, sent, context).await?;
    }
    let (custom, state_event) = shared_state(agent, base.as_ref(), input.state());
    first.extend(state_event);
    let input = AgentInput {
        custom: custom.map(Arc::new),
        ..turn
    };
    Ok(Plan {
        turn: TurnPlan::in_session(session, tip.as_ref(), base, input),
        waiting: calls_of(&open),
        answered,
        first,
    })
}

/// Returns the error of a repeated run.
pub(crate) fn repeated(run: &str) -> Error {
    Error::aborted(format!(
        "run '{run}' is a repetition, and its events are no longer stored: use each run id once"
    ))
    .with_public()
}

/// Returns whether a snapshot belongs to an active background run.
pub(crate) fn is_active(snapshot: &Snapshot) -> bool {
    snapshot.status.is_under_way() || snapshot.status == SnapshotStatus::Expired
}

/// Returns whether a turn ended before the model answered.
fn awaits_model(snapshot: &Snapshot) -> bool {
    let is_cut_short = matches!(snapshot.status, SnapshotStatus::Failed | SnapshotStatus::Aborted);
    let last = messages_of(snapshot).last().map(Message::role);
    is_cut_short && matches!(last, Some(Role::User | Role::Tool))
}

/// Returns the turn name in the ids of a snapshot's last messages. A snapshot at the end of an invocation
/// adds no messages.
pub(crate) fn name_of(snapshot: &Snapshot) -> String {
    let adds_none = snapshot.event == Some(SnapshotEvent::InvocationEnd);
    let parent = snapshot.parent_id.as_ref().filter(|_| adds_none);
    let name = turn_name(snapshot);
    match parent {
        // A turn with a random name has recorded it in this snapshot, too.
        Some(parent) if name == snapshot.snapshot_id.as_str() => parent.to_string(),
        _ => name,
    }
}

/// Returns a message with its client id and its run.
pub(crate) fn noted(message: Message, id: Option<&str>, run: &str) -> Message {
    let mut notes = json!({ "runId": run });
    if let Some(id) = id {
        notes["id"] = id.into();
    }
    message.with_metadata_entry(NOTES, notes)
}

fn is_users(message: &ClientMessage) -> bool {
    matches!(message.content, ClientContent::User(_))
}

/// Returns the new messages of a conversation that matches nothing in the history: those after the last
/// message that is not a user's. Messages of a turn that was stopped or failed are skipped, so that the user
/// messages before them count.
async fn without_match<'a>(sent: &'a [ClientMessage], log: &RunLog) -> &'a [ClientMessage] {
    let mut since = sent.len();
    let mut lost = UncommittedTurns::of(log);
    while let Some(before) = since.checked_sub(1) {
        let message = &sent[before];
        let is_over = match &message.content {
            ClientContent::User(_) | ClientContent::Other => false,
            ClientContent::Assistant { .. } | ClientContent::Reasoning => !lost.sent(&message.id).await,
            // A result may answer a waiting call.
            ClientContent::Tool { call, .. } => !lost.sent(call).await,
        };
        if is_over {
            break;
        }
        since = before;
    }
    // Consecutive results at the end answer stored calls.
    if !sent[since..].iter().any(is_users) {
        let before = sent[..since].iter().rev();
        since -= before
            .take_while(|message| matches!(message.content, ClientContent::Tool { .. }))
            .count();
    }
    &sent[since..]
}

fn turn_input(
    answers: Option<everturn_ai::Answers>,
    mut messages: Vec<Message>,
    open: &[WaitingCall],
    (has_stray, continues): (bool, bool),
    last_match: Option<LastMatch>,
) -> Result<AgentInput> {
    if let Some(answers) = answers {
        if !messages.is_empty() {
            return Err(invalid(
                "answers to calls and new messages cannot be sent together: send the answers first",
            ));
        }
        return Ok(AgentInput::answers(answers));
    }
    let Some(message) = messages.pop() else {
        // The answers were stored with a turn that failed or was stopped, and this run repeats them.
        if continues {
            return Ok(AgentInput::default());
        }
        return Err(match last_match {
            _ if has_stray => invalid("no call of the thread waits for the answer in the run"),
            Some(_) => invalid("the run contains nothing new: the last message is the agent's"),
            None => invalid("the run contains no user message"),
        });
    };
    let questions: Vec<&WaitingCall> = open.iter().filter(|open| !is_of_application(open)).collect();
    if !questions.is_empty() {
        return Err(uncovered(&questions));
    }
    Ok(AgentInput {
        earlier: messages,
        ..AgentInput::from(message)
    })
}

/// Returns the events that replace the client's conversation with the stored one and the new messages.
async fn history_events(
    agent: &ServedAgent,
    base: Option<&Snapshot>,
    turn: &AgentInput,
    sent: &[ClientMessage],
    context: &Context,
) -> Result<Vec<Value>> {
    let record = match base {
        Some(base) => StoredThread::read(agent, base, context).await?,
        None => StoredThread::default(),
    };
    let mut messages = record.messages();
    let received = turn
        .messages()
        .map(|message| user_message(message, given_id(message).unwrap_or_default()));
    messages.extend(received);
    // Clients keep the order of the messages they have and append the others.
    let place: HashMap<&str, usize> = messages
        .iter()
        .enumerate()
        .filter_map(|(place, message)| Some((message["id"].as_str()?, place)))
        .collect();
    let had: Vec<usize> = sent
        .iter()
        .filter_map(|message| place.get(message.id.as_str()).copied())
        .collect();
    let keeps_order = had.iter().copied().eq(0..had.len());
    let snapshot = json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages });
    Ok(if keeps_order {
        vec![snapshot]
    } else {
        vec![json!({ "type": "MESSAGES_SNAPSHOT", "messages": [] }), snapshot]
    })
}

/// Compares the client's state with the stored one. Returns the initial state of the turn if the agent
/// accepts the client's, or else the event with the stored state if the two differ.
fn shared_state(
    agent: &ServedAgent,
    base: Option<&Snapshot>,
    client: Option<&Value>,
) -> (Option<Value>, Option<Value>) {
    let stored = base.and_then(|base| base.state.as_ref()?.custom.as_deref());
    let stored = stored.filter(|stored| !stored.is_null());
    if client == stored {
        return (None, None);
    }
    match client {
        Some(client) if agent.accepts_custom() => (Some(client.clone()), None),
        _ => {
            let event = stored.map(|stored| json!({ "type": "STATE_SNAPSHOT", "snapshot": stored }));
            (None, event)
        }
    }
}

/// The branch of the client's conversation.
struct Line {
    /// Its newest snapshot.
    end: Snapshot,
    /// The index of the last message whose id names a snapshot of the branch, and that snapshot.
    named: Option<(usize, Snapshot)>,
}

impl Line {
    /// Finds the client's branch by the last message whose id names a snapshot; `None` if the session has no
    /// history.
    async fn of(
        agent: &ServedAgent,
        sent: &[ClientMessage],
        tip: Option<&Snapshot>,
        context: &Context,
    ) -> Result<Option<Self>> {
        let Some(tip) = tip else {
            return Ok(None);
        };
        let names = sent.iter().enumerate().rev().filter_map(|(index, message)| {
            let id = match &message.content {
                ClientContent::Assistant { .. } => &message.id,
                ClientContent::Tool { call, .. } => call,
                _ => return None,
            };
            Some((index, parse(id)?.0))
        });
        let is_of_session = |_, found: &Snapshot| found.session_id == tip.session_id;
        let latest = agent.last_turn(names, Some(tip), is_of_session, context).await?;
        let is_of_tip = |found: &Snapshot| {
            let (shorter, longer) = (messages_of(found), messages_of(tip));
            longer.common_prefix(shorter) == shorter.len()
        };
        let end = match &latest {
            Some((_, found)) if !is_of_tip(found) => found,
            _ => tip,
        };
        Ok(Some(Self {
            end: end.clone(),
            named: latest,
        }))
    }

    fn messages(&self) -> &History {
        messages_of(&self.end)
    }

    fn named_until(&self) -> Option<usize> {
        self.named.as_ref().map(|(index, _)| *index)
    }

    /// Returns the snapshot from which to search backwards for one with at most `length` messages. It is
    /// usually the one that the client names, so an edit far back in a long conversation reads no more than
    /// one at its end.
    fn nearest(&self, length: usize) -> &Snapshot {
        let Some((_, named)) = &self.named else {
            return &self.end;
        };
        let ends_at = messages_of(named).len();
        // A turn never ends between user messages.
        let rest = self.messages().truncate_to(length);
        let is_newest = rest.since(ends_at).all(|message| message.role() == Role::User);
        if is_newest && is_whole(named) {
            named
        } else {
            &self.end
        }
    }
}

/// Returns whether a snapshot is not in the middle of a turn.
fn is_whole(snapshot: &Snapshot) -> bool {
    snapshot.event != Some(SnapshotEvent::RoundEnd)
}
