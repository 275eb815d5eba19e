//! Messages and chunks as text.

use std::fmt::Write;

use everturn_agent::{AgentChunk, AgentReply, Snapshot, SnapshotStatus, Timestamp, UsageTotal};
use everturn_ai::{Approval, ApprovalAnswer, ApprovalForm, Message, Part, Role};

use crate::failure::Outcome;
use crate::output::{BOLD, DIM, GREEN, Output, RED, YELLOW, clean, excerpt};

/// The maximum length of a printed tool input or output.
const SHOWN: usize = 200;

/// Prints the chunks of a turn as they arrive, and tracks whether a line is open.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    is_inside_line: bool,
    /// The printed text.
    printed: String,
}

impl Transcript {
    pub(crate) fn chunk(&mut self, output: Output, chunk: &AgentChunk) -> Outcome<()> {
        let raw = chunk.raw();
        if output.is_json() {
            return output.json(&serde_json::json!({ "message": raw }));
        }
        if chunk.is_taken_over() {
            self.aside(output, "another worker took over the run and restarts the turn")?;
        }
        if let Some(message) = raw.model_chunk.as_ref() {
            for part in &message.content {
                if let Some(line) = tool_part(part) {
                    self.aside(output, &line)?;
                }
            }
            if message.role != Some(Role::Tool) {
                self.text(output, &message.text())?;
            }
        }
        if let Some(status) = &raw.status {
            let status = status.as_str().map_or_else(|| status.to_string(), str::to_owned);
            self.aside(output, &excerpt(&status, SHOWN))?;
        }
        if let Some(artifact) = chunk.artifact() {
            let name = artifact.given_name().unwrap_or("an artifact");
            self.aside(output, &format!("made {}", excerpt(name, SHOWN)))?;
        }
        Ok(())
    }

    fn text(&mut self, output: Output, text: &str) -> Outcome<()> {
        if let Some(last) = text.chars().last() {
            self.is_inside_line = last != '\n';
            self.printed.push_str(text);
            output.text(&clean(text))?;
        }
        Ok(())
    }

    /// Ends the turn: prints the answer if it was not streamed, or the whole output as JSON.
    pub(crate) fn reply(&mut self, output: Output, reply: &AgentReply) -> Outcome<()> {
        if output.is_json() {
            return output.json(&serde_json::json!({ "result": reply.output() }));
        }
        if !self.printed.ends_with(&*reply.text()) {
            self.end_line(output)?;
            self.text(output, &reply.text())?;
        }
        self.end_line(output)
    }

    /// Prints a remark about the turn on a separate line.
    fn aside(&mut self, output: Output, remark: &str) -> Outcome<()> {
        self.end_line(output)?;
        output.line(format!("{DIM}[{remark}]{DIM:#}"))
    }

    pub(crate) fn end_line(&mut self, output: Output) -> Outcome<()> {
        if std::mem::take(&mut self.is_inside_line) {
            output.text("\n")?;
        }
        Ok(())
    }
}

/// Describes a tool call or its answer.
fn tool_part(part: &Part) -> Option<String> {
    if let Some(request) = part.as_tool_request() {
        let input = request.input.clone().unwrap_or_default();
        return (!request.partial).then(|| {
            format!(
                "calls {} {}",
                clean(&request.name),
                excerpt(&input.to_string(), SHOWN)
            )
        });
    }
    let response = part.as_tool_response()?;
    let answer = response.output.clone().unwrap_or_default();
    Some(format!(
        "{} answers {}",
        clean(&response.name),
        excerpt(&answer.to_string(), SHOWN)
    ))
}

