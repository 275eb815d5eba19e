//! Commands that move whole sessions: export, import, copy.

use std::path::Path;

use clap::Args;
use everturn_agent::SessionId;
use everturn_agent::archive::{Archive, Import, Imported, Tenants, UsageRequest};
use everturn_agent::store::{MAX_PAGE, SessionQuery};
use everturn_core::{Error, Status};
use serde_json::json;
use tokio::fs::{self, File};
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};

use crate::arguments::Selection;
use crate::failure::{Exit, Failure, Outcome, about_file};
use crate::output::{Output, bytes_bar, bytes_spinner, spinner};
use crate::server::Server;
use crate::store::Store;
use crate::target::{AnyArchive, on, scope};
use crate::tenants;

/// The buffer between an export and an import, in bytes.
const IN_FLIGHT: usize = 64 * 1024;

#[derive(Debug, Args)]
pub(super) struct CopyArguments {
    /// The session
    #[arg(required_unless_present = "all")]
    session: Option<String>,
    /// The id of the copy; by default the same id, in another store
    #[arg(value_name = "ID", required_unless_present_any = ["to", "all"])]
    copy: Option<String>,
    #[arg(long, value_name = "STORE")]
    #[arg(
        help = "Copy to this store: sqlite:PATH, file:DIR or postgres:URL; from a server, --principal or --tenant select the tenant there"
    )]
    to: Option<String>,
    /// Copy every session: your own of a server's agent, of the selected tenant, or of all tenants of a store
    #[arg(long, requires = "to", conflicts_with = "session")]
    all: bool,
    /// Replace sessions with the same id in the other store
    #[arg(long, requires = "to")]
    replace: bool,
}

impl CopyArguments {
    /// Returns the companion action that the command calls.
    pub(super) fn action(&self) -> &'static str {
        if self.to.is_some() { "export" } else { "copy" }
    }

    /// Returns the selection on a server. With `--to`, the options select the tenant of the copies, and the
    /// token selects that of the originals.
    pub(super) fn source(&self, server: &Server, selection: &Selection) -> Outcome<Selection> {
        let mut source = selection.clone();
        if self.to.is_some() {
            if server.has_token() && !selection.names_tenant() {
                return Err(Failure::wrong("the copies have no tenant").or_next(
                    "name the tenant in the other store with --principal or --tenant: EVERTURN_TOKEN selects that of the server only",
                ));
            }
            (source.tenant, source.principal) = (None, None);
        }
        Ok(source)
    }

    /// Returns whether the sessions of all tenants of a store are copied.
    pub(super) fn moves_all(&self, selection: &Selection) -> bool {
        self.all && !selection.names_tenant()
    }
}

pub(super) async fn copy(
    archive: &AnyArchive,
    arguments: &CopyArguments,
    selection: &Selection,
    output: Output,
) -> Outcome {
    let sign_of_life = spinner(output, "copying");
    let copied = if let Some(to) = &arguments.to {
        copy_elsewhere(archive, arguments, &Store::parse(to)?, selection).await
    } else {
        let (session, copy) = (arguments.session.as_deref(), arguments.copy.as_deref());
        let (session, copy) = (session.unwrap_or_default(), copy.unwrap_or_default());
        let snapshots = on!(archive, archive => archive.copy(session, copy).await);
        snapshots.map_err(Failure::from).map(|snapshots| Copied {
            session: Some(copy.into()),
            sessions: 1,
            snapshots,
            ..Copied::default()
        })
    };
    sign_of_life.finish_and_clear();
    report(copied?, arguments, output)
}

