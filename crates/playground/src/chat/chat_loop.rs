//! The chat loop: reads lines and executes them.

use everturn::Result;
use everturn::prelude::*;
use tokio::task::JoinSet;

use super::command::Command;
use super::conversation::Conversation;
use super::lines::Lines;
use super::screen::Screen;
use crate::agents::Demo;
use crate::agents::banker::{Confirmation, Decision};

/// A session with each agent, and the current one.
pub(crate) struct ChatLoop {
    conversations: Vec<Conversation>,
    current: usize,
    background: JoinSet<Finished>,
    lines: Lines,
    screen: Screen,
}

/// A finished background run: its agent and its outcome.
struct Finished {
    agent: usize,
    outcome: Result<AgentReply>,
}

enum Event {
    Line(String),
    Finished(Box<Finished>),
    NoMoreLines,
}

impl ChatLoop {
    pub(crate) async fn new(demos: Vec<Demo>, lines: Lines, screen: Screen) -> Result<Self> {
        let mut conversations = Vec::new();
        for demo in demos {
            conversations.push(Conversation::begin(demo).await?);
        }
        Ok(Self {
            conversations,
            current: 0,
            background: JoinSet::new(),
            lines,
            screen,
        })
    }

    /// Runs until the user quits. Errors are printed, and the loop continues.
    pub(crate) async fn run(mut self) {
        while !self.screen.is_gone() {
            let prompt = format!("{}>", self.conversation().demo.name);
            self.screen.prompt(&prompt);
            match self.next_event().await {
                Event::Finished(finished) => self.report(*finished).await,
                Event::NoMoreLines => break,
                Event::Line(line) => {
                    self.screen.typed(&line, self.lines.is_echoed());
                    match Command::parse(&line) {
                        Ok(Command::Quit) => return,
                        Ok(command) => self.execute(command).await,
                        Err(error) => self.screen.error(&error),
                    }
                }
            }
        }
        self.screen.end_line();
        self.wait().await;
    }

    async fn next_event(&mut self) -> Event {
        tokio::select! {
            biased;
            Some(Ok(finished)) = self.background.join_next() => Event::Finished(Box::new(finished)),
            line = self.lines.next() => line.map_or(Event::NoMoreLines, Event::Line),
        }
    }

    async fn execute(&mut self, command: Command) {
        if let Err(error) = self.try_execute(command).await {
            self.screen.error(&error);
        }
    }

    async fn try_execute(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Say(text) => self.say(text.into()).await,
            Command::Agent(name) => self.select_agent(&name),
            Command::New => self.conversation_mut().start_new().await,
            Command::Resume(Some(session)) => {
                self.conversation_mut().resume(&session).await?;
                self.continue_conversation().await
            }
            Command::Branch(snapshot) => {
                self.conversation_mut().branch(&snapshot).await?;
                self.continue_conversation().await
            }
            Command::Detach(text) => self.detach(text).await,
            Command::Wait => {
                self.wait().await;
                Ok(())
            }
            reading => self.show(&reading).await,
        }
    }

    /// Executes the commands that only read.
    async fn show(&mut self, command: &Command) -> Result<()> {
        let Self {
            conversations,
            screen,
            ..
        } = self;
        let conversation = &conversations[self.current];
        match command {
            Command::Resume(_) => conversation.show_sessions(screen).await?,
            Command::History => conversation.show_history(screen).await?,
            Command::State => conversation.show_state(screen)?,
            Command::Agents => screen.agents(conversations.iter().map(|conversation| &conversation.demo)),
            Command::Help => screen.help(),
            _ => {}
        }
        Ok(())
    }

    /// Runs a turn, and further turns while the agent has questions and receives answers.
    async fn say(&mut self, mut input: AgentInput) -> Result<()> {
        loop {
            let reply = self.conversations[self.current]
                .send(input, &mut self.screen)
                .await?;
            match self.answers(&reply.interrupts()).await? {
                Some(answers) => input = answers,
                None => return Ok(()),
            }
        }
    }

    /// Continues a session with its open questions, if there are any.
    async fn continue_conversation(&mut self) -> Result<()> {
        let count = self.conversation().message_count();
        self.screen.line(format!("At a point with {count} messages."));
        let questions = self.conversation().questions();
        match self.answers(&questions).await? {
            Some(answers) => self.say(answers).await,
            None => Ok(()),
        }
    }

    /// Prompts for answers; `None` if there are no questions, or input ends.
    async fn answers(&mut self, questions: &[Interrupt]) -> Result<Option<AgentInput>> {
        let mut answers = Vec::new();
        for question in questions {
            let confirmation: Confirmation = question.data()?;
            self.screen.prompt(&format!("{} [y/n]", confirmation.question));
            let Some(line) = self.lines.next().await else {
                self.screen
                    .line("Nobody answered. The question waits in the conversation.");
                return Ok(None);
            };
            self.screen.typed(&line, self.lines.is_echoed());
            let is_approved = matches!(line.trim().to_lowercase().as_str(), "y" | "yes");
            answers.push(question.restart(Decision { is_approved })?);
        }
        Ok((!answers.is_empty()).then(|| AgentInput::answers(answers)))
    }

    fn select_agent(&mut self, name: &str) -> Result<()> {
        let found = self
            .conversations
            .iter()
            .position(|conversation| conversation.demo.name == name);
        self.current =
            found.ok_or_else(|| Error::not_found(format!("there is no agent '{name}'; see /agents")))?;
        Ok(())
    }

    async fn detach(&mut self, text: String) -> Result<()> {
        let agent = self.current;
        let task = self.conversation_mut().detach(text).await?;
        self.screen.line(format!(
            "In the background as {}. Talk to somebody else meanwhile.",
            task.snapshot_id()
        ));
        self.background.spawn(async move {
            Finished {
                agent,
                outcome: task.wait().await,
            }
        });
        Ok(())
    }

    /// Waits for all background runs.
    async fn wait(&mut self) {
        while let Some(finished) = self.background.join_next().await {
            match finished {
                Ok(finished) => self.report(finished).await,
                Err(error) => self.screen.error(&error.into()),
            }
        }
    }

    async fn report(&mut self, finished: Finished) {
        let conversation = &mut self.conversations[finished.agent];
        let name = &conversation.demo.name;
        match finished.outcome {
            Ok(reply) => self
                .screen
                .line(format!("[{name} is done in the background: {}]", reply.text())),
            Err(error) => self
                .screen
                .error(&error.context(format_args!("{name}, in the background"))),
        }
        if let Err(error) = conversation.catch_up().await {
            self.screen.error(&error);
        }
    }

    fn conversation(&self) -> &Conversation {
        &self.conversations[self.current]
    }

    fn conversation_mut(&mut self) -> &mut Conversation {
        &mut self.conversations[self.current]
    }
}
