//! Session flows: custom agents under their earlier name, with a custom status type.

use everturn_agent::store::MemoryStore;
use everturn_agent::{Agent, AgentInit, AgentSession, session_flow};
use everturn_core::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Doing {
    Warming,
    Chopping { vegetables: u32 },
}

fn cook() -> Agent<Value, Doing> {
    session_flow(&Registry::new(), "cook", |session: AgentSession| async move {
        session.send_status(Doing::Warming).await?;
        session
            .run(|turn| async move { Ok(turn.send_status(Doing::Chopping { vegetables: 3 }).await?) })
            .await?;
        Ok(session.result())
    })
    .status::<Doing>()
    .store(MemoryStore::new())
    .define()
    .unwrap()
}

#[tokio::test]
async fn a_status_travels_in_a_field_of_its_own() {
    let mut connection = cook().connect(AgentInit::default());

    connection.send("soup").await.unwrap();
    connection.close();
    let mut chunks: Vec<Value> = Vec::new();
    while let Some(chunk) = connection.next().await {
        chunks.push(serde_json::to_value(chunk).unwrap());
    }
    connection.output().await.unwrap();

    assert_eq!(chunks[0], json!({"status": "warming"}));
    assert_eq!(chunks[1], json!({"status": {"chopping": {"vegetables": 3}}}));
    assert!(chunks[2].get("turnEnd").is_some() && chunks[2].get("status").is_none());
}

#[tokio::test]
async fn a_client_reads_a_status_in_its_type() {
    let agent = cook();
    let mut chat = agent.chat().open().await.unwrap();
    let mut turn = chat.send("soup").await.unwrap();
    let mut doing = Vec::new();

    while let Some(chunk) = turn.next().await {
        doing.extend(chunk.unwrap().status().unwrap());
    }

    assert_eq!(doing, [Doing::Warming, Doing::Chopping { vegetables: 3 }]);
}
