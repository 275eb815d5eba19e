//! Interrupts as questions to the client, and its answers.
//!
//! A client of version 2026-07-28 receives the question and a sealed state, and repeats its request with the
//! answer and that state. The seal covers the caller and the call, so that a state is only valid once, and
//! for the same call of the same caller.

use std::sync::Arc;

use everturn_agent::store::Scope;
use everturn_ai::JsonObject;
use everturn_core::{Error, Principal, Result};
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, InputRequests, InputRequiredResult, InputResponses,
    ProtocolVersion, SealOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::session::Request;
use super::spent::Caller;
use crate::question::Asked;

/// The time within which a question can be answered.
pub(super) const ANSWERABLE_FOR: std::time::Duration = std::time::Duration::from_hours(24);

/// One call that may ask.
pub(super) struct Asking<'a> {
    request: &'a Request<'a>,
    caller: Caller,
    /// The caller and the call: a state that was sealed for another call does not open.
    binding: Vec<u8>,
}

/// The sealed state between a question and its answer.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    /// Identifies the question.
    id: String,
    /// The names of the questions, with their data.
    questions: Vec<(String, Value)>,
    /// The call's own state.
    state: Value,
}

/// The answers to a question.
pub(super) enum Answered {
    /// An answer for each question, and the data of the first.
    With { answers: Vec<Value>, data: Value },
    /// The user declines.
    Declined(String),
}

/// The answers to a call's questions, with the call's own state.
pub(super) struct Reply {
    pub(super) answered: Answered,
    pub(super) state: Value,
    /// Identifies the question.
    id: String,
}

impl<'a> Asking<'a> {
    pub(super) fn of_tool(request: &'a Request<'a>, name: &str, arguments: Option<&JsonObject>) -> Self {
        let scope = request.context.extension::<Scope>();
        let scope = scope.map(|scope| Scope::clone(&scope)).unwrap_or_default();
        let caller = Principal::of(&request.context);
        let caller: Option<Arc<str>> = caller.as_ref().map(|caller| caller.id().into());
        let binding = json!([scope.as_str(), caller, name, arguments]);
        Self {
            request,
            caller: (scope, caller),
            binding: binding.to_string().into_bytes(),
        }
    }

    /// Claims the only answer to a question, immediately before its effect.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the question was answered before.
    pub(super) async fn claim(&self, reply: &Reply) -> Result<()> {
        self.request.exposed.spent.claim(&self.caller, &reply.id).await
    }

    /// Makes a question answerable again, because its answer was rejected.
    pub(super) async fn give_back(&self, reply: &Reply) {
        let given_back = self
            .request
            .exposed
            .spent
            .give_back(&self.caller, &reply.id)
            .await;
        if let Err(error) = given_back {
            tracing::warn!(%error, "a question whose answer was refused cannot be answered again");
        }
    }

    /// Asks the question if the client supports questions; otherwise the call fails with it.
    pub(super) fn ask(&self, questions: &[(String, Value)], state: Value) -> Result<CallToolResponse> {
        if !self.can_ask() {
            let asked: Vec<_> = questions.iter().map(|(_, data)| message(data)).collect();
            let text = format!("This needs an answer from the user first: {}", asked.join(" "));
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
        }
        let sealed = Sealed {
            id: Uuid::new_v4().simple().to_string(),
            questions: questions.to_vec(),
            state,
        };
        let options = SealOptions::new()
            .associated_data(&self.binding)
            .ttl(ANSWERABLE_FOR);
        let sealed = self.request.exposed.codec.seal_json_with(&sealed, &options);
        let sealed =
            sealed.map_err(|error| Error::internal(format!("the question cannot be sealed: {error}")))?;
        let requests = input_requests(questions)?;
        Ok(InputRequiredResult::new(Some(requests), Some(sealed)).into())
    }

    fn can_ask(&self) -> bool {
        let rmcp = self.request.rmcp;
        let is_new = rmcp
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
        let capabilities = rmcp.client_capabilities();
        is_new && capabilities.is_some_and(|capabilities| capabilities.elicitation.is_some())
    }

