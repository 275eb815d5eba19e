use everturn_macros::tool;

/// Unknown option.
#[tool(title = "x")]
async fn unknown() {}

/// The same twice.
#[tool(name = "a", name = "b")]
async fn twice() {}

/// Empty.
#[tool(name = " ")]
async fn empty() {}

fn main() {}
