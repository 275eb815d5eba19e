//! From a run's input and the record to the turn that is run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use everturn_agent::{AgentInit, AgentInput, SessionId, Snapshot, SnapshotEvent, SnapshotStatus};
use everturn_ai::{History, Message, Role};
use everturn_core::{Context, Error, Result};
use everturn_server::{ServedAgent, turn_name};
use serde_json::{Value, json};

use crate::answers::{Given, Pending, given, pending, uncovered};
use crate::given_ids::{NOTES, given_id};
use crate::ids::parse;
use crate::input::{RunInput, Shown, What, invalid};
use crate::kept::{Kept, LostTurns};
use crate::matching::{Anchor, Matching, is_end};
use crate::record::{Record, user_message};
use crate::teller::Call;

/// The greatest number of snapshots that are looked up to find the branch that a client shows.
const MOST_LOOKED_UP: usize = 64;

/// The turn to run.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) init: AgentInit,
    pub(crate) input: AgentInput,
    /// Whether the conversation begins anew in a session that exists.
    pub(crate) begins_anew: bool,
    /// Whether the client keeps the conversation.
    pub(crate) is_kept_by_client: bool,
    /// The calls that wait before the turn, with the ids by which the client knows them.
    pub(crate) waiting: Vec<(Call, String)>,
    /// The results that the client shows already, by the ids of their calls.
    pub(crate) answered: HashMap<String, String>,
    /// The events before the first chunk: what the client must be told of the record.
    pub(crate) first: Vec<Value>,
}

/// Plans the turn of a run on a session that the agent keeps.
///
/// # Errors
/// `INVALID_ARGUMENT` or `FAILED_PRECONDITION` for a run that has nothing to do, or does not answer what the thread waits for;
/// `ABORTED` for a run that was made already; the store's own errors.
pub(crate) async fn plan(
    agent: &ServedAgent,
    input: &RunInput,
    shown: &[Shown],
    kept: &Kept,
    context: &Context,
) -> Result<Plan> {
    let session = input.session();
    let tip = agent.tip(&session, context).await?;
    if let Some(tip) = tip.as_ref().filter(|tip| is_under_way(tip)) {
        return Err(Error::failed_precondition(format!(
            "a background run of the thread is under way (snapshot '{}'): connect to watch it, and run again when it has ended",
            tip.snapshot_id
        ))
        .with_public());
    }
    let lookup = LookUp {
        agent,
        context,
        session: &session,
    };
    let line = lookup.line(shown, tip.as_ref()).await?;
    let empty = History::default();
    let record = line.as_ref().map_or(&empty, Line::messages);
    let matching = Matching::new(
        shown,
        record,
        line.as_ref().and_then(Line::named_until),
        &input.run_id,
    );
    if matching.is_repeated {
        return Err(repeated(&input.run_id));
    }
    let anchor = matching.anchor(shown);
    let new = match anchor {
        Some(anchor) => &shown[anchor.index + 1..],
        None => without_anchor(shown, kept).await,
    };
    let users: Vec<&Shown> = new.iter().filter(|shown| is_users(shown)).collect();
    let is_at_end = anchor.is_none_or(|anchor| is_end(record, anchor.place));
    let says_again = anchor.is_some_and(|anchor| anchor.is_users && users.is_empty());
    let base = match (anchor, &line) {
        (Some(anchor), Some(line)) if says_again || !is_at_end => {
            let until = anchor.place + usize::from(!anchor.is_users);
            agent.ending_at(line.nearest(until), until, context).await?
        }
        (_, line) => line.as_ref().map(|line| line.end.clone()),
    };
    let length = base.as_ref().map_or(0, |base| messages_of(base).len());
    let open = base
        .as_ref()
        .map(|base| pending(messages_of(base), &name_of(base), agent));
    let open = open.unwrap_or_default();
    let Given {
        answers,
        shown: answered,
        has_stray,
    } = given(&open, input.resume(), new)?;
    // The user's words on record, between the snapshot and the last known message, are said again.
    let again = anchor.map_or(0..0, |anchor| length..(anchor.place + 1).max(length));
    let again = again
        .filter(|_| answers.is_none())
        .filter_map(|place| record.get(place))
        .filter(|message| message.role() == Role::User)
        .map(|message| (message.content().to_vec(), given_id(message).map(str::to_owned)));
    let said = users.iter().filter_map(|shown| match &shown.what {
        What::User(parts) => Some((parts.clone(), Some(shown.id.clone()))),
        _ => None,
    });
    let messages: Vec<Message> = again
        .chain(said)
        .map(|(parts, id)| noted(Message::user(parts), id.as_deref(), &input.run_id))
        .collect();
    let goes_on = has_stray && open.is_empty() && base.as_ref().is_some_and(awaits_model);
    let turn = turn_input(answers, messages, &open, (has_stray, goes_on), anchor)?;
    let base_id = base.as_ref().map(|base| &base.snapshot_id);
    let is_tip = base_id == tip.as_ref().map(|tip| &tip.snapshot_id);
    let begins_anew = base.is_none() && tip.is_some();
    let is_contradicted =
        matching.is_contradicted(shown, anchor, |call| open.iter().any(|open| open.id == call));
    let mut first = Vec::new();
    if is_contradicted {
        first = told_record(agent, base.as_ref(), &turn, shown, context).await?;
    }
    let (custom, told) = shared_state(agent, base.as_ref(), input.state());
    first.extend(told);
    Ok(Plan {
        init: match base_id {
            Some(id) if !is_tip => AgentInit::snapshot(id.clone()),
            // The tip is resumed by the session, so that the turn continues whatever is the tip when it starts.
            _ => AgentInit::session(session.clone()),
        },
        input: AgentInput {
            custom: custom.map(Arc::new),
            ..turn
        },
        begins_anew,
        is_kept_by_client: false,
        waiting: open
            .iter()
            .filter_map(|open| Some((open.call()?, open.id.clone())))
            .collect(),
        answered,
        first,
    })
}

