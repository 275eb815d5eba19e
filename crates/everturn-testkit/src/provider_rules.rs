//! The rules of providers for valid conversations.
//!
//! A [`Provider`] converts messages to the order and the blocks of its protocol, like a client of the
//! provider, and returns the reason for which the provider would reject them. It shares no code with the
//! framework's own validation of histories, so each tests the other.
//!
//! ```
//! use everturn_ai::{Message, Messages, Part, ToolRequest};
//! use everturn_testkit::provider_rules::Provider;
//! use serde_json::json;
//!
//! let asked = Message::model(vec![Part::from(ToolRequest::new("pay", json!({})).with_reference("1"))]);
//! let refused = Messages::from([Message::user("Pay Ann."), asked, Message::user("Hello?")]);
//!
//! let reason = Provider::Anthropic.check(&refused).unwrap_err();
//! assert_eq!(reason, "Anthropic: the calls of message 1 are not answered in the next message");
//! ```

use std::fmt;

use everturn_ai::{Message, Messages, PartKind, Role};

/// A provider's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's Responses API.
    OpenAiResponses,
    /// OpenAI's Chat Completions API, and compatible servers.
    OpenAiChat,
    /// Anthropic's Messages API.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
    /// Ollama's chat API.
    Ollama,
}

impl Provider {
    /// All providers.
    pub const ALL: [Self; 5] = [
        Self::OpenAiResponses,
        Self::OpenAiChat,
        Self::Anthropic,
        Self::Gemini,
        Self::Ollama,
    ];

    /// Checks the messages of a request.
    ///
    /// # Errors
    /// The reason for which the provider rejects them.
    pub fn check(self, messages: &Messages) -> Result<(), String> {
        let messages = WireMessage::all(messages);
        let checked = match self {
            Self::OpenAiResponses => responses(&messages),
            Self::OpenAiChat => chat(&messages),
            Self::Anthropic => merged(&messages).and_then(|merged| anthropic(&merged)),
            Self::Gemini => merged(&messages).and_then(|merged| gemini(&merged)),
            Self::Ollama => ollama(&messages),
        };
        checked.map_err(|reason| format!("{self}: {reason}"))
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenAiResponses => "OpenAI Responses",
            Self::OpenAiChat => "OpenAI Chat",
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::Ollama => "Ollama",
        })
    }
}

/// A message in the provider's protocol.
struct WireMessage {
    role: Role,
    blocks: Vec<Block>,
}

/// A part of a message. Calls are numbered through the conversation, because clients give them unique ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Content,
    Reasoning,
    Call(usize),
    /// The answer to a call, if there is such a call before it.
    Answer(Option<usize>),
}

/// A call, given its name and reference.
type Key = (String, Option<String>);

impl WireMessage {
    fn all(messages: &Messages) -> Vec<Self> {
        // The calls of the model's latest message, each with whether it has an answer.
        let mut latest: Vec<(Key, usize, bool)> = Vec::new();
        let mut count = 0;
        messages
            .iter()
            .map(|message| {
                if message.role() == Role::Model {
                    latest.clear();
                }
                Self::of(message, &mut latest, &mut count)
            })
            .collect()
    }

    fn of(message: &Message, latest: &mut Vec<(Key, usize, bool)>, count: &mut usize) -> Self {
        let blocks = message.content().iter().filter_map(|part| match part.kind() {
            PartKind::Text(text) if text.is_empty() => None,
            PartKind::Reasoning(_) => Some(Block::Reasoning),
            PartKind::ToolRequest(request) => {
                *count += 1;
                let key = (request.name.clone(), request.reference.clone());
                latest.push((key, *count, false));
                Some(Block::Call(*count))
            }
            PartKind::ToolResponse(response) => {
                let key = (response.name.clone(), response.reference.clone());
                let meant = |(call, _, is_answered): &&mut (Key, usize, bool)| *call == key && !*is_answered;
                let call = latest.iter_mut().find(meant);
                Some(Block::Answer(call.map(|(_, number, is_answered)| {
                    *is_answered = true;
                    *number
                })))
            }
            _ => Some(Block::Content),
        });
        Self {
            role: message.role(),
            blocks: blocks.collect(),
        }
    }

    fn calls(&self) -> Vec<usize> {
        let calls = self.blocks.iter().filter_map(|block| match block {
            Block::Call(number) => Some(*number),
            _ => None,
        });
        calls.collect()
    }

    /// Returns the calls answered in this message.
    fn answers(&self, at: usize) -> Result<Vec<usize>, String> {
        let answers = self.blocks.iter().filter_map(|block| match block {
            Block::Answer(call) => Some(call.ok_or_else(|| format!("message {at} answers no call"))),
            _ => None,
        });
        answers.collect()
    }

