//! `everturn chat`.

use clap::Args;
use everturn_agent::{AgentInput, AgentReply, Chat, Interrupt};
use everturn_ai::Message;
use everturn_core::Error;
use serde_json::{Value, json};

use crate::answers::{Lines, answer, question};
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{BOLD, Output};
use crate::target::Target;
use crate::transcript::{Transcript, used};

/// The commands of a chat line by line.
const HELP: &str = "\
/session      print the ids of the session and its snapshot
/state        print the custom state
/detach TEXT  run a turn in the background
/retry        retry the failed turn
/quit         leave";

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    /// The agent
    #[arg(value_name = "AGENT")]
    name: String,

    /// The message; without it, every line of standard input is a message
    message: Vec<String>,

    /// Resume this session, or create it with this id
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    /// Continue from this snapshot; creates a branch if other snapshots follow it
    #[arg(long, value_name = "ID", conflicts_with = "session")]
    snapshot: Option<String>,

    /// Run the turn in the background, and print the id of the run
    #[arg(long, requires = "message")]
    detach: bool,

    /// Answer the open question: y, n, or the tool's output as JSON
    #[arg(long, value_name = "ANSWER", conflicts_with_all = ["message", "detach"])]
    answer: Option<String>,

    /// Retry the failed turn; completed tool calls are not repeated
    #[arg(long, conflicts_with_all = ["message", "detach", "answer"])]
    retry: bool,
}

pub(crate) async fn run(arguments: ChatArguments, target: &Target, output: Output) -> Outcome {
    let served = target.server("everturn chat")?.agent(&arguments.name).await?;
    let builder = served.agent.chat();
    let builder = match (&arguments.session, &arguments.snapshot) {
        (Some(session), _) => builder.resume(session.as_str()),
        (None, Some(snapshot)) => builder.snapshot(snapshot.as_str()),
        (None, None) => builder,
    };
    let mut conversation = Conversation {
        chat: builder.open().await?,
        output,
        lines: None,
    };
    let text = arguments.message.join(" ");
    if let Some(typed) = &arguments.answer {
        conversation.answer_waiting(typed).await
    } else if arguments.retry {
        conversation.say_once(AgentInput::default()).await
    } else if arguments.detach {
        conversation.detach(text).await
    } else if arguments.message.is_empty() {
        conversation.lines = Some(Lines::open());
        conversation.run_interactively().await
    } else {
        conversation.say_once(text.into()).await
    }
}

struct Conversation {
    chat: Chat,
    output: Output,
    /// The lines of standard input, if it is interactive.
    lines: Option<Lines>,
}

impl Conversation {
    /// Runs one turn non-interactively.
    async fn say_once(&mut self, input: AgentInput) -> Outcome {
        let Some(reply) = self.turn(input).await? else {
            return Err(Error::cancelled("the turn was stopped").into());
        };
        let ids = format!(
            "session {}  snapshot {}",
            shown(reply.session_id()),
            shown(reply.snapshot_id())
        );
        self.output.remark(ids);
        let interrupts = reply.interrupts();
        for interrupt in &interrupts {
            self.output.remark(question(interrupt));
        }
        if interrupts.is_empty() {
            return Ok(Exit::Done);
        }
        self.output.remark(format!(
            "The agent waits. Answer with: everturn chat … --session {} --answer y",
            shown(reply.session_id())
        ));
        Ok(Exit::Unanswered)
    }

    /// Answers every open question of the session in the same way.
    async fn answer_waiting(&mut self, typed: &str) -> Outcome {
        let waiting = self.waiting();
        if waiting.is_empty() {
            return Err(
                Failure::from(Error::failed_precondition("the agent has no open question"))
                    .or_next("select another session with --session"),
            );
        }
        let answers = waiting.iter().map(|interrupt| answer(interrupt, typed));
        let answers = answers.collect::<Outcome<Vec<_>>>()?;
        self.say_once(AgentInput::answers(answers)).await
    }

    async fn detach(&mut self, text: String) -> Outcome {
        let task = self.chat.detach(text).await?;
        let (id, session) = (task.snapshot_id(), self.chat.session_id());
        self.output
            .show(&json!({ "snapshotId": id, "sessionId": session }), || {
                format!("{id}\n")
            })?;
        self.output.remark("Watch it with: everturn runs watch ID");
        Ok(Exit::Done)
    }

