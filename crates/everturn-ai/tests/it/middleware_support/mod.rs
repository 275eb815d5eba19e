//! Running rounds of tool calls against middleware.

use everturn_ai::{Generate, IntoMiddleware, ModelRequest, Part, Role};
use everturn_core::{Registry, Result};
use serde_json::Value;

pub(crate) use crate::generate_support::{Reply, Script};

/// The result of one round of tool calls.
#[derive(Debug)]
pub(crate) struct Round {
    /// The tools' outputs, in the order of the calls.
    pub(crate) outputs: Vec<Value>,
    /// The content that middleware showed the model after them.
    pub(crate) shown: Vec<Part>,
}

impl Round {
    /// The only output, as text.
    pub(crate) fn answer(&self) -> &str {
        assert_eq!(self.outputs.len(), 1, "{:?}", self.outputs);
        self.outputs[0].as_str().expect("the output is text")
    }

    /// The text of all that was shown.
    pub(crate) fn shown_text(&self) -> String {
        self.shown.iter().filter_map(Part::as_text).collect()
    }
}

/// Lets a model make rounds of tool calls with a middleware in use, and returns the result of each.
pub(crate) async fn run_rounds<const N: usize>(
    middleware: impl IntoMiddleware,
    rounds: [&[(&str, Value)]; N],
) -> Result<Vec<Round>> {
    let registry = Registry::new();
    let replies = rounds
        .iter()
        .map(|calls| Reply::calls(calls))
        .chain([Reply::text("done")]);
    let script = Script::register(&registry, "scripted", replies);
    Generate::new(&registry)
        .model("scripted")
        .prompt("go on")
        .max_rounds(u32::try_from(N).unwrap())
        .use_middleware(middleware)
        .run()
        .await?;
    Ok(script.requests().iter().skip(1).map(last_round).collect())
}

fn last_round(request: &ModelRequest) -> Round {
    let answered = request
        .messages
        .rposition(|message| message.role() == Role::Tool)
        .expect("tools have answered");
    let responses = request
        .messages
        .get(answered)
        .unwrap()
        .content()
        .iter()
        .filter_map(Part::as_tool_response);
    let shown = request.messages.get(answered + 1);
    if let Some(shown) = shown {
        assert_eq!(shown.role(), Role::User);
    }
    Round {
        outputs: responses
            .map(|response| response.output.clone().unwrap_or_default())
            .collect(),
        shown: shown
            .map(|message| message.content().to_vec())
            .unwrap_or_default(),
    }
}
