//! A conversation in Anthropic's form: system blocks, and messages of the user and the assistant in
//! alternation.

use everturn_ai::{Message, Messages, Part, PartKind, Role};
use everturn_core::Result;
use serde_json::{Value, json};

use super::PROVIDER;
use super::blocks::{
    Calls, assistant_block, content_block, is_tool_result, media_block, text_block, user_block,
};
use super::claude_family::Family;
use crate::{NO_MESSAGE, WireTools, warn_left_out};

/// A conversation that is being converted.
#[derive(Debug)]
pub(super) struct Conversation<'a> {
    family: Family,
    tools: &'a WireTools,
    calls: Calls,
    /// Media from the model. It is sent back in the next user message.
    carried: Vec<Value>,
    system: Vec<Value>,
    messages: Vec<WireMessage>,
}

#[derive(Debug)]
struct WireMessage {
    role: &'static str,
    content: Vec<Value>,
}

impl<'a> Conversation<'a> {
    /// Converts the messages of a request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for media that Claude cannot read.
    pub(super) fn of(messages: &Messages, family: Family, tools: &'a WireTools) -> Result<Self> {
        let mut conversation = Self {
            family,
            tools,
            calls: Calls::default(),
            carried: Vec::new(),
            system: Vec::new(),
            messages: Vec::new(),
        };
        for message in messages {
            conversation.add(message)?;
        }
        Ok(conversation)
    }

    fn add(&mut self, message: &Message) -> Result<()> {
        match message.role() {
            Role::System => self.add_system(message),
            Role::Model => self.add_assistant(message.content()),
            Role::User | Role::Tool => self.add_user(message),
        }
    }

    /// Adds a system message: before the conversation or, if the model accepts it there, after a user
    /// message.
    fn add_system(&mut self, message: &Message) -> Result<()> {
        let mut blocks = Vec::new();
        for part in message.content() {
            match content_block(part)? {
                Some(block) => blocks.push(block),
                None => warn_left_out(part, PROVIDER),
            }
        }
        let follows_user = self.messages.last().is_some_and(|last| last.role != "assistant");
        if self.family.has_system_messages() && follows_user {
            self.push("system", blocks);
        } else {
            self.system.extend(blocks);
        }
        Ok(())
    }

    fn add_assistant(&mut self, content: &[Part]) -> Result<()> {
        let mut blocks = Vec::with_capacity(content.len());
        for part in content {
            if let PartKind::Media(media) = part.kind() {
                self.carried.push(media_block(media)?);
                continue;
            }
            match assistant_block(part, self.tools, &mut self.calls) {
                Some(block) => blocks.push(block),
                None => warn_left_out(part, PROVIDER),
            }
        }
        self.push("assistant", blocks);
        Ok(())
    }

    fn add_user(&mut self, message: &Message) -> Result<()> {
        let mut blocks = Vec::with_capacity(message.content().len());
        for part in message.content() {
            match user_block(part, &mut self.calls)? {
                Some(block) => blocks.push(block),
                None => warn_left_out(part, PROVIDER),
            }
        }
        if message.role() == Role::User {
            blocks.splice(0..0, self.carried.drain(..));
        }
        self.push("user", blocks);
        Ok(())
    }

    /// Adds blocks: to the last message if the role is the same, else as a new message. Without blocks
    /// nothing is added.
    fn push(&mut self, role: &'static str, blocks: Vec<Value>) {
        if blocks.is_empty() {
            return;
        }
        match self.messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.content.extend(blocks),
            None => self.messages.push(WireMessage {
                role,
                content: blocks,
            }),
        }
    }

    /// Returns the system blocks and the messages, the first of which is the user's.
    pub(super) fn into_wire(mut self) -> (Vec<Value>, Vec<Value>) {
        if self.messages.first().is_none_or(|first| first.role != "user") {
            let content = text_block(NO_MESSAGE).into_iter().collect();
            self.messages.insert(
                0,
                WireMessage {
                    role: "user",
                    content,
                },
            );
        }
        let messages = self.messages.into_iter().map(|mut message| {
            // The results of tools come first. The sort keeps the order of the rest.
            message.content.sort_by_key(|block| !is_tool_result(block));
            json!({ "role": message.role, "content": message.content })
        });
        (self.system, messages.collect())
    }
}

/// Converts an answer that is sent back to the model in the middle of its turn.
pub(super) fn answer_blocks(content: &[Part], tools: &WireTools) -> Vec<Value> {
    let mut calls = Calls::default();
    content
        .iter()
        .filter_map(|part| assistant_block(part, tools, &mut calls))
        .collect()
}
