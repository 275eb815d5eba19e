//! Stopping a model that repeats one call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use everturn_core::{Context, Error, Result, Status};
use parking_lot::Mutex;
use serde_json::json;

use super::tool_errors::failed_call_answer;
use crate::approval::call_digest;
use crate::{MultipartToolResponse, Part, ToolRequest, reason};

/// The number of times each call was made in a turn; an extension of the context.
///
/// A call is a tool with its arguments. Equal calls in one message of the model count once, because they were
/// requested together.
struct Repetitions {
    at_most: u32,
    calls: Mutex<HashMap<String, u32>>,
}

/// The decision about a tool request.
pub(super) enum Verdict {
    Run,
    /// The model gets a message that it already made the call.
    Answer(MultipartToolResponse),
}

/// Gives a context a limit for equal tool calls, counted from here on in all generations in the context.
///
/// A tool is called at most that often with the same arguments. The next equal call is answered with a
/// message to the model, and the one after it ends the generation with `RESOURCE_EXHAUSTED` and
/// [`reason::REPEATED_CALL`](crate::reason::REPEATED_CALL).
pub fn with_repeated_calls(context: Context, at_most: u32) -> Context {
    context.with_extension(Arc::new(Some(Repetitions {
        at_most,
        calls: Mutex::default(),
    })))
}

/// Removes the limit for generations inside a tool, whose calls are not part of this conversation.
pub(super) fn without_repetitions(context: Context) -> Context {
    if context.extension::<Option<Repetitions>>().is_none() {
        return context;
    }
    context.with_extension(Arc::new(None::<Repetitions>))
}

/// Counts the requests of a message and returns a verdict for each.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if the model made the call again after the message.
pub(super) fn judge(context: &Context, parts: &[Part]) -> Result<Vec<Verdict>> {
    let repetitions = context.extension::<Option<Repetitions>>();
    let Some(repetitions) = repetitions.as_ref().and_then(|limit| limit.as_ref().as_ref()) else {
        return Ok(parts.iter().map(|_| Verdict::Run).collect());
    };
    repetitions.judge(parts)
}

impl Repetitions {
    fn judge(&self, parts: &[Part]) -> Result<Vec<Verdict>> {
        let mut counts = self.calls.lock();
        let mut counted = HashSet::new();
        let mut verdict = |part: &Part| {
            let Some(request) = part.as_tool_request() else {
                return Ok(Verdict::Run);
            };
            let call = call_digest(request);
            let count = counts.entry(call.clone()).or_default();
            if counted.insert(call) {
                *count += 1;
            }
            match count.saturating_sub(self.at_most) {
                0 => Ok(Verdict::Run),
                1 => Ok(Verdict::Answer(warning(request, self.at_most))),
                _ => Err(repeated(request, self.at_most)),
            }
        };
        parts.iter().map(&mut verdict).collect()
    }
}

fn warning(request: &ToolRequest, at_most: u32) -> MultipartToolResponse {
    let message = format!(
        "not called: '{}' was called with these arguments {at_most} times in this turn already; use the answers that it gave, \
         call it with other arguments, or answer without it",
        request.name
    );
    failed_call_answer(Some(Status::ResourceExhausted), &message)
}

fn repeated(request: &ToolRequest, at_most: u32) -> Error {
    Error::resource_exhausted(format!(
        "the model keeps calling tool '{}' with the same arguments: {at_most} calls were made, and it was warned once",
        request.name
    ))
    .with_reason(reason::REPEATED_CALL)
    .with_details(json!({
        "limit": { "per": "turn", "of": "repeatedCalls", "max": at_most, "tool": request.name },
        "reason": reason::REPEATED_CALL.name(),
        "retryable": false,
    }))
    .with_public()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn call(input: Value) -> Part {
        Part::from(ToolRequest::new("look", input))
    }

    fn runs(verdicts: Result<Vec<Verdict>>) -> Vec<bool> {
        let verdicts = verdicts.unwrap().into_iter();
        verdicts.map(|verdict| matches!(verdict, Verdict::Run)).collect()
    }

    #[test]
    fn equal_calls_run_up_to_the_limit_then_get_a_warning_and_then_fail() {
        let context = with_repeated_calls(Context::new(), 2);
        let same = [call(json!({"a": 1, "b": 2}))];
        let reordered = [call(json!({"b": 2, "a": 1}))];

        assert_eq!(runs(judge(&context, &same)), [true]);
        assert_eq!(runs(judge(&context, &reordered)), [true]);
        assert_eq!(runs(judge(&context, &[call(json!({"a": 2}))])), [true]);
        assert_eq!(runs(judge(&context, &same)), [false]);
        let error = judge(&context, &same).err().unwrap();
        assert!(error.is(reason::REPEATED_CALL));
    }

    #[test]
    fn equal_calls_of_one_message_count_once() {
        let context = with_repeated_calls(Context::new(), 1);
        let dice = [call(json!({})), call(json!({})), call(json!({}))];

        assert_eq!(runs(judge(&context, &dice)), [true, true, true]);
        assert_eq!(runs(judge(&context, &dice)), [false, false, false]);
        assert!(judge(&context, &dice).is_err());
    }

    #[test]
    fn without_a_limit_every_call_runs() {
        let context = without_repetitions(with_repeated_calls(Context::new(), 1));

        for _ in 0..4 {
            assert_eq!(runs(judge(&context, &[call(json!({}))])), [true]);
        }
    }
}
