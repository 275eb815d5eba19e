//! A replayer plays the calls of a recorder.

use std::fs;
use std::path::PathBuf;

use everturn_ai::{Generate, Message, Model, ModelRequest, Tool, ToolContext, ToolRequest, register_model};
use everturn_core::{Context, Emitter, Error, Registry, Result, Status};
use everturn_testkit::{Collector, NO_RECORDING, Recorder, Replayer, Reply, ScriptedModel};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder for the test"))
    }

    fn cassette(&self) -> PathBuf {
        self.0.path().join("cassettes/chef.json")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.cassette()).expect("the recorder has written")
    }
}

fn request(text: &str) -> ModelRequest {
    ModelRequest::new(Message::user(text))
}

/// Calls a recorded model.
async fn record(folder: &Folder, requests: &[ModelRequest], replies: Vec<Reply>) {
    let model = Recorder::new(folder.cassette()).wrap("chef", ScriptedModel::new().replies(replies));
    for request in requests {
        let chunks = Collector::new();
        let _ = model
            .generate(request.clone(), chunks.emitter(), Context::new())
            .await;
    }
}

async fn replay(replayer: &Replayer, request: ModelRequest) -> Result<String> {
    let response = replayer
        .as_model("chef")
        .generate(request, Emitter::silent(), Context::new())
        .await?;
    Ok(response.text().into_owned())
}

#[tokio::test]
async fn chunks_and_answer_are_played_as_they_were_recorded() {
    let folder = Folder::new();
    record(
        &folder,
        &[request("Leeks?")],
        vec![Reply::text("Leek soup.").streamed()],
    )
    .await;

    let chunks = Collector::new();
    let model = Replayer::open(folder.cassette()).unwrap().as_model("chef");
    let response = model
        .generate(request("Leeks?"), chunks.emitter(), Context::new())
        .await
        .unwrap();

    assert_eq!(response.text(), "Leek soup.");
    assert_eq!(
        chunks
            .take()
            .iter()
            .map(|chunk| chunk.text().into_owned())
            .collect::<Vec<_>>(),
        ["Leek ", "soup."]
    );
}

#[tokio::test]
async fn a_whole_generation_with_tools_is_replayed_without_its_model() {
    let folder = Folder::new();
    let season = Tool::new("season", "Looks up vegetables.", |(): (), _: ToolContext| async {
        Ok("leek")
    });
    let calls_tool = |reference: &str| {
        ScriptedModel::new()
            .reply(ToolRequest::new("season", Value::Null).with_reference(reference))
            .reply("Leek soup.")
    };
    let generate = |registry: &Registry| {
        Generate::new(registry)
            .model("chef")
            .tool(&season)
            .prompt("Soup?")
    };
    let registry = Registry::new();
    calls_tool("call_1").register(&registry, "chef").unwrap();
    generate(&registry)
        .use_middleware(Recorder::new(folder.cassette()))
        .run()
        .await
        .unwrap();

    let registry = Registry::new();
    let unused = ScriptedModel::new();
    unused.register(&registry, "chef").unwrap();
    let replayer = Replayer::open(folder.cassette()).unwrap();
    let answer = generate(&registry)
        .use_middleware(replayer.clone())
        .run()
        .await
        .unwrap();

    assert_eq!(answer.text(), "Leek soup.");
    assert_eq!(replayer.recordings_left(), 0);
    unused.assert_calls(0);
}

#[tokio::test]
async fn a_failure_is_played_as_a_failure() {
    let folder = Folder::new();
    let error = Error::resource_exhausted("slow down").with_details(json!({"seconds": 3}));
    record(&folder, &[request("a")], vec![Reply::error(error)]).await;

    let error = replay(&Replayer::open(folder.cassette()).unwrap(), request("a"))
        .await
        .unwrap_err();

    assert_eq!(error.status(), Status::ResourceExhausted);
    assert_eq!(error.message(), "slow down");
    assert_eq!(error.details(), Some(&json!({"seconds": 3})));
}

