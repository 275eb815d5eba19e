//! A small MCP server over standard input and output, for clients to be tried with.

use everturn_ai::prompt::PromptDefinition;
use everturn_ai::{Resource, Tool, ToolContext, define_resource};
use everturn_core::{Registry, Result};
use everturn_mcp::McpServer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Total {
    total: i64,
}

#[derive(Serialize, JsonSchema)]
struct Wish {
    dish: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let registry = Registry::new();
    let add = Tool::new(
        "add",
        "Adds two numbers.",
        |sum: Sum, _: ToolContext| async move { Ok(Total { total: sum.a + sum.b }) },
    );
    add.register(&registry)?;
    PromptDefinition::new("recipe")
        .input::<Wish>()
        .prompt("A recipe for {{dish}}, please.")
        .define(&registry)?;
    let menu = Resource::new("kitchen://menu", |_| async { Ok("Leek soup.") });
    define_resource(&registry, &menu)?;

    McpServer::new(&registry)
        .name("kitchen", "1.0.0")
        .serve_stdio()
        .await
}
