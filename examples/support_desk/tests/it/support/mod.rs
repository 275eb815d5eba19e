//! A scripted model server, and the program as a process.

mod model_server;
mod program;

pub(crate) use self::model_server::ModelServer;
pub(crate) use self::program::{Program, files_with};

use everturn::prelude::{Value, json};

/// A text reply of the model.
pub(crate) fn says(text: &str) -> Value {
    json!({"message": {"role": "model", "content": [{"text": text}]}, "finishReason": "stop"})
}

/// A reply of the model with a tool call.
pub(crate) fn calls(tool: &str, input: &Value) -> Value {
    let request = json!({"toolRequest": {"name": tool, "ref": "call-1", "input": input}});
    json!({"message": {"role": "model", "content": [request]}, "finishReason": "stop"})
}
