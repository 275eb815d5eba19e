//! Custom states from before a field was added to their type.

use everturn_agent::store::MemoryStore;
use everturn_agent::{AgentSession, CustomState, SessionState, custom_agent};
use everturn_core::{Registry, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Before {
    pantry: Vec<String>,
    oven: OvenBefore,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct OvenBefore {
    on: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct After {
    pantry: Vec<String>,
    oven: OvenAfter,
    guests: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct OvenAfter {
    on: bool,
    degrees: u16,
}

impl Default for After {
    fn default() -> Self {
        Self {
            pantry: Vec::new(),
            oven: OvenAfter {
                on: false,
                degrees: 180,
            },
            guests: 2,
        }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct Unlike {
    pantry: u32,
}

fn chef<S: CustomState>(store: Option<&MemoryStore>, change: fn(&mut S)) -> everturn_agent::Agent<S> {
    let agent = custom_agent(
        &Registry::new(),
        "chef",
        move |session: AgentSession<S>| async move {
            session
                .run(|turn| async move {
                    turn.update_custom(change);
                    Ok(())
                })
                .await?;
            Ok(session.result())
        },
    );
    match store {
        Some(store) => agent.store(store.clone()).define().unwrap(),
        None => agent.define().unwrap(),
    }
}

async fn begun() -> MemoryStore {
    let store = MemoryStore::new();
    let before = chef::<Before>(Some(&store), |kitchen| {
        kitchen.pantry.push("leeks".into());
        kitchen.oven.on = true;
    });
    before.chat().resume("dinner").run("Stock up.").await.unwrap();
    store
}

#[tokio::test]
async fn fields_that_were_added_come_from_the_default_of_the_type() {
    let store = begun().await;
    let after = chef::<After>(Some(&store), |kitchen| kitchen.guests += 1);

    after.chat().resume("dinner").run("One more.").await.unwrap();
    let chat = after.chat().resume("dinner").open().await.unwrap();

    let expected = After {
        pantry: vec!["leeks".into()],
        oven: OvenAfter {
            on: true,
            degrees: 180,
        },
        guests: 3,
    };
    assert_eq!(chat.custom().unwrap(), expected);
}

#[tokio::test]
async fn a_state_that_still_does_not_fit_is_an_error_that_names_session_field_and_remedy() {
    let store = begun().await;
    let unlike = chef::<Unlike>(Some(&store), |_| {});

    let error = unlike.chat().resume("dinner").run("Well?").await.unwrap_err();

    for words in [
        "session 'dinner'",
        "field 'pantry'",
        "give the session a state that fits",
    ] {
        assert!(error.message().contains(words), "{error}");
    }
    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(!error.public_message().unwrap().contains("pantry"), "{error}");
}

#[tokio::test]
async fn a_client_that_keeps_the_state_reads_what_does_not_fit() {
    let unlike = chef::<Unlike>(None, |_| {});
    let state = SessionState {
        custom: Some(json!({"pantry": ["leeks"]}).into()),
        session_id: Some("dinner".into()),
        ..SessionState::default()
    };

    let error = unlike.chat().state(state).run("Well?").await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(
        error.public_message().unwrap().contains("field 'pantry'"),
        "{error}"
    );
}
