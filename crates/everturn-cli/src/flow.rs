//! `everturn run`.

use std::io::Read;

use clap::Args;
use everturn_core::Status;
use serde_json::{Value, json};

use crate::agents::listing;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, clean, spinner};
use crate::server::Server;
use crate::target::Target;

#[derive(Debug, Args)]
pub(crate) struct FlowArguments {
    /// The flow
    flow: Option<String>,

    /// The input as JSON; '-' reads it from standard input
    #[arg(value_name = "JSON")]
    input: Option<String>,

    /// The input as plain text
    #[arg(long, value_name = "TEXT", conflicts_with = "input")]
    text: Option<String>,

    /// Print chunks as they arrive
    #[arg(long)]
    stream: bool,
}

pub(crate) async fn run(arguments: FlowArguments, target: &Target, output: Output) -> Outcome {
    let server = target.server("everturn run")?;
    let Some(name) = &arguments.flow else {
        return list(server, output).await;
    };
    let input = arguments.input()?;
    let flow = server.flow(name).await?;
    let result = if arguments.stream {
        let mut stream = flow.stream(input)?;
        while let Some(chunk) = stream.next().await {
            output.show(&json!({ "message": chunk }), || format!("{}\n", readable(&chunk)))?;
        }
        stream.output().await
    } else {
        let sign_of_life = spinner(output, "running");
        let result = flow.run(input).await;
        sign_of_life.finish_and_clear();
        result
    };
    let result = result.map_err(|error| match error.status() {
        // The default next step is about sessions.
        Status::NotFound => Failure::from(error).or_next("the flow returned this error: check its input"),
        _ => error.into(),
    })?;
    let wire = if arguments.stream {
        json!({ "result": result })
    } else {
        result.clone()
    };
    output.show(&wire, || format!("{}\n", readable(&result)))?;
    Ok(Exit::Done)
}

async fn list(server: &Server, output: Output) -> Outcome {
    let flows = server.index().await?.unwrap_or_default().flows;
    output.show(&json!({ "flows": flows }), || listing("FLOW", &flows))?;
    if flows.is_empty() {
        output.remark(format!(
            "{} describes no flows in its /openapi.json.",
            server.base()
        ));
    }
    Ok(Exit::Done)
}

impl FlowArguments {
    fn input(&self) -> Outcome<Value> {
        if let Some(text) = &self.text {
            return Ok(text.as_str().into());
        }
        let typed = match self.input.as_deref() {
            None => return Ok(Value::Null),
            Some("-") => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text)?;
                text
            }
            Some(typed) => typed.to_owned(),
        };
        serde_json::from_str(&typed).map_err(|error| {
            Failure::wrong(format!("the input is not JSON: {error}"))
                .or_next("for plain text use --text TEXT")
        })
    }
}

/// Returns a string without quotes, and any other value as JSON.
fn readable(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        other => clean(&format!("{other:#}")),
    }
}
