//! Tools that a client brings.

use std::sync::Arc;

use everturn_ai::Tool;
use everturn_core::{Error, Result, Schema};
use everturn_macros::wire;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The greatest number of tools that a client may bring to one turn.
const MOST_TOOLS: usize = 64;

/// The greatest size of a tool's name, description and schema together, in bytes of JSON.
const LARGEST_TOOL: usize = 16 * 1024;

/// The greatest size of all tools of a turn together, in bytes of JSON.
const LARGEST_TOOLS: usize = 128 * 1024;

/// A tool that the client brings for one turn and runs itself. A call of it interrupts the turn, and the
/// client answers the interrupt with the tool's output.
#[wire(deny_unknown_fields)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientTool {
    /// The name by which the model calls the tool.
    pub name: String,
    /// The description for the model.
    pub description: Option<String>,
    /// The JSON Schema of the input; any input if not given.
    pub input_schema: Option<Arc<Value>>,
}

impl ClientTool {
    /// Creates a tool that takes any input.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: None,
            input_schema: None,
        }
    }

    /// Returns the tools as the model gets them. A schema is compiled when the model calls its tool.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than 64 tools, a tool of more than 16 KiB, tools of more than 128 KiB
    /// together, a name that is not one of 1 to 64 letters, digits, `_`, `-`, `.` or that occurs twice, and
    /// an input schema that is none or is beyond the limits of [`Schema::from_client`].
    pub(crate) fn prepare(tools: &[Self]) -> Result<Vec<Tool>> {
        if tools.len() > MOST_TOOLS {
            return Err(refused(format!(
                "the client brings {} tools and may bring {MOST_TOOLS}",
                tools.len()
            )));
        }
        let mut prepared: Vec<Tool> = Vec::with_capacity(tools.len());
        let mut total = 0;
        for tool in tools {
            total += tool.size();
            if total > LARGEST_TOOLS {
                return Err(refused(format!(
                    "the client's tools have more than {LARGEST_TOOLS} bytes together"
                )));
            }
            if prepared.iter().any(|earlier| earlier.name() == tool.name) {
                return Err(refused(format!("the client brings two tools '{}'", tool.name)));
            }
            prepared.push(tool.prepared()?);
        }
        Ok(prepared)
    }

    /// Returns the size of the tool as JSON.
    fn size(&self) -> usize {
        let text = |text: &String| text.len();
        let schema = self.input_schema.as_ref().map_or(0, |schema| {
            serde_json::to_vec(schema).map_or(usize::MAX / 2, |text| text.len())
        });
        self.name.len() + self.description.as_ref().map_or(0, text) + schema
    }

    fn prepared(&self) -> Result<Tool> {
        let Self {
            name,
            description,
            input_schema,
        } = self;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_letter) {
            return Err(refused(format!(
                "the client's tool '{name}' needs a name of 1 to 64 letters, digits, '_', '-' or '.'"
            )));
        }
        let size = self.size();
        if size > LARGEST_TOOL {
            return Err(refused(format!(
                "the client's tool '{name}' has {size} bytes and may have {LARGEST_TOOL}"
            )));
        }
        let schema = match input_schema {
            Some(schema) => Some(Schema::from_client(Value::clone(schema), LARGEST_TOOL).map_err(
                |error| {
                    error
                        .context(format_args!("the input schema of the client's tool '{name}'"))
                        .with_public()
                },
            )?),
            None => None,
        };
        let description = description.clone().unwrap_or_default();
        Ok(Tool::of_client(name, description, schema))
    }
}

fn refused(message: String) -> Error {
    Error::invalid_argument(message).with_public()
}
