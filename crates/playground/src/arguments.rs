//! The command line arguments.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

/// The text below the help.
const AFTER_HELP: &str = "\
With cargo, options go behind two dashes: cargo run --release -- chat

Without --model, the model is EVERTURN_MODEL, else one of the first provider that the environment tells of:
  OPENAI_API_KEY      and OPENAI_BASE_URL, OPENAI_API
  ANTHROPIC_API_KEY   and ANTHROPIC_BASE_URL
  GEMINI_API_KEY      or GOOGLE_API_KEY, and GOOGLE_GEMINI_BASE_URL
  OLLAMA_HOST
else it is 'offline', a handful of rules.
";

/// Serves demo agents and a page to talk to them, or lets you talk to them on the terminal
#[derive(Debug, PartialEq, Parser)]
#[command(name = "playground", after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Where to listen; by default 127.0.0.1:8080, or any free port if that one is taken
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) addr: Option<SocketAddr>,

    /// The file in which conversations are kept; streams are kept in a file beside it
    #[arg(long, global = true, value_name = "PATH", default_value = "everturn.db")]
    pub(crate) database: PathBuf,

    /// The model: openai/gpt-5-mini, anthropic/NAME, gemini/NAME, ollama/NAME or offline
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) model: Option<String>,

    /// Open the page in the browser
    #[arg(long)]
    pub(crate) open: bool,

    /// Print requests to paste into a shell, and exit
    #[arg(long)]
    pub(crate) curl: bool,

    /// Serve only callers that send this bearer token
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,

    /// Serve everybody on an address that other machines reach
    #[arg(long)]
    pub(crate) allow_everyone: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Command {
    /// Talk to the agents on the terminal instead
    Chat,
}

impl Arguments {
    /// Rejects options of serving in the subcommands. The parser itself rejects them only after the
    /// subcommand.
    pub(crate) fn checked(self) -> Result<Self, clap::Error> {
        let is_serving =
            self.addr.is_some() || self.open || self.curl || self.token.is_some() || self.allow_everyone;
        if is_serving && self.command == Some(Command::Chat) {
            let advice = "a chat serves nothing: leave out '--addr', '--open', '--curl', '--token' and '--allow-everyone'";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, advice));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, clap::Error> {
        let words = ["playground"].into_iter().chain(line.split_whitespace());
        Arguments::try_parse_from(words).and_then(Arguments::checked)
    }

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn without_a_word_it_serves_at_the_usual_places() {
        let expected = Arguments {
            addr: None,
            database: "everturn.db".into(),
            model: None,
            open: false,
            curl: false,
            token: None,
            allow_everyone: false,
            command: None,
        };

        assert_eq!(parsed("").unwrap(), expected);
    }

    #[test]
    fn options_may_stand_before_and_after_the_command() {
        let expected = Arguments {
            addr: None,
            database: "a.db".into(),
            model: Some("ollama/qwen3".to_owned()),
            open: false,
            curl: false,
            token: None,
            allow_everyone: false,
            command: Some(Command::Chat),
        };

        assert_eq!(
            parsed("chat --database a.db --model ollama/qwen3").unwrap(),
            expected
        );
        assert_eq!(
            parsed("--model=ollama/qwen3 --database=a.db chat").unwrap(),
            expected
        );
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for wrong in [
            "--port 1",
            "--addr nowhere",
            "--addr",
            "dance",
            "chat chat",
            "chat --addr [::1]:0",
            "--addr [::1]:0 chat",
            "chat --open",
            "--open chat",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
