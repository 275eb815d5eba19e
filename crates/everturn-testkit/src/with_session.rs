//! A session without an agent.

use std::future::Future;

use everturn_agent::{CustomState, Session};
use everturn_core::Context;

/// Runs `test` in a new session with this custom state, so that a tool that works on a session can be tested
/// without an agent.
///
/// The tool gets the session as in an agent: as an argument of its `#[tool]` function, or with
/// [`Session::current`]. `test` receives the same session.
///
/// ```
/// use everturn_agent::Session;
/// use everturn_ai::{FromToolContext, Message, Tool, ToolContext};
/// use everturn_core::Result;
/// use everturn_testkit::with_session;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
/// struct Kitchen {
///     pantry: Vec<String>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<()> {
/// let stock = Tool::new("stock", "Puts something into the pantry.", |item: String, cx: ToolContext| async move {
///     let kitchen = Session::<Kitchen>::from_tool_context(&cx)?;
///     kitchen.update_custom(|kitchen| kitchen.pantry.push(item));
///     Ok("done")
/// });
///
/// with_session(Kitchen { pantry: vec!["leeks".into()] }, |session| async move {
///     session.add_message(Message::user("Buy butter."));
///
///     stock.run("butter").await?;
///
///     assert_eq!(session.custom().pantry, ["leeks", "butter"]);
///     Ok(())
/// })
/// .await
/// # }
/// ```
pub async fn with_session<S, F, Fut>(state: S, test: F) -> Fut::Output
where
    S: CustomState,
    F: FnOnce(Session<S>) -> Fut,
    Fut: Future,
{
    let session = Session::standalone(state);
    let context = session.enter(Context::current());
    context.scope(async { test(session).await }).await
}
