//! Deleted data is in no file, however often it was forked, copied and exported before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use everturn_agent::archive::{Archive, Import};
use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, AgentSession, Artifact, Turn, custom_agent};
use everturn_ai::{FinishReason, Message, Part};
use everturn_core::{HandlerResult, Registry, Result};
use everturn_file::FileStore;
use everturn_sqlite::SqliteStore;
use serde_json::{Value, json};

const CANARY: &str = "canary-4b1d7e";

/// Puts the canary into every part of a conversation: small, large enough to be compressed, large enough to
/// be stored by its hash.
async fn sing(turn: Turn) -> HandlerResult<FinishReason> {
    let count = turn.messages().len();
    let media = format!("data:text/plain;base64,{CANARY}{}", "A".repeat(40_000));
    turn.add_message(Message::model(vec![Part::text(CANARY), Part::media(media)]));
    turn.update_custom(|custom: &mut Value| {
        *custom = json!({"secret": CANARY, "count": count, "padding": "word ".repeat(800)});
    });
    turn.send_artifact(Artifact::text("small", CANARY)).await?;
    turn.send_artifact(Artifact::text(
        "large",
        format!("{count} {}", CANARY.repeat(4_000)),
    ))
    .await?;
    Ok(FinishReason::Stop)
}

fn singer(store: Arc<dyn SessionStore>) -> Agent {
    let singer = custom_agent(&Registry::new(), "singer", |session: AgentSession| async move {
        session.run(sing).await?;
        Ok(session.result())
    });
    singer.store(store).build().unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Returns whether the canary is in a file or in the name of one.
fn is_anywhere(folder: &Path) -> bool {
    let sings = |bytes: &[u8]| {
        bytes
            .windows(CANARY.len())
            .any(|window| window == CANARY.as_bytes())
    };
    files(folder)
        .iter()
        .any(|file| sings(file.to_string_lossy().as_bytes()) || sings(&std::fs::read(file).unwrap()))
}

/// Creates a conversation of three turns and a branch, with labels and notes; then a fork, a copy and an
/// import of it. Returns the names of all sessions with the canary.
async fn spread(agent: &Agent) -> Result<Vec<String>> {
    let archive = agent.archive()?;
    let first = agent.chat().resume(CANARY).run(CANARY).await?;
    let first = first.snapshot_id().unwrap().clone();
    agent.chat().resume(CANARY).run(CANARY).await?;
    agent.chat().resume(CANARY).run("and again").await?;
    agent.chat().snapshot(first.clone()).run("another way").await?;
    archive.label(first.clone(), CANARY).await?;
    archive.annotate(first.clone(), CANARY).await?;
    archive.fork(first, "fork").await?;
    agent.chat().resume("fork").run("on its own").await?;
    archive.copy(CANARY, "copy").await?;
    let mut exported = Vec::new();
    archive.export(CANARY, &mut exported).await?;
    let how = Import::default().into_session("import");
    archive.import(exported.as_slice(), how).await?;
    Ok([CANARY, "fork", "copy", "import"].map(str::to_owned).into())
}

async fn delete_all(archive: &Archive, sessions: &[String]) -> Result<()> {
    for session in sessions {
        assert!(archive.delete_session(session.as_str()).await? > 0, "{session}");
    }
    Ok(())
}

#[tokio::test]
async fn a_compacted_database_contains_no_deleted_text() {
    for compressed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteStore::options(folder.path().join("sessions.db"));
        let options = if compressed {
            options
        } else {
            options.encoding(everturn_sqlite::Encoding::default().without_compression())
        };
        let store = options.open().await.unwrap();
        let agent = singer(Arc::new(store.clone()));
        agent.chat().resume("quiet").run("hush").await.unwrap();
        agent.archive().unwrap().delete_session("quiet").await.unwrap();
        let sessions = spread(&agent).await.unwrap();
        assert!(is_anywhere(folder.path()), "the test can see what is stored");

        delete_all(&agent.archive().unwrap(), &sessions).await.unwrap();
        store.vacuum().await.unwrap();

        assert!(!is_anywhere(folder.path()), "compressed: {compressed}");
        let found = store.verify().await.unwrap();
        assert!(found.is_clean(), "{:?}", found.problems);
        let rest = (found.snapshots, found.messages, found.documents, found.blobs);
        assert_eq!(rest, (0, 0, 0, 0), "what compression hides is gone as well");
    }
}

#[tokio::test]
async fn a_folder_contains_no_deleted_text() {
    let folder = tempfile::tempdir().unwrap();
    let agent = singer(Arc::new(FileStore::open(folder.path()).await.unwrap()));
    let sessions = spread(&agent).await.unwrap();
    assert!(is_anywhere(folder.path()), "the test can see what is stored");

    delete_all(&agent.archive().unwrap(), &sessions).await.unwrap();

    assert!(!is_anywhere(folder.path()));
}

#[tokio::test]
async fn a_fork_outlives_the_session_it_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let database = SqliteStore::open(folder.path().join("sessions.db"))
        .await
        .unwrap();
    let stores: [Arc<dyn SessionStore>; 2] = [
        Arc::new(database),
        Arc::new(FileStore::open(folder.path().join("files")).await.unwrap()),
    ];
    for store in stores {
        let agent = singer(store);
        spread(&agent).await.unwrap();
        let archive = agent.archive().unwrap();

        archive.delete_session(CANARY).await.unwrap();
        let going_on = agent.chat().resume("fork").run("still here").await.unwrap();

        assert_eq!(going_on.session_id().unwrap().as_str(), "fork");
        let state = archive.latest("fork").await.unwrap().state.unwrap();
        assert_eq!(state.messages.len(), 6);
        assert_eq!(archive.tree("copy").await.unwrap().snapshots().len(), 4);
    }
}

#[tokio::test]
async fn the_child_of_a_deleted_snapshot_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let database = SqliteStore::open(folder.path().join("sessions.db"))
        .await
        .unwrap();
    let stores: [Arc<dyn SessionStore>; 3] = [
        Arc::new(everturn_agent::store::MemoryStore::new()),
        Arc::new(database),
        Arc::new(FileStore::open(folder.path().join("files")).await.unwrap()),
    ];
    for store in stores {
        let agent = singer(store);
        let mut ids = Vec::new();
        for text in ["one", "two", "three"] {
            let reply = agent.chat().resume("s").run(text).await.unwrap();
            ids.push(reply.snapshot_id().unwrap().clone());
        }
        let archive = agent.archive().unwrap();

        assert!(archive.delete_snapshot(ids[1].clone()).await.unwrap());
        let resumed = agent.chat().snapshot(ids[2].clone()).run("four").await.unwrap();

        let row = archive.get(resumed.snapshot_id().unwrap().clone()).await.unwrap();
        assert_eq!(row.parent_id.as_ref(), Some(&ids[2]));
        assert_eq!(row.state.unwrap().messages.len(), 8);
        let line = archive.ancestors(row.snapshot_id).await.unwrap();
        assert_eq!(line.len(), 1, "the line ends where a row is gone");
        assert_eq!(line[0].parent_id.as_ref(), Some(&ids[1]));
        assert_eq!(archive.children(ids[1].clone()).await.unwrap().len(), 1);
    }
}
