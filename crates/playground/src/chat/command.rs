//! Parsing a typed line.

use everturn::{Error, Result};

/// The meaning of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A message to the agent.
    Say(String),
    /// An empty line.
    Nothing,
    Agents,
    Agent(String),
    New,
    History,
    /// Resumes a session; without an argument, lists all.
    Resume(Option<String>),
    Branch(String),
    Detach(String),
    Wait,
    State,
    Help,
    Quit,
}

/// Every command with its description.
pub(crate) const HELP: [(&str, &str); 11] = [
    ("/agents", "who there is to talk to"),
    ("/agent NAME", "talk to another agent"),
    ("/new", "begin a new conversation"),
    ("/history", "the snapshots of this conversation, also /snapshots"),
    ("/branch ID", "continue from an older snapshot, by number or id"),
    (
        "/resume ID",
        "take up a conversation again, by number or id; without an id, list them, the latest first",
    ),
    (
        "/detach TEXT",
        "say something and let the agent work in the background",
    ),
    ("/wait", "wait for what is in the background"),
    ("/state", "what the agent keeps beside the messages"),
    ("/help", "this list"),
    ("/quit", "leave"),
];

impl Command {
    /// Parses a line.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a command that does not exist or lacks its argument.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let line = line.trim();
        if !line.starts_with('/') {
            return Ok(if line.is_empty() {
                Self::Nothing
            } else {
                Self::Say(line.to_owned())
            });
        }
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = Some(argument.trim().to_owned()).filter(|argument| !argument.is_empty());
        let needed = |what: &str, argument: Option<String>| {
            argument.ok_or_else(|| Error::invalid_argument(format!("{name} needs {what}")))
        };
        match name {
            "/agents" => Ok(Self::Agents),
            "/agent" => needed("the name of an agent", argument).map(Self::Agent),
            "/new" => Ok(Self::New),
            "/history" | "/snapshots" => Ok(Self::History),
            "/resume" => Ok(Self::Resume(argument)),
            "/branch" => needed("the number or id of a snapshot", argument).map(Self::Branch),
            "/detach" => needed("something to work on", argument).map(Self::Detach),
            "/wait" => Ok(Self::Wait),
            "/state" => Ok(Self::State),
            "/help" => Ok(Self::Help),
            "/quit" | "/exit" => Ok(Self::Quit),
            _ => Err(Error::invalid_argument(format!(
                "there is no command {name}; /help lists them"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_a_slash_is_a_message() {
        assert_eq!(
            Command::parse("  And leeks? ").unwrap(),
            Command::Say("And leeks?".to_owned())
        );
        assert_eq!(Command::parse(" \t").unwrap(), Command::Nothing);
    }

    #[test]
    fn the_rest_of_the_line_is_the_argument_of_a_command() {
        assert_eq!(
            Command::parse("/detach  Plan the week ").unwrap(),
            Command::Detach("Plan the week".to_owned())
        );
        assert_eq!(Command::parse("/resume").unwrap(), Command::Resume(None));
    }

    #[test]
    fn invalid_commands_are_refused_with_advice() {
        let refusal = |line: &str| Command::parse(line).unwrap_err().message().to_owned();

        assert!(refusal("/branch").contains("needs"));
        assert!(refusal("/dance").contains("/help"));
    }

    #[test]
    fn every_command_in_the_help_is_understood() {
        for (usage, _) in HELP {
            assert!(Command::parse(usage).is_ok(), "{usage}");
        }
    }
}