/// Returns the error of a run that was made already.
pub(crate) fn repeated(run: &str) -> Error {
    Error::aborted(format!(
        "run '{run}' was made before and is no longer kept: a run id is used once"
    ))
    .with_public()
}

/// Returns whether a snapshot is that of background work.
pub(crate) fn is_under_way(snapshot: &Snapshot) -> bool {
    snapshot.status.is_under_way() || snapshot.status == SnapshotStatus::Expired
}

/// Returns whether a turn ended before the model answered.
fn awaits_model(snapshot: &Snapshot) -> bool {
    let is_cut_short = matches!(snapshot.status, SnapshotStatus::Failed | SnapshotStatus::Aborted);
    let last = messages_of(snapshot).last().map(Message::role);
    is_cut_short && matches!(last, Some(Role::User | Role::Tool))
}

/// Returns the messages of a snapshot.
pub(crate) fn messages_of(snapshot: &Snapshot) -> &History {
    static EMPTY: std::sync::LazyLock<History> = std::sync::LazyLock::new(History::default);
    snapshot.state.as_ref().map_or(&EMPTY, |state| &state.messages)
}

/// Returns the name in the ids of the last messages of a snapshot: a snapshot at the end of an invocation adds none.
pub(crate) fn name_of(snapshot: &Snapshot) -> String {
    let adds_none = snapshot.event == Some(SnapshotEvent::InvocationEnd);
    let parent = snapshot.parent_id.as_ref().filter(|_| adds_none);
    let name = turn_name(snapshot);
    match parent {
        // A turn that has a name of its own has given it to this snapshot, too.
        Some(parent) if name == snapshot.snapshot_id.as_str() => parent.to_string(),
        _ => name,
    }
}

/// Returns a message with the client's id of it and the run that says it.
pub(crate) fn noted(message: Message, id: Option<&str>, run: &str) -> Message {
    let mut notes = json!({ "runId": run });
    if let Some(id) = id {
        notes["id"] = id.into();
    }
    message.with_metadata_entry(NOTES, notes)
}

fn is_users(shown: &Shown) -> bool {
    matches!(shown.what, What::User(_))
}

/// Returns the new messages of a client that shows nothing of the record: those after the last message that is not a user's.
/// Messages of a turn that was stopped or failed are passed over, so that the words before them still count.
async fn without_anchor<'a>(shown: &'a [Shown], kept: &Kept) -> &'a [Shown] {
    let mut since = shown.len();
    let mut lost = LostTurns::of(kept);
    while let Some(before) = since.checked_sub(1) {
        let message = &shown[before];
        let is_over = match &message.what {
            What::User(_) | What::Other => false,
            What::Assistant { .. } | What::Reasoning => !lost.told(&message.id).await,
            // A result may be the answer to a call that waits.
            What::Tool { call, .. } => !lost.told(call).await,
        };
        if is_over {
            break;
        }
        since = before;
    }
    // Results that follow each other at the end answer calls of the record.
    if !shown[since..].iter().any(is_users) {
        let before = shown[..since].iter().rev();
        since -= before
            .take_while(|shown| matches!(shown.what, What::Tool { .. }))
            .count();
    }
    &shown[since..]
}

fn turn_input(
    answers: Option<everturn_ai::Answers>,
    mut messages: Vec<Message>,
    open: &[Pending],
    (has_stray, goes_on): (bool, bool),
    anchor: Option<Anchor>,
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
        // A turn that failed or was stopped was kept with the answers that this run brings once more.
        if goes_on {
            return Ok(AgentInput::default());
        }
        return Err(match anchor {
            _ if has_stray => invalid("no call of the thread waits for an answer that the run brings"),
            Some(_) => invalid("the run brings nothing new: the last message is the agent's"),
            None => invalid("the run brings no message of the user"),
        });
    };
    let questions: Vec<&Pending> = open.iter().filter(|open| !open.is_of_application()).collect();
    if !questions.is_empty() {
        return Err(uncovered(&questions));
    }
    Ok(AgentInput {
        earlier: messages,
        ..AgentInput::from(message)
    })
}

