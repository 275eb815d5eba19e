//! The trace of a session flow is that of an agent.
//!
//! In a file of its own: a test that runs beside others which trace nothing may find its spans switched off by them.

#![allow(clippy::unwrap_used, reason = "what cannot be set up has failed")]

#[path = "../../everturn-core/tests/traces/mod.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod traces;

use everturn_agent::{AgentSession, session_flow};
use everturn_core::Registry;
use traces::Traces;

#[tokio::test]
async fn a_session_flow_has_the_spans_of_an_agent() {
    let traces = Traces::listen();
    let cook = session_flow(&Registry::new(), "cook", |session: AgentSession| async move {
        session.run(|_| async { Ok(()) }).await?;
        Ok(session.result())
    });

    cook.define().unwrap().run_text("soup").await.unwrap();

    let (root, turn) = (traces.span("cook"), traces.span("runTurn-1"));
    assert_eq!(root.get("metadata:subtype"), Some("agent"));
    assert_eq!(turn.parent, root.id);
    assert_eq!(turn.get("type"), Some("flowStep"));
}
