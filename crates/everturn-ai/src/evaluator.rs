//! Evaluators: every case of a data set gets a score, even if its evaluation fails.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{
    Action, ActionType, Context, Error, HandlerResult, Registry, Result, SpanKind, catch_panic, in_span,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value, json};
use uuid::Uuid;

use crate::JsonObject;
use crate::primitive::{call, metadata};

/// An evaluator in the registry.
pub type EvaluatorAction = Action<EvalRequest, EvalResponse>;

/// Registers an evaluator from a function that scores one case; the function gets `options` unchanged.
///
/// Each case runs in its own span. A case that fails gets a score with the error, and the evaluation
/// continues.
///
/// # Errors
/// `ALREADY_EXISTS` if there is an evaluator of that name.
pub fn define_evaluator<F, Fut>(
    registry: &Registry,
    name: impl Into<String>,
    info: &EvaluatorInfo,
    function: F,
) -> Result<EvaluatorAction>
where
    F: Fn(EvalDataPoint, Option<Value>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult<Evaluation>> + Send + 'static,
{
    let function = Arc::new(function);
    let metadata = metadata([("type", json!("evaluator")), ("evaluator", json!(info))]);
    let run = move |request: EvalRequest, context: Context| {
        let function = Arc::clone(&function);
        async move {
            let mut responses = Vec::with_capacity(request.dataset.len());
            for case in request.dataset {
                responses.push(score(&*function, case, request.options.clone(), context.clone()).await);
            }
            Ok(responses)
        }
    };
    let action = Action::new(ActionType::EVALUATOR, name, run).with_metadata(metadata);
    registry.register(Arc::new(action.clone()))?;
    Ok(action)
}

async fn score<F, Fut>(
    function: &F,
    mut case: EvalDataPoint,
    options: Option<Value>,
    context: Context,
) -> EvalFnResponse
where
    F: Fn(EvalDataPoint, Option<Value>) -> Fut,
    Fut: Future<Output = HandlerResult<Evaluation>>,
{
    // Assigned here, because the span and the result both name the case.
    let id = case
        .test_case_id
        .get_or_insert_with(|| Uuid::new_v4().to_string())
        .clone();
    let name = format!("Test Case {id}");
    let mut ids = None;
    let found = &mut ids;
    let scored = in_span(
        &name,
        SpanKind::Action(&ActionType::EVALUATOR),
        context,
        |_context, recorder| async move {
            *found = recorder.ids();
            recorder.input(&case);
            let evaluation =
                // One case must not end the evaluation of the others.
                catch_panic("the evaluator", async { Ok(function(case, options).await?) }).await?;
            recorder.output(&evaluation);
            Ok(evaluation)
        },
    )
    .await;
    EvalFnResponse {
        sample_index: None,
        test_case_id: id,
        trace_id: ids.map(|ids| ids.trace.to_string()),
        span_id: ids.map(|ids| ids.span.to_string()),
        evaluation: scored.unwrap_or_else(|error| failed(&error)),
    }
}

fn failed(error: &Error) -> Evaluation {
    Evaluation::One(Score {
        status: Some(EvalStatus::Fail),
        error: Some(format!("the evaluation of this case failed: {error}")),
        ..Score::default()
    })
}

/// Scores a data set with the evaluator of that name.
///
/// # Errors
/// `NOT_FOUND` if there is no such evaluator, or else its error.
pub async fn evaluate(registry: &Registry, evaluator: &str, request: EvalRequest) -> Result<EvalResponse> {
    call(registry, &ActionType::EVALUATOR, evaluator, request).await
}

/// A request to an evaluator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalRequest {
    /// The cases to evaluate.
    pub dataset: Vec<EvalDataPoint>,
    /// The name of the evaluation run.
    pub eval_run_id: String,
    /// Settings for the evaluator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Value>,
}

/// One case to evaluate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BaseDataPoint")]
pub struct EvalDataPoint {
    /// The input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The context on which the output should be based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<Value>>,
    /// The expected output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Value>,
    /// The name of the case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_case_id: Option<String>,
    /// The traces of the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_ids: Option<Vec<String>>,
}

/// The response of an evaluator: the evaluation of each case.
pub type EvalResponse = Vec<EvalFnResponse>;

/// The evaluation of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalFnResponse {
    /// The index of the sample, if a case is evaluated several times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_index: Option<u32>,
    /// The name of the case.
    pub test_case_id: String,
    /// The trace of the evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The span of the evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_id: Option<String>,
    /// The score, or several.
    pub evaluation: Evaluation,
}

/// One score or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Evaluation {
    /// Several scores, distinguished by their ids.
    Many(Vec<Score>),
    /// One score.
    One(Score),
}

/// A score of a case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The id of the score among several scores of a case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The score itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreValue>,
    /// Whether the case passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<EvalStatus>,
    /// The reason why there is no score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Details of the score, for instance its `reasoning`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<JsonObject>,
}

/// A score is a number, a word or a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScoreValue {
    /// A boolean.
    Verdict(bool),
    /// A number.
    Number(Number),
    /// A word.
    Text(String),
}

/// Whether a case passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
pub enum EvalStatus {
    /// Not decided.
    Unknown,
    /// It passed.
    Pass,
    /// It failed.
    Fail,
}

/// The description of an evaluator for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluatorInfo {
    /// Whether using it costs money.
    pub evaluator_is_billed: bool,
    /// The display name.
    pub evaluator_display_name: String,
    /// The property that it measures.
    pub evaluator_definition: String,
}
