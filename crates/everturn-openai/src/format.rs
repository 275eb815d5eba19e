//! The output format that a request asks for.

use everturn_server::ServedAgent;
use serde_json::{Map, Value, json};

use crate::client_transcript::{field, text};
use crate::fault::Fault;

/// The output format of an answer, chosen by the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Format {
    /// The JSON Schema of the output.
    pub(crate) schema: Value,
    /// The format as the client sent it.
    sent: Value,
}

impl Format {
    /// Reads `text.format` of a request to `/responses`; `None` for plain text.
    pub(crate) fn of_response(body: &Map<String, Value>, agent: &ServedAgent) -> Result<Option<Self>, Fault> {
        let format = match field(body, "text") {
            None => return Ok(None),
            Some(Value::Object(format)) => format,
            Some(_) => return Err(Fault::wrong_type("text", "an object")),
        };
        read(field(format, "format"), "text.format", agent)
    }

    /// Reads `response_format` of a request to `/chat/completions`; `None` for plain text.
    pub(crate) fn of_completion(
        body: &Map<String, Value>,
        agent: &ServedAgent,
    ) -> Result<Option<Self>, Fault> {
        read(field(body, "response_format"), "response_format", agent)
    }

    /// Returns the `text` of the response.
    pub(crate) fn echo(&self) -> Value {
        json!({ "format": self.sent })
    }
}

fn read(sent: Option<&Value>, at: &str, agent: &ServedAgent) -> Result<Option<Format>, Fault> {
    let sent = match sent {
        None => return Ok(None),
        Some(Value::Object(sent)) => sent,
        Some(_) => return Err(Fault::wrong_type(at, "an object")),
    };
    let schema = match text(sent, "type").map_err(|fault| fault.at(&format!("{at}.type")))? {
        None => return Err(Fault::missing(&format!("{at}.type"))),
        Some("text") => return Ok(None),
        Some(_) if !agent.accepts_output_schema() => {
            return Err(Fault::not_permitted(at, agent.name(), "output_schema"));
        }
        Some("json_object") => json!({ "type": "object" }),
        Some("json_schema") => schema(sent, at)?,
        Some(other) => {
            return Err(Fault::wrong_value(
                format!("{at}.type"),
                format!("'{other}' is not a format: it is 'text', 'json_object' or 'json_schema'."),
            ));
        }
    };
    Ok(Some(Format {
        schema,
        sent: Value::Object(sent.clone()),
    }))
}

/// Returns the schema of a format, with its description. On Chat Completions both are one level deeper.
fn schema(sent: &Map<String, Value>, at: &str) -> Result<Value, Fault> {
    let (format, at) = match field(sent, "json_schema") {
        Some(Value::Object(format)) => (format, format!("{at}.json_schema")),
        _ => (sent, at.to_owned()),
    };
    let at = format!("{at}.schema");
    let mut schema = match field(format, "schema") {
        Some(Value::Object(schema)) => schema.clone(),
        Some(_) => return Err(Fault::wrong_type(at, "an object")),
        None => return Err(Fault::missing(&at)),
    };
    // Clients parse the output as an object, and providers accept no other schema.
    if schema.get("type") != Some(&json!("object")) {
        return Err(Fault::invalid(
            "invalid_json_schema",
            at,
            "The schema must be that of an object: its 'type' is 'object'.",
        ));
    }
    if let Some(description) = text(format, "description")? {
        schema.entry("description").or_insert_with(|| description.into());
    }
    Ok(Value::Object(schema))
}
