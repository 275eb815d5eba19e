//! The shapes of evaluation: a data set in, scores out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::JsonObject;

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
    /// What went in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// What the output was to be based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<Value>>,
    /// What should have come out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Value>,
    /// The name of the case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_case_id: Option<String>,
    /// The traces in which the output came about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_ids: Option<Vec<String>>,
}

/// An evaluator's answer: the evaluation of each case.
pub type EvalResponse = Vec<EvalFnResponse>;

/// The evaluation of one case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvalFnResponse {
    /// The index of the sample, when a case is run several times.
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
    /// Several scores, told apart by their ids.
    Many(Vec<Score>),
    /// One score.
    One(Score),
}

/// How well a case did in one respect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// Tells several scores of a case apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The score itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<ScoreValue>,
    /// Whether the case passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<EvalStatus>,
    /// Why there is no score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// More about the score, for instance its `reasoning`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<JsonObject>,
}

/// A score is a number, a word or a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ScoreValue {
    /// Yes or no.
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

/// What people are told about an evaluator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluatorInfo {
    /// Whether using it costs money.
    pub evaluator_is_billed: bool,
    /// A name for people.
    pub evaluator_display_name: String,
    /// What it measures.
    pub evaluator_definition: String,
}
