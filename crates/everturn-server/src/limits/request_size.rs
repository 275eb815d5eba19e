//! The size of a request: its lists, and the memory of its values, before anything works on them.

use bytes::Bytes;
use everturn_core::offload::{HEAVY, offload, parsed_size};
use everturn_core::{Error, Result};
use serde_json::Value;

use super::Limits;

/// The size of a text below which nothing is estimated: its values take little in any case.
const SMALL: usize = 64 * 1024;

impl Limits {
    /// As [`Limits::check_parsed_size`], on a thread that may be held up if the text is long.
    pub(crate) async fn parsed_size(&self, text: &Bytes) -> Result<usize> {
        if text.len() <= HEAVY {
            return self.check_parsed_size(text);
        }
        let (text, limits) = (text.clone(), self.clone());
        offload(move || limits.check_parsed_size(&text)).await
    }

    /// Returns about how many bytes of memory the values of a JSON text will take; 0 for a small text.
    ///
    /// Fails with `INVALID_ARGUMENT` if they are more than allowed, naming the limit and how to raise it.
    fn check_parsed_size(&self, text: &[u8]) -> Result<usize> {
        if text.len() < SMALL {
            return Ok(0);
        }
        let bytes = parsed_size(text);
        if bytes > self.json_bytes {
            let message = format!(
                "the values of the request would take about {bytes} bytes of memory and may take {}: send fewer, \
                 or let the server allow more with Limits::json_bytes",
                self.json_bytes
            );
            return Err(Error::invalid_argument(message).with_public());
        }
        Ok(bytes)
    }

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

    #[test]
    fn a_text_that_would_take_too_much_is_refused_and_the_limit_named() {
        let limits = Limits::default().json_bytes(1_000_000);
        let objects = format!("[{}]", vec![r#"{"":0}"#; 20_000].join(","));

        let error = limits.check_parsed_size(objects.as_bytes()).unwrap_err();

        assert!(
            error.public_message().unwrap().contains("Limits::json_bytes"),
            "{error}"
        );
        assert_eq!(
            limits.check_parsed_size(&objects.as_bytes()[..60_000]).unwrap(),
            0
        );
        let text = vec![b'x'; 500_000];
        assert_eq!(limits.check_parsed_size(&text).unwrap(), 500_000);
    }
}
