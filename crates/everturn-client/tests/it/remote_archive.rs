//! The archive of a remote agent returns the same as the archive in the agent's own process.

use everturn_agent::archive::Import;
use everturn_agent::store::{MemoryStore, SessionQuery, SnapshotQuery};
use everturn_agent::{Agent, AgentSession, Archive, SNAPSHOT_NOT_FOUND, SnapshotId, custom_agent};
use everturn_ai::{FinishReason, Message};
use everturn_client::{RemoteAgent, RemoteArchive};
use everturn_core::{Registry, Result, Status};
use everturn_server::{ArchiveAccess, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Kitchen {
    dishes: u32,
}

/// An agent, and its archive in this process and over HTTP.
struct Served {
    agent: Agent<Kitchen>,
    here: Archive,
    there: RemoteArchive,
    serving: JoinHandle<Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn served(access: ArchiveAccess) -> Served {
    let registry = Registry::new();
    let agent = custom_agent(&registry, "chef", |session: AgentSession<Kitchen>| async move {
        session
            .run(|turn| async move {
                turn.update_custom(|kitchen| kitchen.dishes += 1);
                turn.add_message(Message::model("Soup."));
                Ok(FinishReason::Stop)
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let server = Server::new(&registry).archive(access);
    let server = server.bind(("127.0.0.1", 0)).await.unwrap();
    let remote: RemoteAgent = RemoteAgent::new(&format!("http://{}/agents/chef", server.address())).unwrap();
    Served {
        here: agent.archive().unwrap(),
        there: remote.archive(),
        agent,
        serving: tokio::spawn(server.run()),
    }
}

impl Served {
    async fn turns(&self, session: &str, turns: usize) -> Vec<SnapshotId> {
        let mut ids = Vec::new();
        for _ in 0..turns {
            let reply = self.agent.chat().resume(session).run("soup?").await.unwrap();
            ids.push(reply.snapshot_id().unwrap().clone());
        }
        ids
    }
}

#[tokio::test]
async fn reading_is_the_same_here_and_there() {
    let served = served(ArchiveAccess::none()).await;
    let (here, there) = (&served.here, &served.there);
    let line = served.turns("s", 3).await;
    served
        .agent
        .chat()
        .snapshot(line[0].clone())
        .run("pie?")
        .await
        .unwrap();
    served.turns("t", 1).await;
    here.label(line[1].clone(), "good").await.unwrap();

    let snapshots = SnapshotQuery::of("s".into()).oldest_first().limit(2);
    let next = here.list(&snapshots).await.unwrap().next.unwrap();
    let sessions = SessionQuery::default();

    assert_eq!(
        here.get(line[1].clone()).await.unwrap(),
        there.get(line[1].clone()).await.unwrap()
    );
    assert_eq!(here.latest("s").await.unwrap(), there.latest("s").await.unwrap());
    assert_eq!(
        here.list(&snapshots).await.unwrap(),
        there.list(&snapshots).await.unwrap()
    );
    let rest = snapshots.after(next);
    assert_eq!(here.list(&rest).await.unwrap(), there.list(&rest).await.unwrap());
    assert_eq!(
        here.sessions(&sessions).await.unwrap(),
        there.sessions(&sessions).await.unwrap()
    );
    assert_eq!(
        here.tree("s").await.unwrap().to_string(),
        there.tree("s").await.unwrap().to_string()
    );
    assert_eq!(
        here.diff(line[0].clone(), line[2].clone()).await.unwrap(),
        there.diff(line[0].clone(), line[2].clone()).await.unwrap()
    );
    assert_eq!(
        here.ancestors(line[2].clone()).await.unwrap(),
        there.ancestors(line[2].clone()).await.unwrap()
    );
    assert_eq!(
        here.children(line[0].clone()).await.unwrap(),
        there.children(line[0].clone()).await.unwrap()
    );
}

#[tokio::test]
async fn remote_changes_are_visible_locally() {
    let served = served(ArchiveAccess::everyone()).await;
    let (here, there) = (&served.here, &served.there);
    let line = served.turns("s", 3).await;

    there.label(line[0].clone(), "good").await.unwrap();
    there.label(line[0].clone(), "bad").await.unwrap();
    there.unlabel(line[0].clone(), "bad").await.unwrap();
    there.annotate(line[0].clone(), "so far").await.unwrap();
    let labelled = here.get(line[0].clone()).await.unwrap();
    there.fork(line[1].clone(), "fork").await.unwrap();
    let edited = there
        .fork_with_custom(line[1].clone(), "edited", json!({"dishes": 40}))
        .await
        .unwrap();
    let copied = there.copy("s", "copy").await.unwrap();

    assert_eq!(
        (&labelled.labels[..], labelled.note.as_deref()),
        (&["good".to_owned()][..], Some("so far"))
    );
    assert_eq!(here.latest("edited").await.unwrap(), edited);
    assert_eq!(
        edited.state.unwrap().custom.as_deref(),
        Some(&json!({"dishes": 40}))
    );
    assert_eq!(
        (copied, here.tree("copy").await.unwrap().snapshots().len()),
        (3, 3)
    );
    assert!(there.delete_snapshot(line[2].clone()).await.unwrap());
    assert!(!there.delete_snapshot(line[2].clone()).await.unwrap());
    assert_eq!(there.delete_branch(line[0].clone()).await.unwrap(), 2);
    assert_eq!(there.delete_session("copy").await.unwrap(), 3);
    assert_eq!(
        here.sessions(&SessionQuery::default()).await.unwrap().items.len(),
        2
    );
}

#[tokio::test]
async fn a_file_that_is_written_there_is_the_one_that_is_written_here_and_is_read_on_either_side() {
    let served = served(ArchiveAccess::everyone()).await;
    let (here, there) = (&served.here, &served.there);
    served.turns("s", 20).await;
    let (mut local, mut remote) = (Vec::new(), Vec::new());

    here.export("s", &mut local).await.unwrap();
    let exported = there.export("s", &mut remote).await.unwrap();
    let into = |session: &str| Import::default().into_session(session);
    let imported = there.import(local.as_slice(), into("t")).await.unwrap();
    let taken = there
        .import(local.as_slice(), Import::default())
        .await
        .unwrap_err();
    let cut = there
        .import(&local[..local.len() / 2], into("u"))
        .await
        .unwrap_err();

    assert_eq!(exported, 20);
    assert_eq!(local, remote);
    assert_eq!((imported.session_id.as_str(), imported.snapshots), ("t", 20));
    assert_eq!(taken.status(), Status::AlreadyExists);
    assert_eq!(cut.status(), Status::InvalidArgument);
    assert_eq!(here.tree("t").await.unwrap().snapshots().len(), 20);
    assert!(here.tree("u").await.unwrap_err().is(SNAPSHOT_NOT_FOUND));
}

#[tokio::test]
async fn errors_are_the_same_here_and_there() {
    let served = served(ArchiveAccess::everyone()).await;
    let (here, there) = (&served.here, &served.there);
    let line = served.turns("s", 1).await;
    let id = line[0].clone();
    let unfit = json!({"dishes": "many"});

    for (local, remote) in [
        (
            here.get("x").await.unwrap_err(),
            there.get("x").await.unwrap_err(),
        ),
        (
            here.tree("x").await.unwrap_err(),
            there.tree("x").await.unwrap_err(),
        ),
        (
            here.diff("x", "y").await.unwrap_err(),
            there.diff("x", "y").await.unwrap_err(),
        ),
        (
            here.label("x", "l").await.unwrap_err(),
            there.label("x", "l").await.unwrap_err(),
        ),
        (
            here.copy("x", "y").await.unwrap_err(),
            there.copy("x", "y").await.unwrap_err(),
        ),
        (
            here.fork(id.clone(), "s").await.unwrap_err(),
            there.fork(id.clone(), "s").await.unwrap_err(),
        ),
        (
            here.fork_with_custom(id.clone(), "y", unfit.clone())
                .await
                .unwrap_err(),
            there.fork_with_custom(id.clone(), "y", unfit).await.unwrap_err(),
        ),
        (
            here.export("x", Vec::new()).await.unwrap_err(),
            there.export("x", Vec::new()).await.unwrap_err(),
        ),
    ] {
        assert_eq!(local.status(), remote.status());
        assert_eq!(
            local.public_message(),
            Some(remote.message()),
            "{local} and {remote}"
        );
        assert_eq!(
            local.is(SNAPSHOT_NOT_FOUND),
            remote.is(SNAPSHOT_NOT_FOUND),
            "{local}"
        );
    }
}

#[tokio::test]
async fn a_server_that_allows_no_changes_reports_it() {
    let served = served(ArchiveAccess::when(|_| false)).await;
    served.turns("s", 1).await;

    let refused = served.there.delete_session("s").await.unwrap_err();

    assert_eq!(refused.status(), Status::PermissionDenied);
    assert!(served.here.latest("s").await.is_ok());
}
