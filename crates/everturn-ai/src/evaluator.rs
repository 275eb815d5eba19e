//! Evaluators: every case of a data set gets a score, also when scoring it fails.

use std::future::Future;
use std::sync::Arc;

use everturn_core::{
    Action, ActionType, Context, Error, HandlerResult, Registry, Result, SpanKind, catch_panic, in_span,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::primitive::{call, metadata};
use crate::{
    EvalDataPoint, EvalFnResponse, EvalRequest, EvalResponse, EvalStatus, Evaluation, EvaluatorInfo, Score,
};

/// An evaluator as the registry holds it.
pub type EvaluatorAction = Action<EvalRequest, EvalResponse>;

/// Registers an evaluator from a function that scores one case; `options` reach it as they were given.
///
/// Each case runs in a span of its own. A case that fails gets a score that says so, and the run goes on.
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
    let id = case
        .test_case_id
        .get_or_insert_with(|| Uuid::new_v4().to_string())
        .clone();
    let name = format!("Test Case {id}");
    let scored = in_span(
        &name,
        SpanKind::Action(&ActionType::EVALUATOR),
        context,
        |_context, recorder| async move {
            recorder.input(&case);
            let evaluation =
                catch_panic("the evaluator", async { Ok(function(case, options).await?) }).await?;
            recorder.output(&evaluation);
            Ok(evaluation)
        },
    )
    .await;
    EvalFnResponse {
        sample_index: None,
        test_case_id: id,
        trace_id: None,
        span_id: None,
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
/// `NOT_FOUND` if there is no such evaluator, else what it fails with as a whole.
pub async fn evaluate(registry: &Registry, evaluator: &str, request: EvalRequest) -> Result<EvalResponse> {
    call(registry, &ActionType::EVALUATOR, evaluator, request).await
}
