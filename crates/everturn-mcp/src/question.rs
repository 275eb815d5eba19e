//! Questions of a server during a call, and the answers to them.

use std::collections::BTreeMap;

use everturn_ai::ToolContext;
use everturn_core::{Error, Result};
use rmcp::model::InputRequests;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The data of an interrupt from a tool of an MCP server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) mcp: Question,
}

/// The questions that a server needs answered to continue.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Question {
    pub(crate) server: String,
    /// The questions, by the names of their answers.
    pub(crate) input_requests: Map<String, Value>,
    /// Opaque state of the server, which is returned with the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request_state: Option<String>,
    /// The task that asks, if it is not the call itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
}

impl Question {
    pub(crate) fn new(server: &str, requests: Option<InputRequests>) -> Result<Self> {
        let requests = serde_json::to_value(requests.unwrap_or_default())?;
        Ok(Self {
            server: server.to_owned(),
            input_requests: requests.as_object().cloned().unwrap_or_default(),
            request_state: None,
            task_id: None,
        })
    }

    /// Returns the question that a restarted call answers, if this server asked it.
    pub(crate) fn answered_by(context: &ToolContext, server: &str) -> Option<Self> {
        let asked = Asked::deserialize(context.interrupted_with()?).ok()?;
        Some(asked.mcp).filter(|question| question.server == server)
    }

    /// Returns the interrupt that asks the question.
    pub(crate) fn interrupt(self) -> Error {
        everturn_ai::interrupt(Asked { mcp: self })
    }

    /// Returns the answers in the data of a restarted call: by name, or the whole data for a single question.
    pub(crate) fn answers(&self, resumed: &Value) -> Result<BTreeMap<String, Value>> {
        let requests = &self.input_requests;
        if requests.is_empty() {
            return Ok(BTreeMap::new());
        }
        if let Value::Object(answers) = resumed
            && requests.keys().all(|name| answers.contains_key(name))
        {
            let named = answers.iter().filter(|(name, _)| requests.contains_key(*name));
            return Ok(named
                .map(|(name, answer)| (name.clone(), answer.clone()))
                .collect());
        }
        match requests.keys().next() {
            Some(name) if requests.len() == 1 => Ok(BTreeMap::from([(name.clone(), single(resumed))])),
            _ => {
                let names: Vec<_> = requests.keys().map(String::as_str).collect();
                let message = format!(
                    "MCP server '{}' asked for several things: restart the call with an object of answers to {}",
                    self.server,
                    names.join(", ")
                );
                Err(Error::invalid_argument(message).with_public())
            }
        }
    }
}

/// Returns the answer to a single question: in the protocol's form, or as the content of its form.
fn single(resumed: &Value) -> Value {
    match resumed {
        Value::Object(answer) if answer.contains_key("action") => resumed.clone(),
        Value::Bool(false) | Value::Null => json!({ "action": "decline" }),
        Value::Bool(true) => json!({ "action": "accept", "content": {} }),
        content => json!({ "action": "accept", "content": content }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(names: &[&str]) -> Question {
        Question {
            server: "s".to_owned(),
            input_requests: names
                .iter()
                .map(|name| ((*name).to_owned(), Value::Null))
                .collect(),
            request_state: None,
            task_id: None,
        }
    }

    #[test]
    fn a_single_question_is_answered_without_its_name() {
        let answer = |resumed: Value| question(&["who"]).answers(&resumed).unwrap()["who"].clone();

        assert_eq!(
            answer(json!({ "name": "Ada" })),
            json!({ "action": "accept", "content": { "name": "Ada" } })
        );
        assert_eq!(answer(json!(false)), json!({ "action": "decline" }));
        assert_eq!(
            answer(json!({ "who": { "action": "cancel" } })),
            json!({ "action": "cancel" })
        );
    }

    #[test]
    fn several_questions_need_an_answer_each() {
        let refused = question(&["who", "when"])
            .answers(&json!({ "who": 1 }))
            .unwrap_err();

        assert!(refused.message().contains("when, who") || refused.message().contains("who, when"));
    }
}
