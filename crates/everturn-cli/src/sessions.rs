//! `everturn sessions`.

mod changing;
mod moving;
mod reading;
mod verifying;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use everturn_agent::archive::Tenants;

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::target::{Access, Target};
use crate::tenants;

#[derive(Debug, Args)]
pub(crate) struct SessionsArguments {
    #[command(flatten)]
    selection: Selection,

    #[command(subcommand)]
    command: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List sessions, most recent first
    List {
        /// The number of sessions
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        limit: usize,
        /// All sessions
        #[arg(long, conflicts_with = "limit")]
        all: bool,
    },
    /// Print a session at its latest snapshot, or at another
    Show {
        /// The session
        #[arg(required_unless_present = "snapshot")]
        session: Option<String>,
        /// A snapshot, of any session
        #[arg(long, value_name = "ID", conflicts_with = "session")]
        snapshot: Option<String>,
    },
    /// Print the snapshots of a session as a tree
    Tree {
        /// The session
        session: String,
    },
    /// Compare two snapshots: messages, state, artifacts
    Diff {
        /// The first snapshot
        left: String,
        /// The second snapshot
        right: String,
        /// Exit with 7 if there is a difference
        #[arg(long)]
        exit_code: bool,
    },
    /// Create a session with the state of a snapshot
    Fork {
        /// The snapshot
        snapshot: String,
        /// The id of the new session
        session: String,
        /// The custom state of the new session, instead of the snapshot's
        #[arg(long, value_name = "JSON")]
        custom: Option<String>,
    },
    /// Label a snapshot, or add a note to it
    Label(changing::LabelArguments),
    /// Delete a session, a snapshot or a branch permanently
    Delete(changing::DeleteArguments),
    /// Export a session to a file of JSON lines
    Export {
        /// The session
        session: String,
        /// The file; standard output without it
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import a session from a file written by `export`
    Import {
        /// The file; '-' is standard input
        file: PathBuf,
        /// Import under another id
        #[arg(long = "as", value_name = "ID")]
        into: Option<String>,
        /// Replace the session of that id
        #[arg(long)]
        replace: bool,
    },
    /// Copy a session with all its snapshots, under another id or to another store
    Copy(moving::CopyArguments),
    /// Verify a whole store, or one session: its snapshots, and whether models accept its conversations
    Verify {
        /// The session; without it, the whole store
        session: Option<String>,
        /// Add a snapshot with a repaired conversation where models would reject the stored one; needs
        /// --store
        #[arg(long = "mend")]
        repair: bool,
    },
}

impl SessionsCommand {
    fn access(&self) -> Access {
        match self {
            Self::List { .. }
            | Self::Show { .. }
            | Self::Tree { .. }
            | Self::Diff { .. }
            | Self::Verify { .. } => Access::Read,
            Self::Fork { .. } => Access::Change("fork"),
            Self::Label(_) => Access::Change("label"),
            Self::Delete(_) => Access::Change("delete"),
            Self::Export { .. } => Access::Change("export"),
            Self::Import { .. } => Access::Change("import"),
            Self::Copy(copy) => Access::Change(copy.action()),
        }
    }
}

pub(crate) async fn run(arguments: SessionsArguments, target: &Target, output: Output) -> Outcome {
    let SessionsArguments { selection, command } = arguments;
    match (&command, target) {
        (
            SessionsCommand::Verify {
                session: None,
                repair,
            },
            _,
        ) => {
            return verifying::store(target, &selection, *repair, output).await;
        }
        (SessionsCommand::Import { .. }, Target::Store(store)) => store.create().await?,
        (SessionsCommand::Copy(copy), Target::Store(store)) if copy.moves_all(&selection) => {
            return moving::copy_tenants(store, copy, output).await;
        }
        (SessionsCommand::List { limit, all }, Target::Store(store)) if selection.all_tenants => {
            let limit = if *all { usize::MAX } else { *limit };
            return reading::list_all(&Tenants::of(store.sessions().await?), limit, output).await;
        }
        (_, Target::Store(_)) if selection.all_tenants => {
            return Err(Failure::wrong("--all-tenants is for list, copy --all and verify")
                .or_next("name a tenant with --principal or --tenant"));
        }
        _ => {}
    }
    let source = match (&command, target) {
        (SessionsCommand::Copy(copy), Target::Server(server)) => copy.source(server, &selection)?,
        _ => selection.clone(),
    };
    let archive = target.archive(&source, command.access()).await?;
    match command {
        SessionsCommand::List { limit, all } => {
            let limit = if all { usize::MAX } else { limit };
            let found = reading::list(&archive, limit, output).await?;
            if found == 0
                && let Target::Store(store) = target
                && !tenants::all(&Tenants::of(store.sessions().await?))
                    .await?
                    .is_empty()
            {
                output
                    .remark("The store has sessions of other tenants: `everturn tenants`, or --all-tenants.");
            }
            Ok(Exit::Done)
        }
        SessionsCommand::Show { session, snapshot } => {
            reading::show(&archive, session, snapshot, output).await
        }
        SessionsCommand::Tree { session } => reading::tree(&archive, &session, output).await,
        SessionsCommand::Diff {
            left,
            right,
            exit_code,
        } => reading::diff(&archive, &left, &right, exit_code, output).await,
        SessionsCommand::Fork {
            snapshot,
            session,
            custom,
        } => changing::fork(&archive, &snapshot, &session, custom.as_deref(), output).await,
        SessionsCommand::Label(label) => changing::label(&archive, &label, output).await,
        SessionsCommand::Delete(delete) => changing::delete(&archive, &delete, output).await,
        SessionsCommand::Copy(copy) => moving::copy(&archive, &copy, &selection, output).await,
        SessionsCommand::Export {
            session,
            output: file,
        } => moving::export(&archive, &session, file.as_deref(), output).await,
        SessionsCommand::Import { file, into, replace } => {
            moving::import(&archive, &file, into, replace, output).await
        }
        SessionsCommand::Verify { session, repair } => {
            verifying::session(&archive, &session.unwrap_or_default(), repair, output).await
        }
    }
}
