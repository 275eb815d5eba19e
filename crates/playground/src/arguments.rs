//! Parsing the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::prelude::*;

/// The help text.
pub(crate) const HELP: &str = "\
usage: playground [--addr ADDRESS] [--database PATH] [--model NAME] [--open] [--curl]
       playground chat [--database PATH] [--model NAME]

Serves demo agents and a page to talk to them, or lets you talk to them on the terminal. With
cargo, options go behind two dashes: cargo run --release -- chat

  --addr ADDRESS    where to listen, such as 127.0.0.1:0 for any free port; by default
                    127.0.0.1:8080, or a free port if that one is taken
  --database PATH   the file in which conversations are kept; by default everturn.db. Streams are
                    kept in a file beside it
  --model NAME      the model to ask, such as openai/gpt-5-mini, anthropic/NAME, gemini/NAME,
                    ollama/NAME or offline; by default EVERTURN_MODEL, else the first provider that
                    the environment tells of: OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_API),
                    ANTHROPIC_API_KEY (and ANTHROPIC_BASE_URL), GEMINI_API_KEY or GOOGLE_API_KEY
                    (and GOOGLE_GEMINI_BASE_URL), OLLAMA_HOST; else offline, a handful of rules
  --open            open the page in the browser
  --curl            print requests to paste into a shell
  --help            print this
";

/// The default database, in the current folder.
const DATABASE: &str = "everturn.db";

/// The requested action.
#[derive(Debug, PartialEq)]
pub(crate) enum Mode {
    Help,
    /// Serves at an address; at the default one if none is given.
    Serve {
        address: Option<SocketAddr>,
        database: PathBuf,
        model: Option<String>,
        /// Whether to open the page in the browser.
        open: bool,
        /// Whether to print requests.
        curl: bool,
    },
    Chat {
        database: PathBuf,
        model: Option<String>,
    },
}

pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Mode, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut address = None;
    let mut database = PathBuf::from(DATABASE);
    let mut model = None;
    let (mut is_chat, mut open, mut curl) = (false, false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("addr") => address = Some(parser.value()?.parse()?),
            Long("database") => database = parser.value()?.into(),
            Long("model") => model = Some(parser.value()?.string()?),
            Long("open") => open = true,
            Long("curl") => curl = true,
            Long("help") | Short('h') => return Ok(Mode::Help),
            Value(name) if name == "chat" && !is_chat => is_chat = true,
            other => return Err(other.unexpected()),
        }
    }
    match (is_chat, address) {
        (true, Some(_)) => Err("a chat listens nowhere: leave out '--addr'".into()),
        (true, None) if open || curl => Err("a chat serves nothing: leave out '--open' and '--curl'".into()),
        (true, None) => Ok(Mode::Chat { database, model }),
        (false, address) => Ok(Mode::Serve {
            address,
            database,
            model,
            open,
            curl,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Mode, lexopt::Error> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn without_a_word_it_serves_at_the_usual_places() {
        let expected = Mode::Serve {
            address: None,
            database: "everturn.db".into(),
            model: None,
            open: false,
            curl: false,
        };

        assert_eq!(parsed("").unwrap(), expected);
    }

    #[test]
    fn options_may_stand_before_and_after_the_command() {
        let expected = Mode::Chat {
            database: "a.db".into(),
            model: Some("ollama/qwen3".to_owned()),
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
            "chat --open",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
