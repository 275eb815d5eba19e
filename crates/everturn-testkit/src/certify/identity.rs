//! Checks how ids are assigned and which strings may be ids.

use std::sync::Arc;

use everturn_agent::store::{Detail, Precondition, SessionStore};
use everturn_agent::{SessionId, SnapshotId};
use everturn_core::{Error, Status};

use super::row::{get, put, row, save, scope};
use super::{Verdict, ensure, list_promises};

list_promises! {
    "a snapshot without an id is given one" => a_snapshot_without_an_id_is_given_one,
    "the id that the caller gives is kept" => the_requested_id_wins,
    "a snapshot needs a session and stays in it" => a_snapshot_needs_a_session_and_stays_in_it,
    "hostile ids are kept exactly or refused" => hostile_ids_are_kept_exactly_or_refused,
}

async fn a_snapshot_without_an_id_is_given_one(store: Arc<dyn SessionStore>) -> Verdict {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let saved = store
            .save(&scope(), None, Precondition::None, put(row("s", "", 1)))
            .await;
        let saved = saved
            .map_err(|error| error.to_string())?
            .ok_or("nothing was written")?;
        ensure!(!saved.snapshot_id.as_str().is_empty(), "the snapshot has no id");
        ensure!(
            get(&*store, saved.snapshot_id.as_str()).await?.is_some(),
            "the snapshot is not found under its id"
        );
        ids.push(saved.snapshot_id);
    }
    ensure!(ids[0] != ids[1], "two snapshots were given one id");
    Ok(())
}

async fn the_requested_id_wins(store: Arc<dyn SessionStore>) -> Verdict {
    let id = SnapshotId::from("asked");

    let saved = store
        .save(&scope(), Some(&id), Precondition::None, put(row("s", "other", 1)))
        .await;

    let saved = saved
        .map_err(|error| error.to_string())?
        .ok_or("nothing was written")?;
    ensure!(saved.snapshot_id == id, "saved as '{}'", saved.snapshot_id);
    ensure!(
        get(&*store, "other").await?.is_none(),
        "the mutation chose the id"
    );
    Ok(())
}

async fn a_snapshot_needs_a_session_and_stays_in_it(store: Arc<dyn SessionStore>) -> Verdict {
    let mut homeless = row("s", "a", 1);
    homeless.session_id = None;
    let id = homeless.snapshot_id.clone();
    let refused = store
        .save(&scope(), Some(&id), Precondition::None, put(homeless.clone()))
        .await;
    let status = refused.as_ref().err().map(Error::status);
    ensure!(
        status == Some(Status::InvalidArgument),
        "a snapshot without a session: {refused:?}"
    );

    save(&*store, row("s", "a", 1)).await?;
    let kept = store
        .save(&scope(), Some(&id), Precondition::None, put(homeless))
        .await;
    let session = kept
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .and_then(|row| row.session_id.clone());
    ensure!(
        session == Some(SessionId::from("s")),
        "a rewrite that names no session keeps the snapshot's: {kept:?}"
    );

    let moved = store
        .save(&scope(), Some(&id), Precondition::None, put(row("other", "a", 1)))
        .await;
    ensure!(moved.is_err(), "a snapshot moved to another session");
    Ok(())
}

async fn hostile_ids_are_kept_exactly_or_refused(store: Arc<dyn SessionStore>) -> Verdict {
    let long = "x".repeat(10_000);
    let hostile = [
        "..",
        "../up",
        "a/b",
        "/etc/passwd",
        "a\\b",
        ".hidden",
        "nul\0byte",
        "line\nbreak",
        "' OR 1=1 --",
        "%2e%2e",
        "ünïcödé",
        "👩‍🍳",
        "con",
        "a b",
        "*",
        "\u{202e}olleh",
        long.as_str(),
    ];
    for name in hostile {
        let id = SnapshotId::from(name);
        let written = row("s", name, 1);
        match store
            .save(&scope(), Some(&id), Precondition::None, put(written.clone()))
            .await
        {
            Ok(_) => {
                let read = store
                    .get(&scope(), &id, Detail::Whole)
                    .await
                    .map_err(|error| format!("{name:?}: {error}"))?;
                ensure!(
                    read.as_ref() == Some(&written),
                    "{name:?} was accepted and read as {read:?}"
                );
            }
            Err(error) => {
                ensure!(
                    error.status() == Status::InvalidArgument,
                    "{name:?} was refused with {error:?}"
                );
                let read = store.get(&scope(), &id, Detail::Whole).await;
                ensure!(
                    !matches!(read, Ok(Some(_))),
                    "{name:?} was refused and is there: {read:?}"
                );
            }
        }
        let session = SessionId::from(name);
        let inside = store
            .save(
                &scope(),
                Some(&"in".into()),
                Precondition::None,
                put(row(name, "in", 1)),
            )
            .await;
        match inside {
            Ok(_) => {
                let latest = store.latest(&scope(), &session, Detail::Metadata).await;
                ensure!(
                    matches!(latest, Ok(Some(_))),
                    "session {name:?} was accepted and not found: {latest:?}"
                );
                let deletion = everturn_agent::store::Deletion::Session(session);
                store
                    .delete(&scope(), &deletion)
                    .await
                    .map_err(|error| format!("deleting {name:?}: {error}"))?;
            }
            Err(error) => ensure!(
                error.status() == Status::InvalidArgument,
                "session {name:?} was refused with {error:?}"
            ),
        }
    }
    Ok(())
}
