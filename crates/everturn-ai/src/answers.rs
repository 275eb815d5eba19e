//! Answers to interrupts.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::{JsonObject, Part};

/// Answers to the interrupted tool requests of the last model message.
///
/// Every interrupted request needs one answer: a response, which replaces the tool's output, or a restart,
/// which runs the tool again. An iterator of parts collects into answers: tool responses respond, tool
/// requests restart.
///
/// On the wire the answers are the object `resume`, as in Genkit's other languages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ResumeOptions")]
pub struct Answers {
    /// The tool responses that replace the tools' outputs.
    #[serde(
        default,
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "Option<Vec<Part>>")]
    pub respond: Vec<Part>,
    /// The tool requests to run again.
    #[serde(
        default,
        deserialize_with = "null_as_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(with = "Option<Vec<Part>>")]
    pub restart: Vec<Part>,
    /// Metadata for the tool message that contains the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
}

/// An answer with which a person declines a tool call instead of giving its output.
///
/// It is exempt from the tool's output schema, so that every call can be declined.
///
/// ```
/// use everturn_ai::Declined;
/// use serde_json::json;
///
/// assert_eq!(Declined::Cancelled.output(), json!({"cancelled": true}));
/// assert_eq!(Declined::of(&json!({"denied": true, "reason": "too dear"})), Some(Declined::denied("too dear")));
/// assert_eq!(Declined::of(&json!({"denied": true, "paid": 5})), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// The person cancelled the question: `{"cancelled": true}`.
    Cancelled,
    /// The person denied the call: `{"denied": true, "reason"?}`.
    Denied {
        /// The person's reason, if one was given.
        reason: Option<String>,
    },
}

impl Declined {
    /// Creates a denial with a reason.
    pub fn denied(reason: impl Into<String>) -> Self {
        Self::Denied {
            reason: Some(reason.into()),
        }
    }

    /// Reads the output of a tool response; `None` if it is an output of the tool.
    pub fn of(output: &Value) -> Option<Self> {
        let members = output.as_object()?;
        let is_true = |name: &str| members.get(name) == Some(&Value::Bool(true));
        let reason = members.get("reason");
        match members.len() {
            1 if is_true("cancelled") => Some(Self::Cancelled),
            1 if is_true("denied") => Some(Self::Denied { reason: None }),
            2 if is_true("denied") => Some(Self::denied(reason?.as_str()?)),
            _ => None,
        }
    }

    /// Returns the output of the tool response.
    pub fn output(&self) -> Value {
        match self {
            Self::Cancelled => json!({ "cancelled": true }),
            Self::Denied { reason: None } => json!({ "denied": true }),
            Self::Denied {
                reason: Some(reason), ..
            } => json!({ "denied": true, "reason": reason }),
        }
    }
}

impl Answers {
    /// Returns `true` if there is neither a response nor a restart.
    pub fn is_empty(&self) -> bool {
        self.respond.is_empty() && self.restart.is_empty()
    }
}

/// Reads `null` as an empty list, because some clients send it for an omitted list.
fn null_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl FromIterator<Part> for Answers {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> Self {
        let (restart, respond) = parts
            .into_iter()
            .partition(|part| part.as_tool_request().is_some());
        Self {
            respond,
            restart,
            metadata: None,
        }
    }
}

everturn_core::conversions! {
    From<Part> for Answers: |part| Self::from_iter([part]);
    From<Vec<Part>> for Answers: |parts| Self::from_iter(parts);
}

impl<const N: usize> From<[Part; N]> for Answers {
    fn from(parts: [Part; N]) -> Self {
        Self::from_iter(parts)
    }
}
