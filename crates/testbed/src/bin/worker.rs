//! A worker process: starts its tasks in the background, reports them, and runs until its input is closed.

use std::io::{Read, Write};

use everturn_agent::{AgentInit, AgentInput, recover_every};
use everturn_core::{Error, Result};
use testbed::worker::{Effects, Orders, approve, approving, ask, branch, branching, spend};

#[tokio::main]
async fn main() -> Result<()> {
    let orders = std::env::args()
        .nth(1)
        .ok_or_else(|| Error::invalid_argument("a worker needs its orders"))?;
    let orders = Orders::parse(&orders)?;
    if orders.holds {
        return orders.hold().await;
    }
    if orders.talks {
        return orders.talk().await;
    }
    if orders.branches {
        return begin_branches(&orders).await;
    }
    if orders.approves {
        return approve_all(&orders).await;
    }
    if let Some(calls) = orders.spends {
        let store = orders.store.open().await?;
        spend(store, &Effects::at(&orders.effects), orders.pace, calls).await?;
        return say("spent");
    }
    let (registry, agent) = orders.agent().await?;
    let _recovering = orders
        .recover_every
        .map(|interval| recover_every(&registry, interval));
    say("ready")?;
    for (session, text) in orders.tasks {
        let mut connection = agent.connect(AgentInit::session(session));
        connection.send(AgentInput::from(text).detached()).await?;
        let output = connection.output().await?;
        let id = output
            .snapshot_id
            .ok_or_else(|| Error::internal("the agent did not go to the background"))?;
        say(&format!("accepted {id}"))?;
    }
    agent.idle().await;
    say("idle")?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

async fn approve_all(orders: &Orders) -> Result<()> {
    let effects = Effects::at(&orders.effects);
    let agent = approving(orders.store.open().await?, &effects, orders.pace)?;
    for (session, _) in &orders.tasks {
        let id = ask(&agent, session).await?;
        let asked = agent.get_snapshot(id.clone()).await?;
        say(&format!("accepted {id}"))?;
        approve(&agent, &asked).await?;
    }
    // Runs until it is killed.
    std::future::pending().await
}

async fn begin_branches(orders: &Orders) -> Result<()> {
    let agent = branching(orders.store.open().await?, None)?;
    say("ready")?;
    let mut lines = std::io::stdin().lines();
    while let Some(id) = lines.next().transpose()? {
        say(&format!("branched {}", branch(&agent, id.trim()).await?))?;
    }
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
