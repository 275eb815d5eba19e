//! Agents that name their snapshots after their content: a response has its id before the snapshot has.

use everturn_agent::store::MemoryStore;
use everturn_agent::{SnapshotIds, agent};
use everturn_ai::Tool;
use everturn_testkit::{Reply, ScriptedModel};
use serde_json::{Value, json};

use crate::support::{Answer, Served, answer};

async fn served(replies: Vec<Reply>) -> Served {
    let define = |registry: &everturn_core::Registry| {
        agent(registry, "hasher")
            .tool(Tool::interrupt::<Value, Value>("ask", "Asks a person."))
            .snapshot_ids(SnapshotIds::ContentAddressed)
            .store(MemoryStore::new())
            .define()
            .unwrap();
    };
    Served::beside(define, ScriptedModel::new().replies(replies), |server| server).await
}

async fn ask(server: &Served, body: Value) -> Answer {
    let mut whole = json!({ "model": "hasher" });
    whole
        .as_object_mut()
        .unwrap()
        .extend(body.as_object().unwrap().clone());
    server.post("/responses", whole).await
}

fn path(response: &Value) -> String {
    format!("/responses/{}", response["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_response_is_found_by_its_first_id() {
    for streams in [false, true] {
        let server = served(vec!["one".into(), "two".into()]).await;
        ask(&server, json!({"input": "1", "conversation": "küche"}))
            .await
            .json();
        let asked =
            json!({"input": "2", "conversation": "küche", "stream": streams, "metadata": {"who": "ann"}});

        let told = ask(&server, asked).await;
        let (first, response) = if streams {
            let events = told.events();
            let last = events.last().unwrap()["response"].clone();
            (events[0]["response"]["id"].clone(), last)
        } else {
            (told.json()["id"].clone(), told.json())
        };

        assert_eq!((&response["id"], &response["store"]), (&first, &json!(true)));
        let again = server.get(&path(&response)).await.json();
        for field in ["id", "output", "metadata", "previous_response_id", "conversation"] {
            assert_eq!(again[field], response[field], "{field}, streamed: {streams}");
        }
        assert_eq!(again["output"][0]["content"][0]["text"], "two");
        let inputs = server
            .get(&format!("{}/input_items", path(&response)))
            .await
            .json();
        assert_eq!(inputs["data"][0]["content"][0]["text"], "2");
        let replayed = server.get(&format!("{}?stream=true", path(&response))).await;
        assert_eq!(
            replayed.events().last().unwrap()["response"]["id"],
            response["id"]
        );
        answer(server.request("DELETE", &path(&response))).await.json();
        assert_eq!(server.get(&path(&response)).await.error().0, 404);
    }
}

#[tokio::test]
async fn its_id_and_its_items_lead_back_to_the_turn() {
    let server = served(vec!["one".into(), "two".into(), "2b".into(), "2c".into()]).await;
    let first = ask(&server, json!({"input": "1"})).await.json();
    let next = json!({"input": "2", "previous_response_id": first["id"]});
    ask(&server, next).await.json();

    let branch = json!({"input": "other", "previous_response_id": first["id"]});
    let branch = ask(&server, branch).await.json();
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let by_item = json!({"input": [reference, {"role": "user", "content": "third"}]});
    let by_item = ask(&server, by_item).await.json();

    for continued in [&branch, &by_item] {
        assert_eq!(continued["previous_response_id"], first["id"]);
        assert_eq!(continued["conversation"], first["conversation"]);
    }
    assert_eq!(server.asked(), ["user: 1", "model: one", "user: third"]);
    let forged = first["id"].as_str().unwrap().replacen("resp_", "resp_0", 1);
    assert_eq!(server.get(&format!("/responses/{forged}")).await.error().0, 404);
}

#[tokio::test]
async fn its_calls_can_be_answered() {
    let call = Reply::tool("ask", json!({}));
    let server = served(vec![call, "Thanks.".into()]).await;
    let asking = ask(&server, json!({"input": "ask"})).await.json();

    let output = json!({
        "type": "function_call_output", "call_id": asking["output"][0]["call_id"], "output": "because",
    });
    let body = json!({"input": [output], "previous_response_id": asking["id"]});
    let answered = ask(&server, body).await.json();

    assert_eq!(answered["output"][0]["content"][0]["text"], "Thanks.");
    let inputs = server
        .get(&format!("{}/input_items", path(&answered)))
        .await
        .json();
    assert_eq!(inputs["data"][0]["call_id"], asking["output"][0]["call_id"]);
}

#[tokio::test]
async fn a_turn_that_reaches_an_equal_one_reports_that_it_stored_nothing() {
    let server = served(vec!["one".into(), "two".into(), "two".into()]).await;
    let first = ask(&server, json!({"input": "1"})).await.json();
    let next = json!({"input": "2", "previous_response_id": first["id"]});

    let second = ask(&server, next.clone()).await.json();
    let equal = ask(&server, next).await.json();

    assert_eq!((&second["store"], &equal["store"]), (&json!(true), &json!(false)));
    assert_eq!(server.get(&path(&second)).await.status, 200);
    assert_eq!(server.get(&path(&equal)).await.error().0, 404);
}
