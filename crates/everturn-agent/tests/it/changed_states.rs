//! Custom states whose type changes: programs of two versions on one store.

use std::sync::{Arc, Mutex};

use everturn_agent::store::MemoryStore;
use everturn_agent::{
    Agent, AgentInput, AgentSession, CustomState, STATE_UNREADABLE, SessionState, agent, custom_agent,
};
use everturn_core::{Registry, Status};
use everturn_testkit::ScriptedModel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The first version of a desk's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Desk {
    limit: u32,
    turns: u32,
    bookings: Vec<Booking>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Booking {
    id: u32,
    paid: bool,
}

/// The next version: `limit` has another name, and fields were added at two depths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct NewDesk {
    #[serde(alias = "limit")]
    budget: u32,
    turns: u32,
    tone: String,
    bookings: Vec<NewBooking>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct NewBooking {
    id: u32,
    paid: bool,
    #[serde(default)]
    seat: Option<String>,
}

impl Default for NewDesk {
    fn default() -> Self {
        Self {
            budget: 100,
            turns: 0,
            tone: "kind".into(),
            bookings: Vec::new(),
        }
    }
}

/// The first version, prepared for the new name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct PreparedDesk {
    #[serde(alias = "budget")]
    limit: u32,
    turns: u32,
}

/// A version that cannot read the others.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct OtherDesk {
    turns: String,
}

/// Runs one turn of a program whose state is an `S`, and returns the stored document.
async fn turn<S: CustomState>(
    store: &MemoryStore,
    change: impl Fn(&mut S) + Clone + Send + Sync + 'static,
) -> Value {
    let desk = desk(store, change);
    desk.chat().resume("ann").run("Hello.").await.unwrap();
    stored(store).await
}

fn desk<S: CustomState>(
    store: &MemoryStore,
    change: impl Fn(&mut S) + Clone + Send + Sync + 'static,
) -> Agent<S> {
    let function = move |session: AgentSession<S>| {
        let change = change.clone();
        async move {
            let change = &change;
            session
                .run(|turn| async move {
                    turn.update_custom(change);
                    Ok(())
                })
                .await?;
            Ok(session.result())
        }
    };
    custom_agent(&Registry::new(), "desk", function)
        .store(store.clone())
        .define()
        .unwrap()
}

async fn stored(store: &MemoryStore) -> Value {
    let any = desk::<Value>(store, |_| {});
    let chat = any.chat().resume("ann").open().await.unwrap();
    chat.custom().unwrap()
}

/// Stores a document as a program of any version may have left it.
async fn begun(document: Value) -> MemoryStore {
    let store = MemoryStore::new();
    turn::<Value>(&store, move |state| state.clone_from(&document)).await;
    store
}

/// Runs a turn of a prompt agent and returns the system text that its model received.
async fn rendered<S: CustomState>(store: &MemoryStore, template: &str) -> String {
    let registry = Registry::new();
    let seen = Arc::new(Mutex::new(String::new()));
    let system = Arc::clone(&seen);
    let model = ScriptedModel::new().otherwise(move |request| {
        *system.lock().unwrap() = request.messages.first().unwrap().text().into_owned();
        "Fine."
    });
    model.register(&registry, "scripted").unwrap();
    let desk = agent(&registry, "desk")
        .custom::<S>()
        .model("scripted")
        .system(template)
        .store(store.clone())
        .define()
        .unwrap();
    desk.chat().resume("ann").run("Hello.").await.unwrap();
    seen.lock().unwrap().clone()
}

#[tokio::test]
async fn templates_render_defaults_and_aliases_of_the_type() {
    let store = begun(json!({"limit": 800, "turns": 3, "bookings": []})).await;

    let text = rendered::<NewDesk>(&store, "{{@custom.budget}} {{@state.tone}} {{@custom.turns}}").await;

    assert_eq!(text, "800 kind 3");
    // Reading is not writing.
    assert_eq!(
        stored(&store).await,
        json!({"limit": 800, "turns": 3, "bookings": []})
    );
}