/// Copies all tenants of a store to another, including their usage.
pub(super) async fn copy_tenants(from: &Store, arguments: &CopyArguments, output: Output) -> Outcome {
    let to = Store::parse(arguments.to.as_deref().unwrap_or_default())?;
    let tenants = Tenants::of(from.sessions().await?);
    let all = tenants::all(&tenants).await?;
    if all.is_empty() {
        return Err(Error::not_found(format!("there is nothing to copy in {from}")).into());
    }
    let sign_of_life = spinner(output, "copying");
    to.create().await?;
    let there = Tenants::of(to.sessions().await?);
    let mut copied = Copied::default();
    for tenant in all {
        let (here, there) = (tenants.archive(tenant.clone()), there.archive(tenant));
        let sessions = copy_all(
            &AnyArchive::Stored(here.clone()),
            &there,
            &arguments.how(),
            &mut copied,
        )
        .await?;
        here.copy_usage(&there, &sessions).await?;
        copied.tenants += 1;
    }
    sign_of_life.finish_and_clear();
    report(copied, arguments, output)
}

fn report(copied: Copied, arguments: &CopyArguments, output: Output) -> Outcome {
    let Copied {
        session,
        tenants,
        sessions,
        snapshots,
    } = copied;
    let json = match session {
        Some(session) => json!({ "sessionId": session, "snapshots": snapshots }),
        None if tenants > 0 => json!({ "tenants": tenants, "sessions": sessions, "snapshots": snapshots }),
        None => json!({ "sessions": sessions, "snapshots": snapshots }),
    };
    output.show(&json, || {
        let count = |number: u64, of: &str| format!("{number} {of}{}", if number == 1 { "" } else { "s" });
        if arguments.all {
            let of = match tenants {
                0 => String::new(),
                tenants => format!(" of {}", count(tenants, "tenant")),
            };
            format!("{sessions} sessions with {snapshots} snapshots{of} copied\n")
        } else {
            format!("{snapshots} snapshots copied\n")
        }
    })?;
    Ok(Exit::Done)
}

/// A report of the copy.
#[derive(Default)]
struct Copied {
    /// The id of the copy, for one session.
    session: Option<SessionId>,
    /// The number of tenants, for a whole store.
    tenants: u64,
    sessions: u64,
    snapshots: u64,
}

impl Copied {
    fn add(&mut self, imported: &Imported) {
        self.sessions += 1;
        self.snapshots += imported.snapshots;
    }
}

impl CopyArguments {
    fn how(&self) -> Import {
        let mut how = Import::default();
        if let Some(copy) = &self.copy {
            how = how.into_session(copy.as_str());
        }
        if self.replace {
            how = how.replacing();
        }
        how
    }
}

/// Copies one session, or all of a tenant, to another store.
async fn copy_elsewhere(
    from: &AnyArchive,
    arguments: &CopyArguments,
    store: &Store,
    selection: &Selection,
) -> Outcome<Copied> {
    store.create().await?;
    let to = store.archive(scope(selection)).await?;
    let how = arguments.how();
    let mut copied = Copied::default();
    if let Some(session) = &arguments.session {
        let imported = send(from, session, &to, how).await?;
        copied.add(&imported);
        copied.session = Some(imported.session_id);
        return Ok(copied);
    }
    let sessions = copy_all(from, &to, &how, &mut copied).await?;
    match from {
        AnyArchive::Stored(from) => from.copy_usage(&to, &sessions).await?,
        AnyArchive::Remote(_) if sessions.is_empty() => {
            return Err(Error::not_found("there are no sessions to copy").into());
        }
        AnyArchive::Remote(from) => {
            for session in sessions {
                let request = UsageRequest {
                    session_id: Some(session.clone()),
                };
                let report = from.usage(&request).await?;
                to.enter_usage(&session, &report).await?;
            }
        }
    }
    Ok(copied)
}

/// Copies all sessions of a tenant and returns their ids.
async fn copy_all(
    from: &AnyArchive,
    to: &Archive,
    how: &Import,
    copied: &mut Copied,
) -> Outcome<Vec<SessionId>> {
    let mut query = SessionQuery::default();
    query.limit = MAX_PAGE;
    let mut sessions = Vec::new();
    loop {
        let page = on!(from, from => from.sessions(&query).await)?;
        for session in page.items {
            let session = session.session_id;
            let imported = send(from, session.as_str(), to, how.clone()).await?;
            copied.add(&imported);
            sessions.push(session);
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(sessions),
        }
    }
}

