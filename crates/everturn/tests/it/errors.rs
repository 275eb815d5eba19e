//! Errors from users' functions to callers.

use std::error::Error as StdError;
use std::net::SocketAddr;

use everturn::ai::{
    EmbedRequest, ModelInfo, ModelResponse, define_embedder, define_model, embed_with, model_hook,
};
use everturn::core::{Exposure, Reason};
use everturn::prelude::*;
use everturn::testkit::{OfflineModel, Reply, ScriptedModel};

const EATEN: Reason = Reason::new("eaten");

/// The error of most functions below, with all the data that must be kept.
fn eaten() -> Error {
    Error::not_found("no leeks on shelf 4")
        .with_public_message("no leeks left")
        .with_reason(EATEN)
        .with_details("leeks")
}

/// Another crate's error that contains ours, in the three ways of `thiserror`.
#[derive(Debug, thiserror::Error)]
enum Foreign {
    #[error("cannot look")]
    From(#[from] Error),
    #[error("cannot look at {0}")]
    Source(&'static str, #[source] Error),
    #[error(transparent)]
    Transparent(anyhow::Error),
}

#[track_caller]
fn assert_kept(error: &Error, message: &str) {
    assert_eq!(error.status(), Status::NotFound);
    assert_eq!(error.message(), message);
    assert_eq!(error.public_message(), Some("no leeks left"));
    assert_eq!(error.details(), Some(&json!("leeks")));
    assert!(error.is(EATEN));
}

#[test]
fn an_error_inside_a_foreign_error_is_kept_completely() {
    let cases: [(HandlerError, &str); 8] = [
        (eaten().into(), "no leeks on shelf 4"),
        (anyhow::Error::from(eaten()).into(), "no leeks on shelf 4"),
        (anyhow::Error::from(eaten()).context("no soup").into(), "no soup"),
        (
            anyhow::Error::from(eaten())
                .context("no soup")
                .context("no dinner")
                .into(),
            "no dinner",
        ),
        (Foreign::from(eaten()).into(), "cannot look"),
        (
            Foreign::Source("shelf 4", eaten()).into(),
            "cannot look at shelf 4",
        ),
        (Foreign::Transparent(eaten().into()).into(), "no leeks on shelf 4"),
        (anyhow::Error::from(Foreign::from(eaten())).into(), "cannot look"),
    ];
    for (error, message) in cases {
        assert_kept(&error, message);
        assert_kept(&Error::from(error), message);
    }
}

#[test]
fn an_error_is_a_standard_error_in_both_directions() {
    let ours = || Error::unavailable("store down").with_source(std::fmt::Error);

    let any = anyhow::Error::from(ours());
    assert_eq!(any.downcast_ref::<Error>().unwrap().status(), Status::Unavailable);
    assert!(any.root_cause().is::<std::fmt::Error>());

    let boxed: Box<dyn StdError + Send + Sync> = ours().into();
    assert!(boxed.source().unwrap().is::<std::fmt::Error>());
    let back = Error::foreign(boxed);
    assert_eq!(
        (back.status(), back.message()),
        (Status::Unavailable, "store down")
    );
    assert!(back.find_source::<std::fmt::Error>().is_some());
}

#[test]
fn main_may_return_a_handlers_result() {
    fn main() -> HandlerResult<()> {
        Err("no leeks")?;
        Ok(())
    }

    use std::process::Termination;
    assert_ne!(main().report(), std::process::ExitCode::SUCCESS);
    assert_eq!(format!("{:?}", main().unwrap_err()), "INTERNAL: no leeks");
}

/// A foreign function that fails with a foreign error.
fn others(kind: &str) -> Result<(), anyhow::Error> {
    Err(match kind {
        "ours" => eaten().into(),
        kind => anyhow::anyhow!("no {kind}"),
    })
}

/// Every kind of user function converts any error with `?`, and none needs an explicit type.
#[tokio::test]
async fn every_user_function_converts_any_error() {
    let app = app(OfflineModel::new()).await;

    let flow = app
        .flow("flow", |text: String| async move {
            std::fs::read_to_string("/nowhere/to/be/found").or(Ok::<_, std::io::Error>(String::new()))?;
            let number: u32 = run("read", || async { Ok(text.parse::<u32>()?) }).await?;
            others("leeks")?;
            Ok(number)
        })
        .unwrap();
    let streaming = app
        .streaming_flow("streaming", |number: u32, emitter: Emitter<u32>| async move {
            emitter.send(number).await?;
            Err(Foreign::Source("shelf 4", eaten()))?;
            Ok(number)
        })
        .unwrap();
    let bidi = app
        .bidi_flow(
            "bidi",
            |(): (), mut inputs: Inputs<String>, emitter: Emitter<u32>| async move {
                let text = inputs.next().await.ok_or("nothing was said")?;
                emitter.send(text.parse::<u32>()?).await?;
                Ok(())
            },
        )
        .unwrap();
    let tool = Tool::new("tool", "A tool.", |text: String, _| async move {
        others(&text)?;
        Ok(text.parse::<u32>()?)
    });
    let model = define_model(app.registry(), "failing", ModelInfo::default(), |_, _, _| async {
        others("ours")?;
        Ok(ModelResponse::text_of("never"))
    });
    let embedder = define_embedder(app.registry(), "failing", &<_>::default(), |_, _| async {
        others("ours")?;
        Err(format!("no {}", "vectors"))?
    });
    let hook = model_hook(|call, next| async move {
        others("ours")?;
        Ok(next.run(call).await?)
    });
    let agent = app
        .custom_agent("agent", |session: AgentSession| async move {
            session
                .run(|turn| async move {
                    turn.effect("look", Replay::Pure)
                        .run(|_| async { Ok(others("leeks")?) })
                        .await?;
                    Ok("7".parse::<u32>().map(|_| FinishReason::Stop)?)
                })
                .await?;
            others("ours")?;
            Ok(session.result())
        })
        .state_transform(|state, _| {
            others("ours")?;
            Ok(Some(state))
        })
        .define()
        .unwrap();
    model.unwrap();
    embedder.unwrap();

    let number = flow.run("seven".to_owned()).await.unwrap_err();
    assert!(number.find_source::<std::num::ParseIntError>().is_some());
    assert_eq!(flow.run("7".to_owned()).await.unwrap_err().message(), "no leeks");
    assert_kept(&streaming.run(7).await.unwrap_err(), "cannot look at shelf 4");
    let silent = bidi.connect(()).into_output().await.unwrap_err();
    assert_eq!(silent.message(), "nothing was said");
    assert_kept(&tool.run("ours").await.unwrap_err(), "no leeks on shelf 4");
    let generated = app.generate().model("failing").prompt("Soup?").await;
    assert_kept(&generated.unwrap_err(), "no leeks on shelf 4");
    let hooked = app.generate().use_middleware(hook).prompt("Soup?").await;
    assert_kept(&hooked.unwrap_err(), "no leeks on shelf 4");
    let vectors = embed_with(app.registry(), "failing", EmbedRequest::default()).await;
    assert_kept(&vectors.unwrap_err(), "no leeks on shelf 4");
    assert_eq!(agent.run_text("Soup?").await.unwrap_err().message(), "no leeks");
}

/// Looks for something to cook.
#[tool]
async fn look(what: String) -> anyhow::Result<String> {
    others(&what)?;
    Ok(what)
}

/// Looks again.
#[tool]
async fn look_again(what: String) -> HandlerResult<String> {
    others(&what)?;
    Ok(what)
}

async fn app(model: impl everturn::ai::Model) -> Everturn {
    let app = Everturn::builder().model("model", model).default_model("model");
    app.build().await.unwrap()
}

#[tokio::test]
async fn the_error_of_a_tool_is_the_source_of_the_failed_call() {
    for tool in [look.tool(), look_again.tool()] {
        let input = json!({"what": "ours"});
        assert_kept(&tool.run(&input).await.unwrap_err(), "no leeks on shelf 4");
        let app = app(ScriptedModel::new().reply(Reply::tool(tool.name(), input))).await;

        let error = app.generate().prompt("Soup?").tool(tool).await.unwrap_err();

        assert_kept(error.find_source::<Error>().unwrap(), "no leeks on shelf 4");
    }
}

#[tokio::test]
async fn the_error_of_a_turn_reaches_its_caller() {
    let agent = app(OfflineModel::new())
        .await
        .custom_agent("agent", |session: AgentSession| async move {
            session.run(|_| async { Ok(others("ours")?) }).await?;
            Ok(session.result())
        })
        .define()
        .unwrap();

    let error = agent.run_text("Soup?").await.unwrap_err();

    assert_eq!(
        (error.status(), error.message()),
        (Status::NotFound, "no leeks left")
    );
    assert_eq!(error.details(), Some(&json!("leeks")));
}

#[tokio::test]
async fn the_error_of_a_background_run_is_kept_for_the_operator() {
    let agent = app(OfflineModel::new())
        .await
        .custom_agent("agent", |session: AgentSession| async move {
            session.run(|_| async { Ok(others("ours")?) }).await?;
            Ok(session.result())
        })
        .store(MemoryStore::new())
        .define()
        .unwrap();

    let mut chat = agent.chat().open().await.unwrap();
    let task = chat.detach("Soup?").await.unwrap();
    task.wait().await.unwrap_err();

    let failure = agent
        .get_snapshot(task.snapshot_id().clone())
        .await
        .unwrap()
        .error;
    assert_eq!(failure.unwrap().message, "no leeks on shelf 4");
}

#[tokio::test]
async fn over_http_the_status_and_the_public_message_arrive() {
    let app = app(OfflineModel::new()).await;
    app.flow("look", |what: String| async move { Ok(others(&what)?) })
        .unwrap();
    let server = app.server().exposure(Exposure::Public);
    let server = server.bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let remote: RemoteFlow<String, ()> =
        RemoteFlow::new(&format!("http://{}/flows/look", server.address())).unwrap();
    let serving = tokio::spawn(server.run());

    let public = remote.run("ours".to_owned()).await.unwrap_err();
    let private = remote.run("leeks".to_owned()).await.unwrap_err();

    assert_eq!(
        (public.status(), public.message()),
        (Status::NotFound, "no leeks left")
    );
    assert_eq!(
        (private.status(), private.message()),
        (Status::Internal, "internal error")
    );
    serving.abort();
}
