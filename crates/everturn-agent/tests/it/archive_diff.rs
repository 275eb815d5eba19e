//! The difference between two snapshots.

use everturn_agent::archive::ArtifactChange;
use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, Artifact, SnapshotId, Turn};
use everturn_ai::Message;
use serde_json::json;

use crate::support::{handling, said};

/// Keeps what was said as its custom state and as an artifact of that name.
fn scribe() -> Agent {
    handling("scribe", |turn: Turn| async move {
        let said = said(&turn);
        turn.add_message(Message::model(format!("re: {said}")));
        turn.update_custom(|custom| custom["last"] = json!(said));
        if let Some(name) = said.strip_prefix("make ") {
            turn.send_artifact(Artifact::text(name, turn.messages().len().to_string()))
                .await?;
        }
        if said == "nameless" {
            turn.send_artifact(Artifact::unnamed("x")).await?;
        }
        if said == "throw away" {
            turn.session().set_artifacts(Vec::new());
        }
        Ok(())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

async fn go_on(agent: &Agent, from: &SnapshotId, texts: &[&str]) -> SnapshotId {
    let mut id = from.clone();
    for text in texts {
        let reply = agent.chat().snapshot(id).run(*text).await.unwrap();
        id = reply.snapshot_id().unwrap().clone();
    }
    id
}

async fn root(agent: &Agent) -> SnapshotId {
    let reply = agent.chat().resume("s").run("make menu").await.unwrap();
    reply.snapshot_id().unwrap().clone()
}

#[tokio::test]
async fn branches_differ_from_where_they_part() {
    let agent = scribe();
    let root = root(&agent).await;
    let left = go_on(&agent, &root, &["soup"]).await;
    let right = go_on(&agent, &root, &["pie", "make list"]).await;
    let archive = agent.archive().unwrap();

    let difference = archive.diff(left.clone(), right.clone()).await.unwrap();

    let texts = |messages: &[Message]| -> Vec<String> {
        messages
            .iter()
            .map(|message| message.text().into_owned())
            .collect()
    };
    assert_eq!(difference.common, 2);
    assert_eq!(texts(&difference.only_left), ["soup", "re: soup"]);
    assert_eq!(
        texts(&difference.only_right),
        ["pie", "re: pie", "make list", "re: make list"]
    );
    assert_eq!(
        serde_json::to_value(&difference.custom).unwrap(),
        json!([{"op": "replace", "path": "/last", "value": "make list"}])
    );
    assert_eq!(
        difference.artifacts,
        [ArtifactChange::Added(Artifact::text("list", "6"))]
    );
    let expected = format!(
        "- {left}\n+ {right}\n\
         messages: 2 in common\n  \
           - user: soup\n  \
           - model: re: soup\n  \
           + user: pie\n  \
           + model: re: pie\n  \
           + user: make list\n  \
           + model: re: make list\n\
         custom state:\n  \
           ~ /last \"make list\"\n\
         artifacts:\n  \
           + list\n"
    );
    assert_eq!(difference.to_string(), expected);
}

#[tokio::test]
async fn artifacts_are_added_removed_and_changed() {
    let agent = scribe();
    let root = root(&agent).await;
    let left = go_on(&agent, &root, &["nameless", "make plan"]).await;
    let right = go_on(&agent, &left, &["throw away", "nameless", "make plan"]).await;
    let archive = agent.archive().unwrap();

    let difference = archive.diff(left.clone(), right.clone()).await.unwrap();
    let back = archive.diff(right, left).await.unwrap();

    let (old, new) = (Artifact::text("plan", "6"), Artifact::text("plan", "12"));
    let menu = Artifact::text("menu", "2");
    assert_eq!(
        difference.artifacts,
        [
            ArtifactChange::Removed(menu.clone()),
            ArtifactChange::Changed {
                from: old.clone(),
                to: new.clone()
            }
        ]
    );
    assert_eq!(
        back.artifacts,
        [
            ArtifactChange::Changed { from: new, to: old },
            ArtifactChange::Added(menu)
        ]
    );
}

#[tokio::test]
async fn a_snapshot_does_not_differ_from_itself() {
    let agent = scribe();
    let root = root(&agent).await;

    let difference = agent
        .archive()
        .unwrap()
        .diff(root.clone(), root.clone())
        .await
        .unwrap();

    assert!(difference.is_empty());
    assert_eq!(
        difference.to_string(),
        format!("- {root}\n+ {root}\nno difference\n")
    );
}

#[tokio::test]
async fn a_fork_does_not_differ_from_where_it_began() {
    let agent = scribe();
    let root = root(&agent).await;
    let archive = agent.archive().unwrap();

    let fork = archive.fork(root.clone(), "t").await.unwrap();
    let difference = archive.diff(root, fork.snapshot_id).await.unwrap();

    assert!(difference.is_empty(), "{difference}");
}
