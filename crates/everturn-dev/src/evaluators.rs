//! Evaluators without a model: they compare a case's output with its reference.

use bumpalo::Bump;
use everturn_ai::{
    EvalDataPoint, EvalStatus, Evaluation, EvaluatorInfo, Score, ScoreValue, define_evaluator,
};
use everturn_core::{Error, Registry, Result};
use jsonata_rs::JsonAta;
use regex::Regex;
use serde_json::Value;

/// Registers the three evaluators without a model, under the names that the tools use.
///
/// | name | passes if |
/// |---|---|
/// | `genkitEval/regex` | the reference, a regular expression, matches the output's text or its JSON |
/// | `genkitEval/deep_equal` | output and reference are equal as JSON |
/// | `genkitEval/jsonata` | the reference, a `JSONata` expression, evaluates to true for the output |
///
/// A case without reference or output, or with an invalid reference, fails with an error.
///
/// # Errors
/// `ALREADY_EXISTS` if one of the names is taken.
pub fn register_evaluators(registry: &Registry) -> Result<()> {
    let evaluators: [(&str, &str, &str, Check); 3] = [
        (
            "regex",
            "RegExp",
            "Tests the output against the regular expression given as the reference",
            regex,
        ),
        (
            "deep_equal",
            "Deep Equal",
            "Tests whether the output is equal to the reference",
            deep_equal,
        ),
        (
            "jsonata",
            "JSONata",
            "Tests the JSONata expression given as the reference against the output",
            jsonata,
        ),
    ];
    for (name, title, definition, check) in evaluators {
        let info = EvaluatorInfo {
            evaluator_is_billed: false,
            evaluator_display_name: title.to_owned(),
            evaluator_definition: definition.to_owned(),
        };
        define_evaluator(
            registry,
            format!("genkitEval/{name}"),
            &info,
            move |case, _options| async move { Ok(verdict(judge(&case, check)?)) },
        )?;
    }
    Ok(())
}

/// Compares an output with a reference.
type Check = fn(&Value, &Value) -> Result<bool>;

fn judge(case: &EvalDataPoint, check: Check) -> Result<bool> {
    let missing = |what: &str| Error::invalid_argument(format!("the case has no {what}"));
    let output = case.output.as_ref().ok_or_else(|| missing("output"))?;
    let reference = case.reference.as_ref().ok_or_else(|| missing("reference"))?;
    check(output, reference)
}

fn verdict(passed: bool) -> Evaluation {
    Evaluation::One(Score {
        score: Some(ScoreValue::Verdict(passed)),
        status: Some(if passed {
            EvalStatus::Pass
        } else {
            EvalStatus::Fail
        }),
        ..Score::default()
    })
}

fn expression<'a>(reference: &'a Value, language: &str) -> Result<&'a str> {
    reference.as_str().ok_or_else(|| {
        Error::invalid_argument(format!(
            "the reference must be a string with a {language}; it is {reference}"
        ))
    })
}

fn regex(output: &Value, reference: &Value) -> Result<bool> {
    let expression = expression(reference, "regular expression")?;
    let regex = Regex::new(expression).map_err(|error| {
        Error::invalid_argument(format!("the reference is not a regular expression: {error}"))
    })?;
    Ok(match output {
        Value::String(text) => regex.is_match(text),
        other => regex.is_match(&other.to_string()),
    })
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "one of several checks, of which the others can fail"
)]
fn deep_equal(output: &Value, reference: &Value) -> Result<bool> {
    Ok(output == reference)
}

fn jsonata(output: &Value, reference: &Value) -> Result<bool> {
    let expression = expression(reference, "JSONata expression")?;
    let unusable =
        |error| Error::invalid_argument(format!("the reference is not a JSONata expression: {error}"));
    let arena = Bump::new();
    let query = JsonAta::new(expression, &arena).map_err(unusable)?;
    // Bounds on recursion and time, because an expression may call itself.
    let found = query
        .evaluate_timeboxed(Some(&output.to_string()), Some(500), Some(1000))
        .map_err(unusable)?;
    Ok(found.is_truthy())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_regular_expression_is_matched_against_text_and_against_other_output_as_json() {
        assert!(regex(&json!("leek soup"), &json!("^leek")).expect("a verdict"));
        assert!(!regex(&json!("soup"), &json!("^leek")).expect("a verdict"));
        assert!(regex(&json!({ "dish": "leek" }), &json!("\"leek\"")).expect("a verdict"));
    }

    #[test]
    fn equal_json_is_equal_whatever_the_order_of_its_members() {
        let equal = deep_equal(&json!({ "a": 1, "b": [2] }), &json!({ "b": [2], "a": 1 }));
        assert!(equal.expect("a verdict"));
        assert!(!deep_equal(&json!(1), &json!("1")).expect("a verdict"));
    }

    #[test]
    fn a_jsonata_expression_is_true_or_not_of_the_output() {
        let order = json!({ "items": [{ "price": 3 }, { "price": 4 }] });
        assert!(jsonata(&order, &json!("$sum(items.price) = 7")).expect("a verdict"));
        assert!(!jsonata(&order, &json!("items[price > 5]")).expect("a verdict"));
    }

    #[test]
    fn a_reference_that_is_no_expression_is_named() {
        for (check, reference) in [(regex as Check, json!("(")), (jsonata as Check, json!("$sum("))] {
            let error = check(&json!("x"), &reference).expect_err("no expression");
            assert!(error.message().contains("the reference is no"), "{error}");
        }
        let error = regex(&json!("x"), &json!(7)).expect_err("no text");
        assert!(error.message().contains("it is 7"), "{error}");
    }
}
