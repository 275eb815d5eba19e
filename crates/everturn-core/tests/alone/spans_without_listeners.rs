//! Without a listener nothing is serialised.

use std::cell::Cell;

use everturn_core::{Action, ActionType, BidiAction, Emitter, Inputs, run};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::alone;

thread_local! {
    static SERIALISED: Cell<usize> = const { Cell::new(0) };
}

/// Counts how often it is serialised.
#[derive(Clone, Default, Deserialize, JsonSchema)]
struct Watched {}

impl Serialize for Watched {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SERIALISED.set(SERIALISED.get() + 1);
        serializer.serialize_unit()
    }
}

#[tokio::test]
async fn no_payload_of_a_typed_call_is_serialised() {
    let _alone = alone();
    let unary = Action::new(ActionType::CUSTOM, "unary", |watched: Watched, _| async move {
        Ok(run("step", || async { Ok(watched) }).await?)
    });
    let streaming = Action::streaming(
        ActionType::CUSTOM,
        "streaming",
        |watched: Watched, _, emitter: Emitter<Watched>| async move {
            emitter.send(watched.clone()).await?;
            Ok(watched)
        },
    );
    let bidi = BidiAction::new(
        ActionType::CUSTOM,
        "bidi",
        |init: Watched, mut inputs: Inputs<Watched>, emitter: Emitter<Watched>, _| async move {
            while let Some(input) = inputs.next().await {
                emitter.send(input).await?;
            }
            Ok(init)
        },
    );

    unary.run(Watched {}).await.unwrap();
    streaming.stream(Watched {}).output().await.unwrap();
    let mut connection = bidi.connect(Watched {});
    connection.send(Watched {}).await.unwrap();
    connection.output().await.unwrap();

    assert_eq!(SERIALISED.get(), 0);
}

#[tokio::test]
async fn the_count_notices_a_serialised_payload() {
    let _alone = alone();
    let before = SERIALISED.get();

    serde_json::to_string(&Watched {}).unwrap();

    assert_eq!(SERIALISED.get(), before + 1);
}
