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

/// No such way.
#[tool(replay = "twice")]
async fn twice_over() {}

/// Two ways.
#[tool(replay = "pure", replay = "once")]
async fn undecided() {}

/// No such time.
#[tool(expires = "soon")]
async fn someday() {}

/// Nobody.
#[tool(approvals = 0)]
async fn nobody() {}

/// No such treatment.
#[tool(repeat = "always")]
async fn forever() {}

fn main() {}
