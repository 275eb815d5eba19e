//! `everturn agents`.

use serde_json::json;

use crate::failure::{Exit, Outcome};
use crate::output::{Output, table};
use crate::server::Entry;
use crate::target::Target;

pub(crate) async fn run(target: &Target, output: Output) -> Outcome {
    let server = target.server("everturn agents")?;
    let index = server.index().await?.unwrap_or_default();
    output.show(&json!({ "agents": index.agents }), || {
        listing("AGENT", &index.agents)
    })?;
    if index.agents.is_empty() {
        output.remark(format!(
            "{} describes no agents in its /openapi.json.",
            server.base()
        ));
    }
    Ok(Exit::Done)
}

/// Formats agents or flows as columns.
pub(crate) fn listing(kind: &str, entries: &[Entry]) -> String {
    let row = |entry: &Entry| {
        let description = entry.description.clone().unwrap_or_default();
        [entry.name.clone(), entry.path.clone(), description]
    };
    let rows: Vec<[String; 3]> = entries.iter().map(row).collect();
    table([kind, "PATH", "DESCRIPTION"], &rows)
}