#[tokio::test]
async fn equal_requests_are_answered_in_turn_and_then_by_the_last() {
    let folder = Folder::new();
    record(
        &folder,
        &[request("again"), request("again")],
        vec!["one".into(), "two".into()],
    )
    .await;
    let replayer = Replayer::open(folder.cassette()).unwrap();

    for expected in ["one", "two", "two"] {
        assert_eq!(replay(&replayer, request("again")).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn an_unknown_request_names_the_nearest_recording_and_the_difference() {
    let folder = Folder::new();
    let requests = [ModelRequest::default(), request("Leeks?")];
    record(&folder, &requests, vec!["one".into(), "two".into()]).await;

    let error = replay(&Replayer::open(folder.cassette()).unwrap(), request("Peas?"))
        .await
        .unwrap_err();

    assert!(error.is(NO_RECORDING));
    let place =
        r#"nearest is /recordings/1, at /messages/0/content/0/text: expected "Leeks?", found "Peas?""#;
    assert!(error.message().ends_with(place), "{error}");
}

#[tokio::test]
async fn a_model_that_was_never_recorded_is_named() {
    let folder = Folder::new();
    record(&folder, &[request("a")], vec!["one".into()]).await;

    let model = Replayer::open(folder.cassette()).unwrap().as_model("critic");
    let error = model
        .generate(request("a"), Emitter::silent(), Context::new())
        .await
        .unwrap_err();

    assert!(
        error
            .message()
            .ends_with("has no recording of the model 'critic'"),
        "{error}"
    );
}

#[tokio::test]
async fn ignored_fields_do_not_distinguish_requests() {
    let folder = Folder::new();
    let seeded = |seed: u32| ModelRequest {
        config: Some(json!({"seed": seed})),
        ..request("a")
    };
    record(&folder, &[seeded(1)], vec!["one".into()]).await;
    let replayer = Replayer::open(folder.cassette()).unwrap();

    assert!(replay(&replayer, seeded(2)).await.is_err());
    assert_eq!(
        replay(&replayer.ignoring("/config/seed"), seeded(2))
            .await
            .unwrap(),
        "one"
    );
}

#[tokio::test]
async fn no_credential_reaches_the_file_and_another_one_replays_it() {
    let folder = Folder::new();
    let with_key = |key: &str| ModelRequest {
        config: Some(json!({"apiKey": key, "topK": 3})),
        ..request("a")
    };
    let leaking = Reply::error(Error::unauthenticated("no such key: sk-very-secret")).chunk("sk-very-secret");
    record(&folder, &[with_key("sk-very-secret")], vec![leaking]).await;

    let error = replay(
        &Replayer::open(folder.cassette()).unwrap(),
        with_key("sk-another"),
    )
    .await
    .unwrap_err();

    assert!(!folder.text().contains("sk-very-secret"), "{}", folder.text());
    assert_eq!(error.message(), "no such key: [removed]");
}

#[tokio::test]
async fn the_file_is_for_people() {
    let folder = Folder::new();
    record(
        &folder,
        &[request("Leeks?")],
        vec![Reply::text("Soup.").chunk("Soup.")],
    )
    .await;

    let expected = json!({
        "version": 1,
        "recordings": [{
            "model": "chef",
            "request": {"messages": [{"content": [{"text": "Leeks?"}], "role": "user"}]},
            "chunks": [{"content": [{"text": "Soup."}]}],
            "response": {"message": {"role": "model", "content": [{"text": "Soup."}]}, "finishReason": "stop"},
        }],
    });
    assert_eq!(folder.text(), format!("{expected:#}\n"));
}

#[tokio::test]
async fn a_file_that_is_no_cassette_is_refused() {
    let folder = Folder::new();
    let path = folder.0.path().join("other.json");
    fs::write(&path, r#"{"version": 7, "recordings": []}"#).unwrap();

    let newer = Replayer::open(&path).unwrap_err();
    let missing = Replayer::open(folder.cassette()).unwrap_err();

    assert_eq!(newer.status(), Status::InvalidArgument);
    assert!(newer.message().contains("version 7"), "{newer}");
    assert_eq!(missing.status(), Status::NotFound);
}

#[tokio::test]
async fn a_call_that_is_not_streamed_is_recorded_without_chunks() {
    let folder = Folder::new();
    let registry = Registry::new();
    let model = ScriptedModel::new().reply(Reply::text("Soup.").streamed());
    let recorded = Recorder::new(folder.cassette()).wrap("chef", model.clone());
    let action = register_model(&registry, "chef", recorded).unwrap();

    action.run(request("a")).await.unwrap();

    assert!(!model.calls()[0].is_streaming);
    assert!(!folder.text().contains("chunks"), "{}", folder.text());
}