#[tokio::test]
async fn a_field_that_was_added_has_its_default_and_is_kept_by_the_earlier_version() {
    let store = begun(json!({"limit": 800, "turns": 3, "bookings": [{"id": 1, "paid": false}]})).await;

    turn::<NewDesk>(&store, |desk| {
        desk.tone = "stern".into();
        desk.bookings[0].seat = Some("4a".into());
    })
    .await;
    let document = turn::<Desk>(&store, |desk| {
        desk.turns += 1;
        desk.bookings[0].paid = true;
    })
    .await;

    let bookings = json!([{"id": 1, "paid": true, "seat": "4a"}]);
    assert_eq!(
        document,
        json!({"limit": 800, "turns": 4, "tone": "stern", "bookings": bookings})
    );
}

#[tokio::test]
async fn a_renamed_field_keeps_its_value_and_is_never_stored_under_both_names() {
    let store = begun(json!({"limit": 800, "turns": 3, "bookings": [], "note": "unknown"})).await;

    let untouched = turn::<NewDesk>(&store, |desk| {
        assert_eq!(desk.budget, 800);
        desk.turns += 1;
    })
    .await;
    let changed = turn::<NewDesk>(&store, |desk| desk.budget += 100).await;
    let again = turn::<NewDesk>(&store, |desk| desk.turns += 1).await;

    assert_eq!(
        untouched,
        json!({"limit": 800, "turns": 4, "bookings": [], "note": "unknown"})
    );
    let written = |turns: u32| json!({"budget": 900, "turns": turns, "tone": "kind", "bookings": [], "note": "unknown"});
    assert_eq!(changed, written(4));
    assert_eq!(again, written(5));
}

#[tokio::test]
async fn an_earlier_version_does_not_overwrite_what_a_later_one_stored_under_a_new_name() {
    let store = begun(json!({"budget": 800, "turns": 3, "tone": "stern", "bookings": []})).await;

    let document = turn::<Desk>(&store, |desk| {
        // The later version's value is not a `limit`.
        assert_eq!(desk.limit, 0);
        desk.turns += 1;
    })
    .await;

    assert_eq!(
        document,
        json!({"budget": 800, "turns": 4, "tone": "stern", "bookings": []})
    );
}

#[tokio::test]
async fn versions_that_read_both_names_write_by_turns() {
    let store = begun(json!({"limit": 100, "turns": 0, "bookings": []})).await;

    for round in 1..=10 {
        let newer = turn::<NewDesk>(&store, |desk| {
            desk.budget += 10;
            desk.turns += 1;
            desk.tone.push('!');
        })
        .await;
        let older = turn::<PreparedDesk>(&store, |desk| {
            desk.limit += 1;
            desk.turns += 1;
        })
        .await;

        let tone = format!("kind{}", "!".repeat(round));
        assert_eq!(newer["budget"], 100 + 11 * round - 1, "{newer}");
        assert_eq!(newer.get("limit"), None, "{newer}");
        let expected = json!({"limit": 100 + 11 * round, "turns": 2 * round, "tone": tone, "bookings": []});
        assert_eq!(older, expected);
    }
}

#[tokio::test]
async fn unknown_members_of_list_elements_move_with_their_elements() {
    let booking = |id: u32| json!({"id": id, "paid": false, "seat": format!("{id}a")});
    let bookings = json!([booking(1), booking(2), booking(3), booking(4)]);
    let store = begun(json!({"limit": 0, "turns": 0, "bookings": bookings})).await;

    let removed = turn::<Desk>(&store, |desk| desk.bookings.retain(|booking| booking.id % 2 == 0)).await;
    let reversed = turn::<Desk>(&store, |desk| desk.bookings.reverse()).await;
    let replaced = turn::<Desk>(&store, |desk| {
        desk.bookings.remove(0);
        desk.bookings[0].paid = true;
        desk.bookings.push(Booking { id: 5, paid: false });
        desk.bookings.push(Booking { id: 6, paid: false });
    })
    .await;

    assert_eq!(removed["bookings"], json!([booking(2), booking(4)]));
    assert_eq!(reversed["bookings"], json!([booking(4), booking(2)]));
    let expected = json!([
        {"id": 2, "paid": true, "seat": "2a"},
        {"id": 5, "paid": false},
        {"id": 6, "paid": false},
    ]);
    assert_eq!(replaced["bookings"], expected);
}

