use everturn_macros::tool;

/// Not async.
#[tool(crate = "everturn_ai")]
fn not_async() {}

/// Generic, and a few more things.
#[tool(crate = "everturn_ai")]
unsafe fn generic<T>(value: T)
where
    T: Send,
{
}

struct Kitchen;

impl Kitchen {
    /// A method.
    #[tool(crate = "everturn_ai")]
    async fn method(&self) {}
}

#[tool(crate = "everturn_ai")]
async fn undescribed() {}

/// Not a function.
#[tool(crate = "everturn_ai")]
struct NotAFunction;

fn main() {}
