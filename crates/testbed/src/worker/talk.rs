//! A worker that runs the turns of its input, under every concurrency policy.
//!
//! A line of input is `<number> <policy> <session> <text>`, where the policy is `reject`, `queue` or `fork`.
//! The worker prints `begun <text>` when a turn's work starts, before the model is called, and then `done
//! <number> <snapshot>`, `refused <number> <message>` or `failed <number> <message>`.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use everturn_agent::store::SessionStore;
use everturn_agent::{Agent, AgentSession, Concurrency, custom_agent};
use everturn_ai::Message;
use everturn_core::{Error, Registry, Result, Status};

use super::StorePlace;

/// The policies, by their names.
pub const POLICIES: [(&str, Concurrency); 3] = [
    ("reject", Concurrency::Reject),
    ("queue", Concurrency::Queue),
    ("fork", Concurrency::Fork),
];

/// Defines an agent for each policy, with this duration of turns and this lease of turn locks.
fn agents(
    store: &Arc<dyn SessionStore>,
    pace: Duration,
    lease: Duration,
) -> Result<HashMap<&'static str, Agent>> {
    let define = |(name, policy)| {
        let talk = move |session: AgentSession| async move {
            session
                .run(|turn| async move {
                    let text = turn.message().map(|message| message.text().into_owned());
                    let text = text.unwrap_or_default();
                    say(&format!("begun {text}"))?;
                    tokio::time::sleep(pace).await;
                    turn.add_message(Message::model(format!("re: {text}")));
                    Ok(())
                })
                .await?;
            Ok(session.result())
        };
        let agent = custom_agent(&Registry::new(), name, talk)
            .concurrency(policy)
            .turn_lease(lease)
            .store(Arc::clone(store))
            .define()?;
        Ok((name, agent))
    };
    POLICIES.into_iter().map(define).collect()
}

/// Runs the turns of the input concurrently, until it is closed.
pub(super) async fn talk(store: &StorePlace, pace: Duration, lease: Duration) -> Result<()> {
    let store = store.open().await?;
    let agents = agents(&store, pace, lease)?;
    say("ready")?;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    // Ends when the input is closed.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut turns = tokio::task::JoinSet::new();
    while let Some(line) = lines.recv().await {
        let [number, policy, session, text] = words(&line)?;
        let agent = agents
            .get(policy)
            .ok_or_else(|| Error::invalid_argument(format!("no policy is called '{policy}'")))?;
        let chat = agent.chat().resume(session);
        let (number, text) = (number.to_owned(), text.to_owned());
        turns.spawn(async move {
            let said = match chat.run(text).await {
                Ok(reply) => match reply.snapshot_id() {
                    Some(id) => format!("done {number} {id}"),
                    None => format!("failed {number} no snapshot"),
                },
                Err(error) if error.status() == Status::Aborted => format!("refused {number} {error}"),
                Err(error) => format!("failed {number} {error}"),
            };
            say(&said)
        });
    }
    while let Some(said) = turns.join_next().await {
        said??;
    }
    Ok(())
}

fn words(line: &str) -> Result<[&str; 4]> {
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    words
        .try_into()
        .map_err(|_| Error::invalid_argument(format!("'{line}' is no turn")))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
