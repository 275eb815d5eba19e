//! A round as its span records it: in the shape of the generate action's input.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::call::Call;
use super::tool_table::ToolTable;
use crate::middleware::GenerateRound;

pub(super) struct RoundInput<'a> {
    pub(super) call: &'a Call,
    pub(super) round: &'a GenerateRound,
}

impl Serialize for RoundInput<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = &self.round.request;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("model", &self.call.model_name)?;
        map.serialize_entry("messages", &request.messages)?;
        map.serialize_entry("tools", &Keys(&self.call.tools))?;
        map.serialize_entry("maxTurns", &self.call.max_rounds)?;
        if let Some(config) = &request.config {
            map.serialize_entry("config", config)?;
        }
        if let Some(docs) = &request.docs {
            map.serialize_entry("docs", docs)?;
        }
        if let Some(choice) = request.tool_choice {
            map.serialize_entry("toolChoice", &choice)?;
        }
        if let Some(output) = &request.output {
            map.serialize_entry("output", output)?;
        }
        if let Some(answers) = &self.round.answers {
            map.serialize_entry("resume", answers)?;
        }
        map.end()
    }
}

struct Keys<'a>(&'a ToolTable);

impl Serialize for Keys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.keys())
    }
}