    /// Checks the blocks of a message for its role, and that there is at least one.
    fn check(&self, at: usize) -> Result<(), String> {
        let is_allowed = |block: &Block| match block {
            Block::Content => self.role != Role::Tool,
            Block::Reasoning | Block::Call(_) => self.role == Role::Model,
            Block::Answer(_) => self.role == Role::Tool,
        };
        if let Some(wrong) = self.blocks.iter().find(|block| !is_allowed(block)) {
            return Err(format!(
                "message {at} is of role {} and has a {wrong:?}",
                self.role
            ));
        }
        if self.blocks.iter().all(|block| *block == Block::Reasoning) {
            return Err(format!("message {at} is empty"));
        }
        Ok(())
    }
}

/// Each call has one output after it, and reasoning stands before the item that it led to.
fn responses(messages: &[WireMessage]) -> Result<(), String> {
    let mut open: Vec<usize> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        message.check(at)?;
        open.extend(message.calls());
        for answer in message.answers(at)? {
            let known = open.iter().position(|call| *call == answer);
            open.remove(known.ok_or_else(|| format!("message {at} answers a call twice"))?);
        }
    }
    if open.is_empty() {
        return anything(messages);
    }
    Err("no output is found for a call".to_owned())
}

/// Each call is answered before the next message that is not a tool's.
fn chat(messages: &[WireMessage]) -> Result<(), String> {
    let mut open: Vec<usize> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        message.check(at)?;
        if message.role != Role::Tool && !open.is_empty() {
            return Err(format!("message {at} comes before the answers to all calls"));
        }
        for answer in message.answers(at)? {
            let known = open.iter().position(|call| *call == answer);
            open.remove(known.ok_or_else(|| format!("message {at} answers no open call"))?);
        }
        open.extend(message.calls());
    }
    if open.is_empty() {
        return anything(messages);
    }
    Err("the last calls are not answered".to_owned())
}

/// A tool message follows the model's or another tool message, and none is empty.
fn ollama(messages: &[WireMessage]) -> Result<(), String> {
    for (at, message) in messages.iter().enumerate() {
        message.check(at)?;
        message.answers(at)?;
        let before = at.checked_sub(1).map(|before| messages[before].role);
        if message.role == Role::Tool && !matches!(before, Some(Role::Model | Role::Tool)) {
            return Err(format!("message {at} of a tool follows no call"));
        }
    }
    anything(messages)
}

/// Joins consecutive messages of one role. Tool results belong to the user, and instructions are separate.
fn merged(messages: &[WireMessage]) -> Result<Vec<WireMessage>, String> {
    let mut merged: Vec<WireMessage> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        message.check(at)?;
        let role = match message.role {
            Role::System => continue,
            Role::Model => Role::Model,
            Role::User | Role::Tool => Role::User,
        };
        match merged.last_mut().filter(|last| last.role == role) {
            Some(last) => last.blocks.extend(&message.blocks),
            None => merged.push(WireMessage {
                role,
                blocks: message.blocks.clone(),
            }),
        }
    }
    anything(&merged)?;
    Ok(merged)
}

/// The results of all calls of a message are in the next one, and no message ends with a thinking block.
fn anthropic(merged: &[WireMessage]) -> Result<(), String> {
    for (at, message) in merged.iter().enumerate() {
        if message.role == Role::Model && message.blocks.last() == Some(&Block::Reasoning) {
            return Err(format!("message {at} ends with thinking"));
        }
    }
    answered_next(merged)
}

/// The content after calls has as many responses as there were calls.
fn gemini(merged: &[WireMessage]) -> Result<(), String> {
    answered_next(merged)
}

fn answered_next(merged: &[WireMessage]) -> Result<(), String> {
    for (at, message) in merged.iter().enumerate() {
        let mut calls = message.calls();
        let next = merged.get(at + 1);
        let mut answers = next.map_or(Ok(Vec::new()), |next| next.answers(at + 1))?;
        calls.sort_unstable();
        answers.sort_unstable();
        if message.role == Role::Model && calls != answers {
            return Err(format!(
                "the calls of message {at} are not answered in the next message"
            ));
        }
    }
    match merged.first() {
        Some(first) if first.role == Role::User && !first.answers(0)?.is_empty() => {
            Err("the first message answers calls".to_owned())
        }
        _ => Ok(()),
    }
}

fn anything(messages: &[WireMessage]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("there are no messages".to_owned());
    }
    Ok(())
}
