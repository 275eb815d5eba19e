//! References to the tools of a request.

use super::Tool;

/// A tool, or the name of a registered one.
#[derive(Debug, Clone)]
pub enum ToolReference {
    /// A tool, which need not be registered.
    Tool(Tool),
    /// A name, a full key such as `/tool/calendar/book`, or all tools of a plugin: `calendar/*`.
    Name(String),
}

impl ToolReference {
    /// Returns the name of the tool.
    pub fn name(&self) -> &str {
        match self {
            Self::Tool(tool) => tool.name(),
            Self::Name(name) => name,
        }
    }

    /// Adds the tool to a list, where it replaces a tool of the same name, so that the last call of a builder
    /// counts.
    pub(crate) fn add_to(self, tools: &mut Vec<ToolReference>) {
        match tools.iter_mut().find(|tool| tool.name() == self.name()) {
            Some(earlier) => *earlier = self,
            None => tools.push(self),
        }
    }
}

/// A type that can be given to a model as a tool: a [`Tool`], a function marked `#[tool]`, or the name of a
/// registered tool.
pub trait IntoTool {
    /// Converts the value into a tool or its name.
    fn into_tool(self) -> ToolReference;
}

impl IntoTool for ToolReference {
    fn into_tool(self) -> ToolReference {
        self
    }
}

impl IntoTool for Tool {
    fn into_tool(self) -> ToolReference {
        ToolReference::Tool(self)
    }
}

impl IntoTool for &Tool {
    fn into_tool(self) -> ToolReference {
        ToolReference::Tool(self.clone())
    }
}

impl IntoTool for &str {
    fn into_tool(self) -> ToolReference {
        ToolReference::Name(self.to_owned())
    }
}

impl IntoTool for String {
    fn into_tool(self) -> ToolReference {
        ToolReference::Name(self)
    }
}
