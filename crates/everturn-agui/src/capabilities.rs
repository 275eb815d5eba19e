//! The capabilities of an agent, in the protocol's form.

use everturn_server::ServedAgent;
use serde_json::{Value, json};

/// Returns the capabilities of an agent.
pub(crate) fn capabilities(agent: &ServedAgent) -> Value {
    let is_kept = agent.has_store();
    let mut identity = json!({ "name": agent.name(), "type": "everturn" });
    if let Some(description) = agent.description() {
        identity["description"] = description.into();
    }
    json!({
        "identity": identity,
        "transport": {
            "streaming": true,
            "websocket": false,
            "httpBinary": false,
            "pushNotifications": false,
            "resumable": false,
        },
        "tools": { "supported": true, "parallelCalls": true, "clientProvided": agent.accepts_tools() },
        "state": { "snapshots": true, "deltas": true, "memory": is_kept, "persistentState": is_kept },
        "multiAgent": { "supported": true, "delegation": true, "handoffs": false },
        "reasoning": { "supported": true, "streaming": true },
        "multimodal": {
            "input": { "image": true, "audio": true, "video": true, "pdf": true, "file": true },
        },
        "humanInTheLoop": {
            "supported": true,
            "approvals": true,
            "interrupts": true,
            "approveWithEdits": false,
        },
    })
}
