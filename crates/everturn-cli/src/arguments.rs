//! The command line arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::chat::ChatArguments;
use crate::flow::FlowArguments;
use crate::new::NewArguments;
use crate::runs::RunsArguments;
use crate::sessions::SessionsArguments;
use crate::tenants::TenantsArguments;

/// The text after the help.
const AFTER_HELP: &str = "\
Environment:
  EVERTURN_URL    the server, in place of --url
  EVERTURN_STORE  the store, in place of --store
  EVERTURN_TOKEN  a token, sent to the server as 'Authorization: Bearer TOKEN'
  NO_COLOR        no colours, also on a terminal

Exit codes:
  0  done
  1  any other failure
  2  wrong arguments, or an invalid request
  3  no such agent, flow, session, snapshot, file or store
  4  not allowed: no token, a wrong one, or not enough rights
  5  a conflict, such as an existing session of that id
  6  the server or the store is unavailable; retry later
  7  a negative result: problems found, a difference with --exit-code, a failed or aborted run
  8  the agent waits for an answer
";

/// Chat with agents, manage sessions and background runs, and create projects.
#[derive(Debug, Parser)]
#[command(name = "everturn", version, after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[arg(long, global = true, value_name = "URL", conflicts_with = "store")]
    #[arg(help = "The address of a server; by default EVERTURN_URL, else http://127.0.0.1:8080")]
    pub(crate) url: Option<String>,

    #[arg(long, global = true, value_name = "STORE")]
    #[arg(help = "A store: sqlite:PATH, file:DIR or postgres:URL; by default EVERTURN_STORE")]
    pub(crate) store: Option<String>,

    /// Print JSON: one value, or one value per line for streams and lists of events
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    TargetCommand(TargetCommand),
    /// Create a project: an agent, a test, a Dockerfile
    New(NewArguments),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages to a folder
    Man {
        /// The folder, which must exist
        folder: PathBuf,
    },
}

/// The commands that use a server or a store.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// Chat with an agent: one message, or line by line
    Chat(ChatArguments),
    /// List the agents of a server
    Agents,
    /// Run a flow; without a name, list the flows of a server
    Run(FlowArguments),
    /// Manage stored sessions
    Sessions(SessionsArguments),
    /// Manage background runs
    Runs(RunsArguments),
    /// List the tenants of a store, or of a server for its operators
    Tenants(TenantsArguments),
}

/// Selects the sessions and runs of an agent or tenant.
#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// The agent, on a server with several
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// The tenant, in a store, as listed by `everturn tenants`; by default that of servers without identified
    /// callers
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tenant: Option<String>,

    /// The id of the principal whose tenant is used, in a store
    #[arg(long, global = true, value_name = "ID", conflicts_with = "tenant")]
    pub(crate) principal: Option<String>,

    /// All tenants of a store, for list, copy --all and verify
    #[arg(long, global = true, conflicts_with_all = ["tenant", "principal"])]
    pub(crate) all_tenants: bool,
}

impl Selection {
    /// Returns whether one tenant is selected.
    pub(crate) fn names_tenant(&self) -> bool {
        self.tenant.is_some() || self.principal.is_some()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_may_stand_behind_the_command() {
        let typed = [
            "everturn",
            "sessions",
            "list",
            "--store",
            "file:sessions",
            "--json",
        ];

        let arguments = Arguments::try_parse_from(typed).unwrap();

        assert_eq!(arguments.store.as_deref(), Some("file:sessions"));
        assert!(arguments.json);
    }

    #[test]
    fn a_server_and_a_store_at_once_are_refused() {
        let typed = ["everturn", "--url", "http://a", "--store", "file:b", "agents"];

        assert!(Arguments::try_parse_from(typed).is_err());
    }
}