/// Returns the events that tell the client what is on record, with what it says now.
async fn told_record(
    agent: &ServedAgent,
    base: Option<&Snapshot>,
    turn: &AgentInput,
    shown: &[Shown],
    context: &Context,
) -> Result<Vec<Value>> {
    let record = match base {
        Some(base) => Record::read(agent, base, context).await?,
        None => Record::default(),
    };
    let mut messages = record.messages();
    let said = turn
        .messages()
        .map(|message| user_message(message, given_id(message).unwrap_or_default()));
    messages.extend(said);
    // Clients keep the order of the messages they have and append the others.
    let place: HashMap<&str, usize> = messages
        .iter()
        .enumerate()
        .filter_map(|(place, message)| Some((message["id"].as_str()?, place)))
        .collect();
    let had: Vec<usize> = shown
        .iter()
        .filter_map(|shown| place.get(shown.id.as_str()).copied())
        .collect();
    let keeps_order = had.iter().copied().eq(0..had.len());
    let told = json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages });
    Ok(if keeps_order {
        vec![told]
    } else {
        vec![json!({ "type": "MESSAGES_SNAPSHOT", "messages": [] }), told]
    })
}

/// Compares the client's state with the stored one: returns the state that the turn begins with, if the agent takes the
/// client's, else the event that tells the client the stored state, if the client holds another.
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
            let told = stored.map(|stored| json!({ "type": "STATE_SNAPSHOT", "snapshot": stored }));
            (None, told)
        }
    }
}

/// Reads the snapshots of one session.
struct LookUp<'a> {
    agent: &'a ServedAgent,
    context: &'a Context,
    session: &'a SessionId,
}

impl LookUp<'_> {
    /// Reads the snapshot of a turn of this session.
    async fn turn(&self, name: &str) -> Result<Option<Snapshot>> {
        let found = self.agent.turn(name, self.context).await?;
        Ok(found.filter(|found| found.session_id.as_ref() == Some(self.session)))
    }

    /// Finds the branch that the client shows, by the last message whose id names a snapshot; `None` if there is no record.
    async fn line(&self, shown: &[Shown], tip: Option<&Snapshot>) -> Result<Option<Line>> {
        let Some(tip) = tip else {
            return Ok(None);
        };
        let tip_name = turn_name(tip);
        let mut missing: HashSet<String> = HashSet::new();
        for (index, message) in shown.iter().enumerate().rev() {
            let id = match &message.what {
                What::Assistant { .. } => &message.id,
                What::Tool { call, .. } => call,
                _ => continue,
            };
            let Some((name, _)) = parse(id).filter(|(name, _)| !missing.contains(name)) else {
                continue;
            };
            if name == tip_name {
                return Ok(Some(Line::new(tip.clone(), Some((index, tip.clone())))));
            }
            if missing.len() == MOST_LOOKED_UP {
                break;
            }
            let Some(found) = self.turn(&name).await? else {
                missing.insert(name);
                continue;
            };
            let (shorter, longer) = (messages_of(&found), messages_of(tip));
            let is_of_tip = longer.common_prefix(shorter) == shorter.len();
            let end = if is_of_tip { tip } else { &found };
            return Ok(Some(Line::new(end.clone(), Some((index, found)))));
        }
        Ok(Some(Line::new(tip.clone(), None)))
    }
}

/// The branch that a client shows.
struct Line {
    /// Its newest snapshot.
    end: Snapshot,
    /// The index of the last message whose id names a snapshot of the branch, and that snapshot.
    named: Option<(usize, Snapshot)>,
}

impl Line {
    fn new(end: Snapshot, named: Option<(usize, Snapshot)>) -> Self {
        Self { end, named }
    }

    fn messages(&self) -> &History {
        messages_of(&self.end)
    }

    fn named_until(&self) -> Option<usize> {
        self.named.as_ref().map(|(index, _)| *index)
    }

    /// Returns the snapshot from which one with at most this many messages is looked for backwards. The one that the client
    /// names is mostly that snapshot, so an edit far back in a long conversation reads no more than one at its end.
    fn nearest(&self, length: usize) -> &Snapshot {
        let Some((_, named)) = &self.named else {
            return &self.end;
        };
        let ends_at = messages_of(named).len();
        // No turn ends among words of the user.
        let rest = self.messages().truncate_to(length);
        let is_newest = rest.since(ends_at).all(|message| message.role() == Role::User);
        if is_newest && is_whole(named) {
            named
        } else {
            &self.end
        }
    }
}

/// Returns whether a snapshot is not from the middle of a turn.
fn is_whole(snapshot: &Snapshot) -> bool {
    snapshot.event != Some(SnapshotEvent::RoundEnd)
}
