//! Files that were damaged on their way: each is taken whole or leaves nothing behind.

use std::sync::LazyLock;

use everturn_agent::archive::Archive;
use everturn_agent::store::{MemoryStore, Scope};
use everturn_agent::{AgentSession, custom_agent};
use everturn_ai::Message;
use everturn_core::Registry;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::fuzz_entry::import;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A good file.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    runtime().block_on(async {
        let store = MemoryStore::new();
        let agent = custom_agent(&Registry::new(), "parrot", |session: AgentSession| async move {
            session
                .run(|turn| async move {
                    turn.add_message(Message::model("I see."));
                    Ok(())
                })
                .await?;
            Ok(session.result())
        });
        let agent = agent.store(store.clone()).define().unwrap();
        for text in ["one", "two", "three"] {
            agent.chat().resume("s").run(text).await.unwrap();
        }
        let mut file = Vec::new();
        let archive = Archive::of(store, Scope::default());
        archive.export("s", &mut file).await.unwrap();
        file
    })
});

#[derive(Debug, Clone)]
enum Damage {
    Cut(usize),
    Overwrite(usize, u8),
    Insert(usize, Vec<u8>),
    SwapLines(usize, usize),
    RepeatLine(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = 0_usize..100_000;
    prop_oneof![
        place.clone().prop_map(Damage::Cut),
        (place.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Overwrite(at, byte)),
        (place.clone(), prop::collection::vec(any::<u8>(), 0..8))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (place.clone(), place.clone()).prop_map(|(one, other)| Damage::SwapLines(one, other)),
        place.prop_map(Damage::RepeatLine),
    ]
}

fn damaged(mut file: Vec<u8>, damage: Damage) -> Vec<u8> {
    let length = file.len().max(1);
    let lines =
        |file: &[u8]| -> Vec<Vec<u8>> { file.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect() };
    match damage {
        Damage::Cut(at) => file.truncate(at % length),
        Damage::Overwrite(at, byte) => {
            if let Some(place) = file.get_mut(at % length) {
                *place = byte;
            }
        }
        Damage::Insert(at, bytes) => {
            let at = (at % length).min(file.len());
            file.splice(at..at, bytes);
        }
        Damage::SwapLines(one, other) => {
            let mut lines = lines(&file);
            let count = lines.len();
            lines.swap(one % count, other % count);
            file = lines.join(&b'\n');
        }
        Damage::RepeatLine(at) => {
            let mut lines = lines(&file);
            let at = at % lines.len();
            lines.insert(at, lines[at].clone());
            file = lines.join(&b'\n');
        }
    }
    file
}

#[test]
fn a_good_file_is_taken() {
    assert!(runtime().block_on(import(&FILE)));
}

proptest! {
    #[test]
    fn a_damaged_file_is_taken_whole_or_leaves_nothing(damages in prop::collection::vec(damage(), 1..4)) {
        let file = damages.into_iter().fold(FILE.clone(), damaged);

        runtime().block_on(import(&file));
    }

    #[test]
    fn a_file_of_anything_leaves_nothing(file in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!runtime().block_on(import(&file)));
    }
}
