//! Listing snapshots and reading sessions as reflective callers do.

use std::sync::Arc;

use everturn_agent::store::{MemoryStore, Scope};
use everturn_agent::{Agent, AgentSession, custom_agent};
use everturn_ai::Message;
use everturn_core::{Context, DynAction, JsonCall, Registry, Result, Status};
use serde_json::{Value, json};

use crate::support::{FaultyStore, tell};

fn define(registry: &Registry) -> Agent {
    let tenant = |context: &Context| Scope::new(context.auth().and_then(Value::as_str).unwrap_or("nobody"));
    custom_agent(registry, "chef", |session: AgentSession| async move {
        session
            .run(|turn| async move {
                turn.add_message(Message::model("secret"));
                Ok(())
            })
            .await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .scope(tenant)
    .state_transform(|mut state, _| {
        state.messages = state.messages.truncate_to(1);
        Ok(Some(state))
    })
    .define()
    .unwrap()
}

fn action(registry: &Registry, key: &str) -> Arc<dyn DynAction> {
    registry.get(key).unwrap_or_else(|| panic!("{key} is registered"))
}

async fn call(registry: &Registry, key: &str, input: Value) -> Result<Value> {
    action(registry, key).run_json(JsonCall::new(input)).await
}

#[tokio::test]
async fn snapshots_are_listed_page_by_page_as_clients_may_see_them() {
    let registry = Registry::new();
    let agent = define(&registry);
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        let reply = agent.chat().resume("s").run(text).await.unwrap();
        ids.push(reply.snapshot_id().unwrap().clone());
    }

    for key in [
        "/agent-snapshots/chef",
        "/snapshot-store/chef/listSnapshots",
        "/session-store/chef/listSnapshots",
    ] {
        let first = json!({"sessionId": "s", "order": "oldest", "whole": true, "limit": 2});
        let first = call(&registry, key, first).await.unwrap();
        let second = json!({"sessionId": "s", "order": "oldest", "limit": 2, "after": first["next"]});
        let second = call(&registry, key, second).await.unwrap();
        let newest = call(&registry, key, json!({"sessionId": "s"})).await.unwrap();

        let found = [&first, &second]
            .map(|page| page["snapshots"].as_array().unwrap().clone())
            .concat();
        let found: Vec<&str> = found
            .iter()
            .filter_map(|snapshot| snapshot["snapshotId"].as_str())
            .collect();
        assert_eq!(found, [ids[0].as_str(), ids[1].as_str(), ids[2].as_str()]);
        assert!(second.get("next").is_none());
        assert_eq!(
            first["snapshots"][0]["state"]["messages"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        assert!(newest["snapshots"][0].get("state").is_none());
        assert_eq!(newest["snapshots"][0]["snapshotId"], ids[2].as_str());
    }
}

#[tokio::test]
async fn a_session_is_read_as_it_is_now_and_a_snapshot_under_the_earlier_key() {
    let registry = Registry::new();
    let agent = define(&registry);
    let one = agent.chat().resume("s").run("one").await.unwrap();
    let two = agent.chat().resume("s").run("two").await.unwrap();

    for key in ["/agent-session/chef", "/session-store/chef/getSession"] {
        let session = call(&registry, key, json!({"sessionId": "s"})).await.unwrap();
        assert_eq!(session["sessionId"], "s");
        assert_eq!(
            session["latest"]["snapshotId"],
            two.snapshot_id().unwrap().as_str()
        );
        assert_eq!(
            session["latest"]["state"]["messages"].as_array().unwrap().len(),
            1
        );
    }
    let id = one.snapshot_id().unwrap().as_str();
    let snapshot = call(
        &registry,
        "/snapshot-store/chef/getSnapshot",
        json!({"snapshotId": id}),
    )
    .await
    .unwrap();

    assert_eq!(snapshot["snapshotId"], id);
}

#[tokio::test]
async fn malformed_requests_are_refused() {
    let registry = Registry::new();
    define(&registry);
    let refused = [
        ("/agent-snapshots/chef", json!({})),
        ("/agent-snapshots/chef", json!({"sessionId": ""})),
        (
            "/agent-snapshots/chef",
            json!({"sessionId": "s", "ordre": "oldest"}),
        ),
        (
            "/agent-snapshots/chef",
            json!({"sessionId": "s", "order": "sideways"}),
        ),
        ("/agent-snapshots/chef", json!({"sessionId": "s", "limit": -1})),
        (
            "/agent-snapshots/chef",
            json!({"sessionId": "s", "after": {"page": 2}}),
        ),
        ("/agent-session/chef", json!({})),
        ("/agent-session/chef", json!({"sessionId": "s", "deep": true})),
        ("/agent-session/chef", json!({"sessionId": ""})),
    ];

    for (key, input) in refused {
        let error = call(&registry, key, input.clone()).await.unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{key} {input}: {error}");
    }
    let missing = call(&registry, "/agent-session/chef", json!({"sessionId": "nowhere"})).await;
    let empty = call(
        &registry,
        "/agent-snapshots/chef",
        json!({"sessionId": "nowhere"}),
    )
    .await;

    assert_eq!(missing.unwrap_err().status(), Status::NotFound);
    assert_eq!(empty.unwrap(), json!({"snapshots": []}));
}

#[tokio::test]
async fn companions_see_the_callers_tenant_only() {
    let registry = Registry::new();
    let agent = define(&registry);
    let ann = Context::new().with_value("auth", "ann");
    let bob = Context::new().with_value("auth", "bob");
    tell(&agent, &ann, "s", "one").await;
    let list = action(&registry, "/agent-snapshots/chef");
    let ask = |context: Context| {
        list.run_json(JsonCall {
            context,
            ..JsonCall::new(json!({"sessionId": "s"}))
        })
    };

    let (own, other) = (ask(ann).await.unwrap(), ask(bob).await.unwrap());

    assert_eq!(own["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(other, json!({"snapshots": []}));
}

#[tokio::test]
async fn the_companions_describe_themselves() {
    let registry = Registry::new();
    let agent = define(&registry);

    let list = agent.snapshots_action().unwrap().descriptor().clone();
    let session = agent.session_action().unwrap().descriptor().clone();

    let input = list.input_schema.unwrap();
    let properties = input.as_json()["properties"].as_object().unwrap();
    let fields: Vec<&str> = properties.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        ["sessionId", "order", "orphaned", "whole", "limit", "after"]
    );
    assert_eq!(input.as_json()["additionalProperties"], false);
    assert!(list.description.unwrap().contains("chef") && session.description.unwrap().contains("chef"));
    assert!(session.output_schema.is_some() && list.output_schema.is_some());
}

#[tokio::test]
async fn a_page_of_large_snapshots_ends_early_and_continues_at_its_cursor() {
    let registry = Registry::new();
    let agent = custom_agent(&registry, "writer", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    })
    .store(MemoryStore::new())
    .define()
    .unwrap();
    let mut ids = Vec::new();
    for _ in 0..12 {
        let reply = agent
            .chat()
            .resume("s")
            .run("x".repeat(1024 * 1024))
            .await
            .unwrap();
        ids.push(reply.snapshot_id().unwrap().to_string());
    }

    for order in ["oldest", "newest"] {
        let mut request = json!({"sessionId": "s", "order": order, "whole": true});
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = call(&registry, "/agent-snapshots/writer", request.clone())
                .await
                .unwrap();
            let snapshots = page["snapshots"].as_array().unwrap();
            let size = page.to_string().len();
            assert!(snapshots.len() == 1 || size < 9 * 1024 * 1024, "{size} bytes");
            found.extend(
                snapshots
                    .iter()
                    .map(|it| it["snapshotId"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            match page.get("next") {
                Some(next) => request["after"] = next.clone(),
                None => break,
            }
        }
        if order == "newest" {
            found.reverse();
        }
        assert_eq!(found, ids);
        assert!(pages > 6, "{pages} pages");
    }
    let tree = call(
        &registry,
        "/agent-tree/writer",
        json!({"sessionId": "s", "excerpts": true}),
    )
    .await
    .unwrap();
    assert_eq!(tree["snapshots"].as_array().unwrap().len(), 12);
    assert_eq!(tree["excerpts"].as_object().unwrap().len(), 12);
    assert!(tree.get("next").is_none(), "{tree}");
}

#[tokio::test]
async fn no_more_is_read_for_a_page_than_it_may_hold() {
    let registry = Registry::new();
    let store = FaultyStore::default();
    let agent = custom_agent(&registry, "writer", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    })
    .store(store.clone())
    .define()
    .unwrap();
    agent.chat().resume("s").run("a").await.unwrap();
    for _ in 0..12 {
        let large = "x".repeat(1024 * 1024);
        agent.chat().resume("s").run(large).await.unwrap();
    }

    let before = store.whole_reads();

    let request = json!({"sessionId": "s", "order": "oldest", "whole": true, "limit": 1_000});
    let page = call(&registry, "/agent-snapshots/writer", request).await.unwrap();

    // The large ones have one MiB, two, and so on. The fourth of them is the first that does not fit.
    assert_eq!(page["snapshots"].as_array().unwrap().len(), 4);
    assert_eq!(store.whole_reads() - before, 5);
}