    /// Runs a turn for each line, until the lines end.
    async fn run_interactively(&mut self) -> Outcome {
        let waiting = self.waiting();
        if let Some(answers) = self.ask(&waiting).await? {
            self.converse(answers).await?;
        }
        loop {
            let Some(line) = self.line(&format!("{BOLD}>{BOLD:#}")).await else {
                break;
            };
            let line = line.trim();
            let done = match line.split_once(' ').unwrap_or((line, "")) {
                ("", _) => Ok(()),
                ("/quit" | "/exit", "") => break,
                ("/help", "") => self.output.line(HELP),
                ("/session", "") => self.show_place(),
                ("/state", "") => self.show_state(),
                ("/retry", "") => self.converse(AgentInput::default()).await,
                ("/detach", text) if !text.trim().is_empty() => {
                    self.detach(text.trim().to_owned()).await.map(drop)
                }
                (word, _) if word.starts_with('/') => {
                    Err(Failure::wrong(format!("there is no command {word}; see /help")))
                }
                _ => self.converse(line.into()).await,
            };
            match done {
                // A failed turn does not end an interactive conversation; a script needs the exit code.
                Err(failure) if self.output.is_json() || matches!(failure, Failure::ReaderLeft) => {
                    return Err(failure);
                }
                Err(failure) => drop(self.output.failure(&failure)),
                Ok(()) => {}
            }
        }
        Ok(if self.waiting().is_empty() {
            Exit::Done
        } else {
            Exit::Unanswered
        })
    }

    /// Runs a turn, and further turns while the agent has questions and receives answers.
    async fn converse(&mut self, mut input: AgentInput) -> Outcome<()> {
        while let Some(reply) = self.turn(input).await? {
            match self.ask(&reply.interrupts()).await? {
                Some(answers) => input = answers,
                None => break,
            }
        }
        Ok(())
    }

    /// Runs one turn; `None` if it was interrupted with Ctrl-C.
    async fn turn(&mut self, input: AgentInput) -> Outcome<Option<AgentReply>> {
        let mut transcript = Transcript::default();
        let mut turn = self.chat.send(input).await?;
        loop {
            let chunk = tokio::select! {
                chunk = turn.next() => chunk,
                // Dropping the turn cancels it, here and on the server.
                _ = tokio::signal::ctrl_c() => {
                    self.output.remark("\nstopped");
                    return Ok(None);
                }
            };
            match chunk {
                Some(Ok(chunk)) => transcript.chunk(self.output, &chunk)?,
                // The error of a failed turn is also printed as its output.
                Some(Err(_)) | None => break,
            }
        }
        transcript.end_line(self.output)?;
        let reply = match turn.output().await {
            Ok(reply) => reply,
            Err(error) => {
                self.remark_failure(&error);
                return Err(error.into());
            }
        };
        transcript.reply(self.output, &reply)?;
        Ok(Some(reply))
    }

    /// Prints the usage of a failed turn, and the command that retries it.
    fn remark_failure(&self, error: &Error) {
        let Some(reply) = AgentReply::<Value>::of(error) else {
            return;
        };
        let cost = used(&reply.usage());
        if !cost.is_empty() {
            self.output.remark(format!("The turn failed. It used {cost}."));
        }
        let Some(session) = reply.session_id().filter(|_| reply.snapshot_id().is_some()) else {
            return;
        };
        self.output.remark(match self.lines {
            Some(_) => "Retry it with: /retry".to_owned(),
            None => format!("Retry it with: everturn chat … --session {session} --retry"),
        });
    }

    /// Returns the open questions of the last message.
    fn waiting(&self) -> Vec<Interrupt> {
        let last = self.chat.messages().last();
        last.into_iter()
            .flat_map(Message::interrupts)
            .filter_map(Interrupt::of)
            .collect()
    }

    /// Prompts for answers; `None` if there are no questions, or input ends.
    async fn ask(&mut self, questions: &[Interrupt]) -> Outcome<Option<AgentInput>> {
        let mut answers = Vec::new();
        for interrupt in questions {
            self.output.remark(question(interrupt));
            let answered = loop {
                let Some(typed) = self.line("[y/n/JSON]").await else {
                    return Ok(None);
                };
                match answer(interrupt, &typed) {
                    Ok(answered) => break answered,
                    Err(failure) if self.output.is_json() => return Err(failure),
                    Err(failure) => drop(self.output.failure(&failure)),
                }
            };
            answers.push(answered);
        }
        Ok((!answers.is_empty()).then(|| AgentInput::answers(answers)))
    }

    async fn line(&mut self, prompt: &str) -> Option<String> {
        self.lines.as_mut()?.ask(self.output, prompt).await
    }

    fn show_place(&self) -> Outcome<()> {
        let (session, snapshot) = (self.chat.session_id(), self.chat.snapshot_id());
        self.output
            .show(&json!({ "sessionId": session, "snapshotId": snapshot }), || {
                format!("session {}  snapshot {}\n", shown(session), shown(snapshot))
            })
    }

    fn show_state(&self) -> Outcome<()> {
        let state = self.chat.custom()?;
        self.output.show(&state, || {
            format!("{}\n", crate::output::clean(&format!("{state:#}")))
        })
    }
}

fn shown(id: Option<impl ToString>) -> String {
    id.map_or_else(|| "(not kept)".to_owned(), |id| id.to_string())
}
