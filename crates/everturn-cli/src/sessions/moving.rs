//! Commands that move whole sessions: export, import, copy.

use std::path::Path;

use everturn_agent::archive::Import;
use serde_json::json;
use tokio::fs::{self, File};
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};

use crate::archive::{AnyArchive, on};
use crate::failure::{Exit, Failure, Outcome, about_file};
use crate::output::Output;
use crate::progress;

pub(super) async fn copy(archive: &AnyArchive, session: &str, to: &str, output: Output) -> Outcome {
    let sign_of_life = progress::spinner(output, "copying");
    let copied = on!(archive, archive => archive.copy(session, to).await);
    sign_of_life.finish_and_clear();
    let snapshots = copied?;
    output.show(&json!({ "sessionId": to, "snapshots": snapshots }), || {
        format!("{snapshots} snapshots copied\n")
    })?;
    Ok(Exit::Done)
}

pub(super) async fn export(
    archive: &AnyArchive,
    session: &str,
    file: Option<&Path>,
    output: Output,
) -> Outcome {
    let Some(path) = file else {
        // The lines are JSON already.
        on!(archive, archive => archive.export(session, tokio::io::stdout()).await)?;
        return Ok(Exit::Done);
    };
    // Under another name until it is complete: a file of the right name is never a part of an export.
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
    let bar = progress::bytes_spinner(output, "exporting");
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
        let bar = progress::bytes_bar(output, "importing", size);
        let lines = BufReader::new(bar.wrap_async_read(opened));
        let imported = on!(archive, archive => archive.import(lines, how).await);
        bar.finish_and_clear();
        imported
    };
    let imported = imported.map_err(|error| {
        let failure = Failure::from(error);
        match failure.status() {
            Some(everturn_core::Status::AlreadyExists) => failure.or_next(
                "import under another id with --as ID, or put it in the place of the other with --replace",
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
