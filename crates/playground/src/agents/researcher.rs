//! A researcher: a long turn that reports its progress and repeats no step after its process died.

use std::time::Duration;

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

/// The simulated duration of reading a source.
const READING: Duration = Duration::from_millis(1500);

const ANGLES: [&str; 6] = [
    "origin",
    "how it works",
    "numbers",
    "what people say",
    "what may go wrong",
    "outlook",
];

/// The findings so far.
#[payload]
#[derive(Debug, Default, Clone)]
pub(super) struct Research {
    topic: String,
    findings: Vec<Finding>,
}

#[payload]
#[derive(Debug, Clone)]
struct Finding {
    angle: String,
    text: String,
}

/// The progress of the research.
#[payload]
#[derive(Debug)]
struct Progress {
    step: usize,
    of: usize,
    note: String,
}

async fn research(app: Everturn, turn: Turn<Research>) -> HandlerResult<FinishReason> {
    let text = turn.message().map(|message| message.text().into_owned());
    let topic = topic_of(&text.unwrap_or_default());
    turn.set_custom(Research {
        topic: topic.clone(),
        findings: Vec::new(),
    });
    turn.send_chunk(format!("Looking into **{topic}**.\n\n").as_str())
        .await?;
    for (index, angle) in ANGLES.into_iter().enumerate() {
        let progress = Progress {
            step: index + 1,
            of: ANGLES.len(),
            note: format!("reading about {angle}"),
        };
        turn.send_status(progress).await?;
        // A worker that takes over the run receives the findings so far, and continues after them.
        let (app, topic) = (app.clone(), topic.clone());
        let text: String = turn
            .effect(angle, Replay::Idempotent)
            .run(|_| async move {
                tokio::time::sleep(READING).await;
                let reply = app
                    .generate()
                    .system("You are a researcher. Answer with one sentence, without preamble.")
                    .prompt(format!("Topic: {topic}. Angle: {angle}."))
                    .await?;
                Ok(reply.text().into_owned())
            })
            .await?;
        turn.send_chunk(format!("- *{angle}*: {text}\n").as_str()).await?;
        turn.update_custom(|research| {
            research.findings.push(Finding {
                angle: angle.to_owned(),
                text,
            });
        });
    }
    let findings = turn.custom().findings;
    let lines: Vec<String> = findings
        .iter()
        .map(|finding| format!("## {}\n\n{}\n", finding.angle, finding.text))
        .collect();
    let report = format!("# {topic}\n\n{}", lines.join("\n"));
    turn.send_artifact(Artifact::text("report.md", report)).await?;
    let list: Vec<String> = findings
        .iter()
        .map(|finding| format!("- *{}*: {}\n", finding.angle, finding.text))
        .collect();
    let end = "\nThe report is among the artifacts.";
    turn.send_chunk(end).await?;
    turn.add_message(Message::model(format!(
        "Looking into **{topic}**.\n\n{}{end}",
        list.concat()
    )));
    Ok(FinishReason::Stop)
}

/// Returns the topic: the message without the words of the request.
fn topic_of(text: &str) -> String {
    let text = text.trim().trim_end_matches(['.', '?', '!']);
    let lower = text.to_lowercase();
    let openings = [
        "research ",
        "look into ",
        "find out about ",
        "tell me about ",
        "report on ",
    ];
    let rest = openings
        .iter()
        .find_map(|opening| lower.starts_with(opening).then(|| &text[opening.len()..]));
    match rest.unwrap_or(text).trim() {
        "" => "leeks".to_owned(),
        topic => topic.to_owned(),
    }
}

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent<Research>> {
    let model = app.clone();
    let researcher = app
        .custom_agent("researcher", move |session: AgentSession<Research>| {
            let app = model.clone();
            async move {
                session
                    .run(|turn| {
                        let app = app.clone();
                        async move { research(app, turn).await }
                    })
                    .await?;
                Ok(session.result())
            }
        })
        .description("reads for a while, best in the background: “Research the history of soup”");
    keep(researcher, "researcher", files).define()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_follows_the_request() {
        assert_eq!(topic_of("Research the history of soup."), "the history of soup");
        assert_eq!(topic_of("Rust"), "Rust");
        assert_eq!(topic_of("  "), "leeks");
    }
}