/// Exports a session and imports it elsewhere at the same time.
async fn send(from: &AnyArchive, session: &str, to: &Archive, how: Import) -> Outcome<Imported> {
    let (mut writer, reader) = tokio::io::duplex(IN_FLIGHT);
    let export = async {
        let exported = on!(from, from => from.export(session, &mut writer).await);
        drop(writer);
        exported
    };
    let import = async {
        let mut reader = BufReader::new(reader);
        let imported = to.import(&mut reader, how).await;
        // The export is awaited in any case, so that its own error is reported.
        let _ = tokio::io::copy_buf(&mut reader, &mut tokio::io::sink()).await;
        imported
    };
    let (exported, imported) = tokio::join!(export, import);
    exported?;
    imported.map_err(|error| {
        let failure = Failure::from(error.context(format_args!("session '{session}'")));
        match failure.status() {
            Some(Status::AlreadyExists) => {
                failure.or_next("replace the other session with --replace, or choose another id for the copy")
            }
            _ => failure,
        }
    })
}

pub(super) async fn export(
    archive: &AnyArchive,
    session: &str,
    file: Option<&Path>,
    output: Output,
) -> Outcome {
    let Some(path) = file else {
        // The lines are already JSON.
        on!(archive, archive => archive.export(session, tokio::io::stdout()).await)?;
        return Ok(Exit::Done);
    };
    // Written under a temporary name: a file with the final name is always complete.
    let mut partial = path.as_os_str().to_owned();
    partial.push(".part");
    let partial = Path::new(&partial);
    let written = write(archive, session, partial, output).await;
    let snapshots = match written {
        Ok(snapshots) => snapshots,
        Err(failure) => {
            let _ = fs::remove_file(partial).await;
            return Err(failure);
        }
    };
    fs::rename(partial, path).await.map_err(about_file(path))?;
    output.show(
        &json!({ "sessionId": session, "snapshots": snapshots, "file": path }),
        || format!("{snapshots} snapshots written to {}\n", path.display()),
    )?;
    Ok(Exit::Done)
}

async fn write(archive: &AnyArchive, session: &str, path: &Path, output: Output) -> Outcome<u64> {
    let file = File::create(path).await.map_err(about_file(path))?;
    let bar = bytes_spinner(output, "exporting");
    let mut file = BufWriter::new(bar.wrap_async_write(file));
    let exported = on!(archive, archive => archive.export(session, &mut file).await);
    bar.finish_and_clear();
    let snapshots = exported?;
    file.flush().await.map_err(about_file(path))?;
    Ok(snapshots)
}

pub(super) async fn import(
    archive: &AnyArchive,
    file: &Path,
    into: Option<String>,
    replace: bool,
    output: Output,
) -> Outcome {
    let mut how = Import::default();
    if let Some(session) = into {
        how = how.into_session(session);
    }
    if replace {
        how = how.replacing();
    }
    let imported = if file == Path::new("-") {
        let lines = BufReader::new(tokio::io::stdin());
        on!(archive, archive => archive.import(lines, how).await)
    } else {
        let opened = File::open(file).await.map_err(about_file(file));
        let opened =
            opened.map_err(|failure| failure.or_next("name a file that `everturn sessions export` wrote"))?;
        let size = opened.metadata().await.map_err(about_file(file))?.len();
        let bar = bytes_bar(output, "importing", size);
        let lines = BufReader::new(bar.wrap_async_read(opened));
        let imported = on!(archive, archive => archive.import(lines, how).await);
        bar.finish_and_clear();
        imported
    };
    let imported = imported.map_err(|error| {
        let failure = Failure::from(error);
        match failure.status() {
            Some(Status::AlreadyExists) => failure.or_next(
                "import under another id with --as ID, or replace the existing session with --replace",
            ),
            _ => failure,
        }
    })?;
    output.show(&imported, || {
        let (session, snapshots) = (&imported.session_id, imported.snapshots);
        format!(
            "{snapshots} snapshots imported as {}\n",
            crate::output::clean(session.as_str())
        )
    })?;
    Ok(Exit::Done)
}
