//! The tools of one generate call, by the names under which a model may call them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use everturn_core::{Error, Registry, Result};

use super::tool_errors::no_such_tool;
use crate::{Middleware, Tool, ToolDefinition, ToolReference, lookup_tool, lookup_tools, reason};

#[derive(Default)]
pub(super) struct ToolTable {
    tools: Vec<Tool>,
    by_short_name: HashMap<String, usize>,
}

impl ToolTable {
    /// Resolves the declared tools in their order, then those of the middleware in theirs.
    pub(super) async fn resolve(
        declared: Vec<ToolReference>,
        middleware: &[Arc<dyn Middleware>],
        registry: &Registry,
    ) -> Result<Self> {
        let mut table = Self::default();
        for reference in declared {
            match reference {
                ToolReference::Tool(tool) => table.add(tool)?,
                ToolReference::Name(name) if name.ends_with("/*") => {
                    let tools = lookup_tools(registry, &name).await?;
                    tools.into_iter().try_for_each(|tool| table.add(tool))?;
                }
                ToolReference::Name(name) => table.add(lookup_tool(registry, &name).await?)?,
            }
        }
        middleware
            .iter()
            .flat_map(|layer| layer.tools())
            .try_for_each(|tool| table.add(tool))?;
        Ok(table)
    }

    fn add(&mut self, tool: Tool) -> Result<()> {
        let is_taken = self.by_short_name.contains_key(tool.short_name());
        // The author does not control the names of MCP servers, so they are made unique instead of rejected.
        let tool = if is_taken && tool.is_foreign() {
            tool.called_in_full()
        } else {
            tool
        };
        match self.by_short_name.entry(tool.short_name().to_owned()) {
            Entry::Vacant(entry) => entry.insert(self.tools.len()),
            Entry::Occupied(entry) => {
                let other = self.tools[*entry.get()].name();
                let message = format!(
                    "cannot provide two tools with the same name: '{}' and '{other}'",
                    tool.name()
                );
                return Err(Error::invalid_argument(message).with_reason(reason::TOOL_NAME_TAKEN));
            }
        };
        self.tools.push(tool);
        Ok(())
    }

    /// Returns the tool that a model calls: by its short name, or else by its full name.
    pub(super) fn get(&self, name: &str) -> Result<&Tool> {
        let found = self.by_short_name.get(name).map(|&index| &self.tools[index]);
        found
            .or_else(|| self.tools.iter().find(|tool| tool.name() == name))
            .ok_or_else(|| no_such_tool(name, self.tools.iter()))
    }

    pub(super) fn definitions(&self) -> Arc<[ToolDefinition]> {
        self.tools.iter().map(Tool::definition).collect()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = String> {
        self.tools.iter().map(Tool::key)
    }
}
