use everturn_macros::tool;

/// Borrows.
#[tool(crate = "everturn_ai")]
async fn borrows(city: &str) {}

/// Takes anything.
#[tool(crate = "everturn_ai")]
async fn anything(city: impl Into<String>) {}

/// Describes its context.
#[tool(crate = "everturn_ai")]
async fn described_context(
    /// The context.
    context: ToolContext,
) {
}

/// Has no names for its fields.
#[tool(crate = "everturn_ai")]
async fn unnamed((city, days): (String, u8), _: u8) {}

/// Describes what has a description.
#[tool(crate = "everturn_ai")]
async fn described_twice(
    /// The query.
    query: Query,
) {
}

struct Query;

fn main() {}