#[tokio::test]
async fn clients_see_the_stored_document_with_each_change() {
    let store = begun(json!({"limit": 800, "turns": 3, "bookings": [], "note": "unknown"})).await;
    let desk = desk::<NewDesk>(&store, |desk| desk.budget += 1);

    let mut connection = desk.connect(everturn_agent::AgentInit::session("ann"));
    connection.send("Hello.").await.unwrap();
    let mut view = json!(null);
    while let Some(chunk) = connection.next().await {
        if let Some(patch) = &chunk.custom_patch {
            view = patch.apply(&view).unwrap();
        }
        if chunk.turn_end.is_some() {
            break;
        }
    }

    assert_eq!(view, stored(&store).await);
    assert_eq!((&view["budget"], &view["note"]), (&json!(801), &json!("unknown")));
}

#[tokio::test]
async fn a_state_that_a_client_gives_replaces_the_stored_one() {
    let store = begun(json!({"limit": 800, "turns": 3, "bookings": [], "note": "unknown"})).await;
    let function = |session: AgentSession<Desk>| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    };
    let desk = custom_agent(&Registry::new(), "desk", function)
        .store(store.clone())
        .define()
        .unwrap();

    let given = AgentInput {
        custom: Some(Arc::new(json!({"limit": 1, "turns": 2, "bookings": []}))),
        ..AgentInput::from("Hello.")
    };
    desk.chat().resume("ann").run(given).await.unwrap();

    assert_eq!(
        stored(&store).await,
        json!({"limit": 1, "turns": 2, "bookings": []})
    );
}

#[tokio::test]
async fn a_stored_state_that_cannot_be_read_is_refused_by_name_and_stays_as_it_is() {
    let document = json!({"limit": 800, "turns": 3, "bookings": []});
    let store = begun(document.clone()).await;
    let other = desk::<OtherDesk>(&store, |_| {});

    let error = other.chat().resume("ann").run("Hello.").await.unwrap_err();

    assert_eq!(error.status(), Status::FailedPrecondition);
    assert!(error.is(STATE_UNREADABLE), "{error}");
    assert_eq!(error.details(), Some(&json!({"reason": "state-unreadable"})));
    let public = error.public_message().unwrap();
    assert!(public.contains("cannot read the stored state"), "{public}");
    assert!(
        !public.contains("turns") && !public.contains("OtherDesk"),
        "{public}"
    );
    for words in [
        "session 'ann'",
        "OtherDesk",
        "field 'turns'",
        "let the type read it",
        "unchanged",
    ] {
        assert!(error.message().contains(words), "{words}: {error}");
    }
    assert_eq!(stored(&store).await, document);
}

#[tokio::test]
async fn a_document_under_both_names_is_refused_and_not_guessed() {
    let store = begun(json!({"limit": 500, "budget": 800, "turns": 3, "bookings": []})).await;
    let desk = desk::<NewDesk>(&store, |_| {});

    let error = desk.chat().resume("ann").run("Hello.").await.unwrap_err();

    assert!(error.is(STATE_UNREADABLE), "{error}");
    assert!(error.message().contains("duplicate field `budget`"), "{error}");
}

#[tokio::test]
async fn a_state_of_the_client_that_cannot_be_read_is_its_own_argument() {
    let function = |session: AgentSession<OtherDesk>| async move { Ok(session.result()) };
    let desk = custom_agent(&Registry::new(), "desk", function).define().unwrap();
    let state = SessionState {
        custom: Some(json!({"turns": 3}).into()),
        session_id: Some("ann".into()),
        ..SessionState::default()
    };

    let error = desk.chat().state(state).run("Hello.").await.unwrap_err();

    assert_eq!(error.status(), Status::InvalidArgument);
}
