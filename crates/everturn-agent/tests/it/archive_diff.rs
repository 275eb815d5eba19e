//! The difference between two snapshots.

use everturn_agent::archive::ArtifactChange;
use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, Artifact, SnapshotId, Turn, agent};
use everturn_ai::{Message, Tool, ToolContext};
use everturn_testkit::Reply;
use serde_json::{Value, json};

use crate::prompt_support::answering;
use crate::support::{handling, said};

/// Stores the message as its custom state and as an artifact of that name.
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
    let [left_at, right_at] = [difference.left_at, difference.right_at].map(Option::unwrap);
    let expected = format!(
        "- {left} {left_at:.0}\n+ {right} {right_at:.0}\n\
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
async fn calls_of_tools_are_shown_in_differences_and_in_trees() {
    let (registry, _model) = answering([
        "Hello.".into(),
        Reply::tool("stock", json!({"item": "leeks"})),
        "Done.".into(),
    ]);
    let stock = Tool::new(
        "stock",
        "Stocks the pantry.",
        |wish: Value, _: ToolContext| async move { Ok(json!({"stocked": wish["item"]})) },
    );
    let chef = agent(&registry, "chef")
        .tool(stock)
        .store(MemoryStore::new())
        .define()
        .unwrap();
    let mut chat = chef.chat().resume("s").open().await.unwrap();
    let left = chat.run("Hello!").await.unwrap().snapshot_id().unwrap().clone();
    let right = chat
        .run("Stock leeks.")
        .await
        .unwrap()
        .snapshot_id()
        .unwrap()
        .clone();
    let archive = chef.archive().unwrap();

    let difference = archive.diff(&left, &right).await.unwrap().to_string();
    let tree = archive.tree("s").await.unwrap();

    let shown: Vec<&str> = difference.lines().skip(3).collect();
    assert_eq!(
        shown,
        [
            "  + user: Stock leeks.",
            "  + model: → stock {\"item\":\"leeks\"}",
            "  + tool: ← stock {\"stocked\":\"leeks\"}",
            "  + model: Done.",
        ],
        "{difference}"
    );
    assert_eq!(tree.find(&left).unwrap().excerpt(), Some("Hello!"));
    assert_eq!(tree.find(&right).unwrap().excerpt(), Some("Stock leeks. → stock"));
    assert!(
        tree.to_string().ends_with("← latest — Stock leeks. → stock\n"),
        "{tree}"
    );
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
    let at = difference.left_at.unwrap();
    assert_eq!(
        difference.to_string(),
        format!("- {root} {at:.0}\n+ {root} {at:.0}\nno difference\n")
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
