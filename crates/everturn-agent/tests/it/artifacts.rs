//! Artifacts: replaced by name, streamed on every add, part of every snapshot.

use std::sync::Arc;

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentInit, Artifact, SessionHandle, Turn};

use crate::support::{all_chunks, handling, said};

fn named(chunks: &[everturn_agent::AgentStreamChunk]) -> Vec<String> {
    let artifacts = chunks.iter().filter_map(|chunk| chunk.artifact.as_ref());
    artifacts
        .map(|artifact| {
            format!(
                "{}={}",
                artifact.name.clone().unwrap_or_default(),
                artifact.content_text()
            )
        })
        .collect()
}

#[tokio::test]
async fn every_add_is_streamed_and_a_name_replaces_in_place() {
    let agent = handling("writer", |turn: Turn| async move {
        turn.send_artifact(Artifact::text("doc1", "v1")).await?;
        turn.send_artifact(Artifact::text("doc2", "x")).await?;
        turn.send_artifact(Artifact::text("doc1", "v2")).await?;
        turn.send_artifact(Artifact::unnamed("loose")).await?;
        turn.send_artifact(Artifact::unnamed("loose")).await?;
        Ok(())
    })
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("write").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    let kept: Vec<_> = output
        .artifacts
        .unwrap()
        .iter()
        .map(Artifact::content_text)
        .collect();
    assert_eq!(
        named(&chunks),
        ["doc1=v1", "doc2=x", "doc1=v2", "=loose", "=loose"]
    );
    assert!(chunks.last().unwrap().turn_end.is_some());
    assert_eq!(kept, ["v2", "x", "loose", "loose"]);
}

#[tokio::test]
async fn artifacts_from_nested_code_are_visible_at_once_streamed_and_saved() {
    let store = Arc::new(MemoryStore::new());
    let agent = handling("writer", |turn: Turn| async move {
        let tool = async {
            let session = SessionHandle::current().expect("a tool finds the session");
            session.add_artifacts([Artifact::text("from a tool", "content")]);
        };
        tool.await;
        assert_eq!(turn.artifacts().len(), 1);
        turn.update_custom(|custom| *custom = "after the artifact".into());
        Ok(())
    })
    .store(Arc::clone(&store))
    .define()
    .unwrap();

    let mut connection = agent.connect(AgentInit::default());
    connection.send("write").await.unwrap();
    let chunks = all_chunks(&mut connection).await;
    let output = connection.output().await.unwrap();

    let snapshot = agent.get_snapshot(output.snapshot_id.unwrap()).await.unwrap();
    assert_eq!(named(&chunks), ["from a tool=content"]);
    assert!(
        chunks[0].artifact.is_some() && chunks[1].custom_patch.is_some(),
        "what is sent first arrives first"
    );
    assert_eq!(snapshot.state.unwrap().artifacts.len(), 1);
}

#[tokio::test]
async fn artifacts_of_earlier_invocations_stay() {
    let agent = handling("writer", |turn: Turn| async move {
        let name = said(&turn);
        if name == "clear" {
            turn.set_artifacts(Vec::new());
        } else {
            turn.send_artifact(Artifact::text(name, "text")).await?;
        }
        Ok(())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();

    let first = agent.run_text("a").await.unwrap();
    let second = agent.chat().resume(first.session_id()).run("b").await.unwrap();
    let third = agent
        .chat()
        .resume(first.session_id())
        .run("clear")
        .await
        .unwrap();

    let names: Vec<_> = second
        .artifacts()
        .iter()
        .filter_map(|artifact| artifact.name.as_deref())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!(third.artifacts().is_empty());
}
