//! A program with one of everything that the developer tools display, for checks with the real tools.
#![allow(clippy::disallowed_methods, reason = "work takes its time")]

mod models;

use std::time::Duration;

use everturn::ai::{Evaluation, EvaluatorInfo, Score, ScoreValue, define_evaluator};
use everturn::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::models::{Echo, Reflector};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Place {
    city: String,
}

/// Tells the weather of a city.
#[tool(name = "getWeather")]
async fn get_weather(place: Place) -> Result<String> {
    Ok(format!("sunny in {}", place.city))
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Said {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Greeted {
    who: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Count {
    count: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let app = Everturn::builder()
        .model("fake/echo", Echo)
        .model("customReflector", Reflector)
        .default_model("fake/echo")
        .tool(get_weather)
        .build()
        .await?;
    define_flows(&app)?;
    define_evaluators(&app)?;
    PromptDefinition::new("greet")
        .input::<Greeted>()
        .model("fake/echo")
        .config(json!({ "temperature": 0.5 }))
        .tool("getWeather")
        .prompt("hello {{who}}")
        .define(app.registry())?;
    app.agent("chatty")
        .model("fake/echo")
        .system("be brief")
        .tool("getWeather")
        .store(MemoryStore::new())
        .define()?;
    app.agent("stateless")
        .model("fake/echo")
        .system("be brief")
        .define()?;

    match app.dev_tools().await? {
        Some(tools) => tools.run_until_shutdown().await,
        // Outside development nothing is served; the process stays until it is stopped.
        None => std::future::pending().await,
    }
    Ok(())
}

fn define_flows(app: &Everturn) -> Result<()> {
    let echo = app.clone();
    app.flow("echoFlow", move |said: Said| {
        let app = echo.clone();
        async move {
            let text = run("prep", || async { Ok(said.text.trim().to_owned()) }).await?;
            Ok(app.generate().prompt(text).run().await?.text().into_owned())
        }
    })?;
    let tools = app.clone();
    app.flow("toolFlow", move |question: String| {
        let app = tools.clone();
        async move {
            let answer = app.generate().prompt(question).tool("getWeather").run().await?;
            Ok(answer.text().into_owned())
        }
    })?;
    app.streaming_flow("streamFlow", |n: u32, emitter: Emitter<Count>| async move {
        for count in 0..n {
            emitter.send(Count { count }).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(format!("done: {n}"))
    })?;
    app.flow("failFlow", |_: Value| async {
        let boom: Result<()> = run("boomStep", || async { Err(Error::internal("boom").into()) }).await;
        Ok(boom?)
    })?;
    app.flow("slowFlow", |_: Value| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok("slept".to_owned())
    })?;
    app.flow("ctxFlow", |_: Value| async {
        Ok(json!({ "context": Context::current().values() }))
    })?;
    app.flow("logFlow", |_: Value| async {
        tracing::info!("hello from logFlow");
        Ok("logged".to_owned())
    })?;
    Ok(())
}

fn define_evaluators(app: &Everturn) -> Result<()> {
    let info = EvaluatorInfo {
        evaluator_is_billed: false,
        evaluator_display_name: "Always One".to_owned(),
        evaluator_definition: "Gives every case a one".to_owned(),
    };
    define_evaluator(app.registry(), "fake/alwaysOne", &info, |_case, _options| async {
        let details = json!({ "reasoning": "because" });
        Ok(Evaluation::One(Score {
            score: Some(ScoreValue::Number(1.into())),
            details: details.as_object().cloned(),
            ..Score::default()
        }))
    })?;
    Ok(())
}
