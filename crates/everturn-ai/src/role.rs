//! The role of a message's author.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The author of a [`Message`](crate::Message).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Role {
    /// Instructions to the model from the application.
    System,
    /// The person, or program, that sends messages to the model.
    User,
    /// The model.
    Model,
    /// Results of the tools that the model requested.
    Tool,
}

impl Role {
    /// Returns the role as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Model => "model",
            Self::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