/// Formats a message of a session.
pub(crate) fn message(message: &Message) -> String {
    let mut text = format!("{BOLD}{}:{BOLD:#} {}", message.role(), clean(&message.text()));
    for part in message.content() {
        let line = match tool_part(part) {
            Some(line) => line,
            None if part.as_text().is_some() => continue,
            None if part.as_media().is_some() => "media".to_owned(),
            None if part.as_reasoning().is_some() => "reasoning".to_owned(),
            None => "data".to_owned(),
        };
        let _ = write!(text, " {DIM}[{line}]{DIM:#}");
        for line in part.approval().iter().flat_map(approval) {
            let _ = write!(text, " {DIM}[{line}]{DIM:#}");
        }
    }
    text.push('\n');
    text
}

/// Describes the answers to a question, and the answers that are still needed.
pub(crate) fn approval(approval: &Approval) -> Vec<String> {
    let answered = |answer: &ApprovalAnswer| {
        let what = match answer.form {
            ApprovalForm::Restart => "decided",
            ApprovalForm::Respond => "answered",
            ApprovalForm::Decline => "declined",
            _ => "settled",
        };
        let by = answer
            .by
            .as_deref()
            .map_or("an unidentified caller".into(), clean);
        let edited = answer.edited_input.as_ref();
        let edited = edited.map_or_else(String::new, |input| {
            format!(", edited to {}", excerpt(&input.to_string(), SHOWN))
        });
        format!("{what} by {by}, {} UTC{edited}", time(answer.at))
    };
    let mut lines: Vec<String> = approval.answers.iter().map(answered).collect();
    lines.extend(approval.still_needed.as_deref().map(clean));
    if let (false, Some(until)) = (approval.is_answered(), approval.until) {
        lines.push(format!("until {} UTC", time(until)));
    }
    lines
}

pub(crate) fn time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Returns a status in its colour.
pub(crate) fn coloured(status: SnapshotStatus) -> String {
    let style = match status {
        SnapshotStatus::Completed => GREEN,
        SnapshotStatus::Failed | SnapshotStatus::Aborted => RED,
        _ => YELLOW,
    };
    format!("{style}{status}{style:#}")
}

/// Describes the usage; empty if there is none.
pub(crate) fn used(usage: &UsageTotal) -> String {
    let counts = [
        (usage.tokens(), "tokens"),
        (usage.model_calls, "model calls"),
        (usage.tool_calls, "tool calls"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = counts
        .map(|(count, what)| {
            let what = if *count == 1 {
                what.trim_end_matches('s')
            } else {
                what
            };
            format!("{count} {what}")
        })
        .collect();
    if !usage.cost.is_zero() {
        parts.push(format!("cost {}", usage.cost));
    }
    parts.join(", ")
}

/// Formats a whole snapshot.
pub(crate) fn snapshot(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let mut field = |name: &str, value: String| {
        let _ = writeln!(text, "{DIM}{name:<9}{DIM:#} {value}");
    };
    if let Some(session) = &snapshot.session_id {
        field("session", clean(session.as_str()));
    }
    field("snapshot", clean(snapshot.snapshot_id.as_str()));
    if let Some(parent) = &snapshot.parent_id {
        field("parent", clean(parent.as_str()));
    }
    field("status", coloured(snapshot.status));
    field("created", format!("{} UTC", time(snapshot.created_at)));
    if !snapshot.labels.is_empty() {
        field("labels", clean(&snapshot.labels.join(", ")));
    }
    if let Some(note) = &snapshot.note {
        field("note", clean(note));
    }
    if let Some(error) = &snapshot.error {
        let status = error
            .status
            .map_or_else(String::new, |status| format!("{status}: "));
        field("error", format!("{status}{}", clean(&error.message)));
    }
    let cost = used(&snapshot.usage().unwrap_or_default());
    if !cost.is_empty() {
        field("used", format!("{cost}, since the session began"));
    }
    let Some(state) = &snapshot.state else {
        return text;
    };
    if let Some(custom) = &state.custom {
        field("state", clean(&custom.to_string()));
    }
    for artifact in state.artifacts.iter() {
        field("artifact", clean(artifact.given_name().unwrap_or("(unnamed)")));
    }
    text.push('\n');
    for each in &state.messages {
        text.push_str(&message(each));
    }
    text
}
