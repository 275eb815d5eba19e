//! Similar elements are defined in the same way.

use std::sync::Arc;

use everturn::core::stream_log::{MemoryStreamLog, StreamLog};
use everturn::prelude::*;
use everturn::testkit::{EchoModel, ScriptedModel};

#[payload]
#[derive(Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Kitchen {
    /// The ingredients for cooking.
    in_stock: Vec<String>,
}

#[payload]
#[derive(Debug, PartialEq)]
enum Wish {
    Soup,
    Dish { guests: u8 },
}

#[tokio::test]
async fn a_payload_has_a_json_form_and_a_schema() {
    let app = Everturn::builder().build().await.unwrap();
    let cook = app
        .flow("cook", |wish: Wish| async move {
            let in_stock = vec![format!("{wish:?}")];
            Ok(Kitchen { in_stock })
        })
        .unwrap();

    let cooked = cook.run(Wish::Dish { guests: 2 }).await.unwrap();

    assert_eq!(cooked.in_stock, ["Dish { guests: 2 }"]);
    let written = everturn::serde_json::to_value(&cooked).unwrap();
    assert_eq!(written, json!({ "inStock": ["Dish { guests: 2 }"] }));
    let schema = everturn::core::Schema::of::<Kitchen>();
    let described = &schema.as_json()["properties"]["inStock"]["description"];
    assert_eq!(described, "The ingredients for cooking.");
    assert_eq!(everturn::serde_json::to_value(Wish::Soup).unwrap(), json!("Soup"));
}

#[tokio::test]
async fn the_custom_state_is_called_custom_everywhere() {
    let model = ScriptedModel::new().otherwise(|request| {
        let system = request
            .messages
            .first()
            .map(|message| message.text().into_owned());
        system.unwrap_or_default()
    });
    let app = Everturn::builder()
        .model("scripted", model)
        .default_model("scripted")
        .build()
        .await
        .unwrap();
    PromptDefinition::new("critic")
        .system("There is {{@custom.inStock}}.")
        .define(app.registry())
        .unwrap();
    let leeks = || Kitchen {
        in_stock: vec!["leeks".to_owned()],
    };
    let chef = app
        .agent("chef")
        .custom::<Kitchen>()
        .system("There is {{@custom.inStock}}.")
        .define();
    let critic = app.prompt_agent("critic").custom::<Kitchen>().define();

    for agent in [chef.unwrap(), critic.unwrap()] {
        let mut chat = agent.chat().custom(leeks()).open().await.unwrap();
        let reply = chat.run("What is there?").await.unwrap();

        assert!(reply.text().contains("leeks"), "{}", reply.text());
        assert_eq!(chat.custom().unwrap(), leeks());
        assert_eq!(reply.custom().unwrap(), Some(leeks()));
    }
}

#[tokio::test]
async fn stores_and_logs_are_given_whole_shared_or_as_their_trait() {
    let app = Everturn::builder()
        .model("echo", EchoModel)
        .default_model("echo")
        .build()
        .await
        .unwrap();
    let (store, log) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStreamLog::new()));
    let any_store: Arc<dyn SessionStore> = store.clone();
    let any_log: Arc<dyn StreamLog> = log.clone();

    let whole = app.agent("whole").store(MemoryStore::new());
    whole.run_log(MemoryStreamLog::new()).define().unwrap();
    let shared = app.agent("shared").store(store);
    let shared = shared.run_log(Arc::clone(&log)).define().unwrap();
    let erased = app.agent("erased").store(any_store);
    erased.run_log(Arc::clone(&any_log)).define().unwrap();
    let _ = app.server().stream_log(MemoryStreamLog::new()).stream_log(log);
    let _ = app.server().stream_log(any_log);

    // Ids are passed by reference, also where one may be missing.
    let reply = shared.run_text("hello").await.unwrap();
    let id: &SnapshotId = reply.snapshot_id().unwrap();
    assert_eq!(shared.get_snapshot(id).await.unwrap().snapshot_id, *id);
    assert_eq!(
        shared
            .chat()
            .snapshot(id)
            .run("again")
            .await
            .unwrap()
            .session_id(),
        reply.session_id()
    );
}

mod a_model_of_ones_own {
    use everturn::model_prelude::*;

    /// A provider whose models list their own names.
    pub(super) struct Parrots;

    struct Parrot(String);

    impl Model for Parrot {
        fn info(&self) -> ModelInfo {
            ModelInfo {
                label: Some(self.0.clone()),
                supports: Some(ModelSupports {
                    tools: Some(false),
                    ..ModelSupports::default()
                }),
                ..ModelInfo::default()
            }
        }

        async fn generate(
            &self,
            request: ModelRequest,
            emitter: Emitter<ModelResponseChunk>,
            _context: Context,
        ) -> HandlerResult<ModelResponse> {
            let text = request.messages.last().map(|message| message.text().into_owned());
            let text = text.ok_or_else(|| Error::invalid_argument("a parrot repeats a message"))?;
            emitter.send(ModelResponseChunk::new(text.clone())).await?;
            Ok(ModelResponse {
                finish_reason: Some(FinishReason::Stop),
                usage: Some(Usage::default()),
                ..ModelResponse::text_of(format!("{}: {text}", self.0))
            })
        }
    }

    impl Plugin for Parrots {
        fn name(&self) -> &'static str {
            "parrots"
        }

        fn resolve<'a>(
            &'a self,
            action_type: &'a ActionType,
            id: &'a str,
        ) -> BoxFuture<'a, HandlerResult<Option<std::sync::Arc<dyn DynAction>>>> {
            Box::pin(async move {
                if *action_type != ActionType::MODEL {
                    return Ok(None);
                }
                let model = model_action(format!("parrots/{id}"), Parrot(id.to_owned()));
                Ok(Some(std::sync::Arc::new(model) as std::sync::Arc<dyn DynAction>))
            })
        }
    }
}

#[tokio::test]
async fn a_model_and_its_plugin_need_one_prelude() {
    let app = Everturn::builder()
        .plugin(a_model_of_ones_own::Parrots)
        .default_model("parrots/polly")
        .build()
        .await
        .unwrap();

    let reply = app.generate().prompt("hello").await.unwrap();

    assert_eq!(reply.text(), "polly: hello");
}
