//! Counting the lists in what a client sends to an agent, before anything works on them.

use everturn_core::{Error, Result};
use serde_json::Value;

use super::Limits;

impl Limits {
    /// Checks the numbers of messages, parts, tool requests and answers in an agent's input and in the value
    /// that opens it.
    ///
    /// Fails with `INVALID_ARGUMENT`, naming the limit and how to raise it. Schema validation rejects values
    /// that are not lists.
    pub(crate) fn check_counts(&self, input: Option<&Value>, init: Option<&Value>) -> Result<()> {
        let mut counts = Counts::default();
        if let Some(input) = input {
            counts.add_message(&input["message"]);
            for earlier in input["earlier"].as_array().into_iter().flatten() {
                counts.add_message(earlier);
            }
            for answers in [&input["resume"]["respond"], &input["resume"]["restart"]] {
                counts.answers += answers.as_array().map_or(0, Vec::len);
                counts.add_parts(answers);
            }
        }
        let messages = init.map(|init| &init["state"]["messages"]);
        for message in messages.and_then(Value::as_array).into_iter().flatten() {
            counts.add_message(message);
        }
        let Counts {
            messages,
            parts,
            tool_requests,
            answers,
        } = counts;
        for (count, most, what, option) in [
            (answers, self.answers, "answers in 'resume'", "answers"),
            (messages, self.messages, "messages", "messages"),
            (parts, self.parts, "parts", "parts"),
            (
                tool_requests,
                self.tool_requests,
                "tool requests",
                "tool_requests",
            ),
        ] {
            if count > most {
                let message = format!(
                    "the request has {count} {what} and may have {most}: send fewer, or let the server allow more with Limits::{option}"
                );
                return Err(Error::invalid_argument(message).with_public());
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Counts {
    messages: usize,
    parts: usize,
    tool_requests: usize,
    answers: usize,
}

impl Counts {
    fn add_message(&mut self, message: &Value) {
        self.messages += usize::from(!message.is_null());
        self.add_parts(&message["content"]);
    }

    fn add_parts(&mut self, parts: &Value) {
        let parts = parts.as_array().map_or(&[][..], Vec::as_slice);
        self.parts += parts.len();
        let is_request = |part: &&Value| part.get("toolRequest").is_some();
        self.tool_requests += parts.iter().filter(is_request).count();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(limits: &Limits, input: &Value, init: &Value) -> String {
        let error = limits.check_counts(Some(input), Some(init)).unwrap_err();
        error.public_message().unwrap().to_owned()
    }

    #[test]
    fn every_list_has_a_limit_that_the_refusal_names() {
        let limits = Limits::default().messages(2).parts(4).tool_requests(1).answers(2);
        let texts =
            |count| json!({ "message": { "role": "user", "content": vec![json!({"text": "x"}); count] } });
        let request = json!({ "toolRequest": { "name": "pay" } });
        let state = |content: &Value, count| json!({ "state": { "messages": vec![json!({ "role": "model", "content": content }); count] } });

        limits.check_counts(Some(&texts(4)), Some(&json!({}))).unwrap();
        for (input, init, option) in [
            (texts(5), json!({}), "Limits::parts"),
            (texts(1), state(&json!([]), 2), "Limits::messages"),
            (
                texts(1),
                state(&json!([request, request]), 1),
                "Limits::tool_requests",
            ),
            (
                json!({ "resume": { "restart": [request], "respond": [{}, {}] } }),
                json!({}),
                "Limits::answers",
            ),
        ] {
            let message = refusal(&limits, &input, &init);

            assert!(message.contains(option), "{message}");
        }
    }

    #[test]
    fn what_is_no_list_is_left_to_the_schema() {
        for wrong in [
            json!(1),
            json!([]),
            json!({"message": 1}),
            json!({"resume": {"restart": {}}}),
        ] {
            Limits::default()
                .check_counts(Some(&wrong), Some(&wrong))
                .unwrap();
        }
    }
}
