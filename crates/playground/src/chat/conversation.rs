//! The current session with one agent.

use everturn::Result;
use everturn::prelude::*;

use super::listing;
use super::screen::Screen;
use crate::agents::Demo;

/// An agent and the chat with it.
pub(crate) struct Conversation {
    pub(crate) demo: Demo,
    chat: Chat,
}

impl Conversation {
    /// Starts a session.
    pub(crate) async fn begin(demo: Demo) -> Result<Self> {
        let chat = demo.chat().open().await?;
        Ok(Self { demo, chat })
    }

    /// Replaces this session by a new one.
    pub(crate) async fn start_new(&mut self) -> Result<()> {
        self.chat = self.demo.chat().open().await?;
        Ok(())
    }

    /// Resumes a session at its tip.
    pub(crate) async fn resume(&mut self, typed: &str) -> Result<()> {
        let session = listing::session(&self.demo, typed).await?;
        self.chat = self.demo.chat().resume(session).open().await?;
        Ok(())
    }

    /// Resumes a snapshot: one of this session by its number, or any by its id.
    pub(crate) async fn branch(&mut self, typed: &str) -> Result<()> {
        let snapshot = listing::snapshot(&self.demo, self.chat.session_id(), typed).await?;
        self.chat = self.demo.chat().snapshot(snapshot).open().await?;
        Ok(())
    }

    /// Runs a turn and prints it as it is streamed.
    pub(crate) async fn send(&mut self, input: AgentInput, screen: &mut Screen) -> Result<AgentReply> {
        let mut turn = self.chat.send(input).await?;
        while let Some(chunk) = turn.next().await {
            screen.chunk(&chunk?);
        }
        screen.end_line();
        turn.output().await
    }

    /// Starts a background run.
    pub(crate) async fn detach(&mut self, text: String) -> Result<AgentTask> {
        self.chat.detach(text).await
    }

    /// Reads the results of a background run into the chat.
    pub(crate) async fn catch_up(&mut self) -> Result<()> {
        self.chat.read().await
    }

    /// Returns the open interrupts.
    pub(crate) fn questions(&self) -> Vec<Interrupt> {
        let last = self.chat.messages().last();
        last.into_iter()
            .flat_map(Message::interrupts)
            .filter_map(Interrupt::of)
            .collect()
    }

    /// Returns the number of messages.
    pub(crate) fn message_count(&self) -> usize {
        self.chat.messages().len()
    }

    /// Shows the snapshots of this session.
    pub(crate) async fn show_history(&self, screen: &mut Screen) -> Result<()> {
        let Some(session) = self.chat.session_id() else {
            screen.line("Nothing was said yet.");
            return Ok(());
        };
        for line in listing::snapshots(&self.demo, session, self.chat.snapshot_id()).await? {
            screen.line(line);
        }
        Ok(())
    }

    /// Shows all sessions with this agent.
    pub(crate) async fn show_sessions(&self, screen: &mut Screen) -> Result<()> {
        let sessions = listing::sessions(&self.demo).await?;
        if sessions.is_empty() {
            screen.line("Nothing was said yet.");
        }
        for line in sessions {
            screen.line(line);
        }
        Ok(())
    }

    /// Shows the agent's custom state.
    pub(crate) fn show_state(&self, screen: &mut Screen) -> Result<()> {
        match self.chat.custom()? {
            Value::Null => screen.line("The agent has kept nothing yet."),
            custom => screen.json(&custom),
        }
        for artifact in self.chat.artifacts() {
            screen.line(format!(
                "{}:\n{}",
                artifact.given_name().unwrap_or("unnamed"),
                artifact.content_text()
            ));
        }
        Ok(())
    }
}