    /// Returns the answers in a repeated call; `None` for a first call.
    pub(super) fn reply(
        &self,
        state: Option<&str>,
        responses: Option<InputResponses>,
    ) -> Result<Option<Reply>> {
        let Some(state) = state else { return Ok(None) };
        let codec = &self.request.exposed.codec;
        let sealed: Sealed = codec.open_json_with(state, &self.binding).map_err(|error| {
            let message = format!("'requestState' is not one that was given for this call: {error}");
            Error::invalid_argument(message).with_public()
        })?;
        let responses = responses.unwrap_or_default();
        Ok(Some(Reply {
            answered: read(&sealed.questions, &responses)?,
            state: sealed.state,
            id: sealed.id,
        }))
    }
}

/// Returns the question in the protocol's form.
pub(super) fn input_requests(questions: &[(String, Value)]) -> Result<InputRequests> {
    let mut requests = JsonObject::new();
    for (name, data) in questions {
        match Asked::deserialize(data) {
            // A question of another server is passed on unchanged.
            Ok(asked) => requests.extend(
                asked
                    .mcp
                    .input_requests
                    .into_iter()
                    .map(|(key, request)| (format!("{name}.{key}"), request)),
            ),
            Err(_) => {
                requests.insert(name.clone(), form(data, &schema(data)));
            }
        }
    }
    serde_json::from_value(Value::Object(requests))
        .map_err(|error| Error::internal(format!("the question cannot be put to an MCP client: {error}")))
}

fn form(data: &Value, schema: &Value) -> Value {
    let params = json!({ "mode": "form", "message": message(data), "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

/// Returns the text of the question: the data's `message` or `question`, else the data itself.
fn message(data: &Value) -> String {
    let worded = data.get("message").or_else(|| data.get("question"));
    match worded.unwrap_or(data) {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "May this be done?".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the form in the data: an object of plain fields in `schema`.
fn asked_schema(data: &Value) -> Option<&Value> {
    let schema = data.get("schema")?;
    let is_form = serde_json::from_value::<rmcp::model::ElicitationSchema>(schema.clone()).is_ok();
    is_form.then_some(schema)
}

/// Returns the default form: a boolean and a remark.
fn schema(data: &Value) -> Value {
    asked_schema(data).cloned().unwrap_or_else(|| {
        json!({
            "type": "object",
            "properties": {
                "approved": { "type": "boolean", "title": "Yes" },
                "answer": { "type": "string", "title": "Answer" },
            },
            "required": ["approved"],
        })
    })
}

/// Returns the answers in the order of the questions.
pub(super) fn read(questions: &[(String, Value)], responses: &InputResponses) -> Result<Answered> {
    let mut answers = Vec::with_capacity(questions.len());
    for (name, data) in questions {
        if Asked::deserialize(data).is_ok() {
            let prefix = format!("{name}.");
            let own = responses.iter().filter_map(|(key, response)| {
                Some((key.strip_prefix(&prefix)?.to_owned(), response.clone()))
            });
            answers.push(Value::Object(own.collect()));
            continue;
        }
        let response = responses.get(name).ok_or_else(|| {
            Error::invalid_argument(format!("'inputResponses' has no answer to '{name}'")).with_public()
        })?;
        let content = response.get("content").cloned().unwrap_or_default();
        let is_accepted = response.get("action").is_some_and(|action| action == "accept");
        let is_refused = asked_schema(data).is_none() && content.get("approved") != Some(&Value::Bool(true));
        if !is_accepted || is_refused {
            let declined = format!("The user declined: {}", message(data));
            return Ok(Answered::Declined(declined));
        }
        answers.push(approval(content, asked_schema(data).is_some()));
    }
    let data = questions.first().map(|(_, data)| data.clone());
    Ok(Answered::With {
        answers,
        data: data.unwrap_or_default(),
    })
}

/// A confirmation also sets the field that the middleware `toolApproval` reads.
fn approval(mut content: Value, is_form: bool) -> Value {
    if let (false, Value::Object(content)) = (is_form, &mut content) {
        content.insert("toolApproved".to_owned(), true.into());
    }
    content
}
