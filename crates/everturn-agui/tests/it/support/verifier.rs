//! The rules by which clients of the protocol accept a stream of events.

use std::collections::HashSet;

use serde_json::Value;

/// Checks a stream as a client does.
pub(crate) fn verify(events: &[Value]) -> Result<(), String> {
    let mut open: HashSet<(&str, String)> = HashSet::new();
    let mut is_over = false;
    let Some(first) = events.first() else {
        return Err("the stream is empty".into());
    };
    if first["type"] != "RUN_STARTED" {
        return Err("the first event is not RUN_STARTED".into());
    }
    for event in events {
        if is_over {
            return Err("an event follows the end".into());
        }
        let text = |name: &str| match &event[name] {
            Value::String(text) if !text.is_empty() => Ok(text.clone()),
            other => Err(format!("'{name}' is {other} in {event}")),
        };
        if event
            .as_object()
            .is_none_or(|event| event.values().any(Value::is_null))
        {
            return Err(format!("{event} has a null"));
        }
        let mut begin = |kind: &'static str, id: String| {
            let is_new = open.insert((kind, id));
            is_new.then_some(()).ok_or(format!("{event} opens what is open"))
        };
        let kind = text("type")?;
        match kind.as_str() {
            "RUN_STARTED" => {
                text("threadId")?;
                text("runId")?;
            }
            "TEXT_MESSAGE_START" => begin("text", text("messageId")?)?,
            "REASONING_START" => begin("span", text("messageId")?)?,
            "REASONING_MESSAGE_START" => begin("reasoning", text("messageId")?)?,
            "TOOL_CALL_START" => {
                text("toolCallName")?;
                begin("call", text("toolCallId")?)?;
            }
            "SUBAGENT_STARTED" => begin("subagent", text("subagentRunId")?)?,
            "TOOL_CALL_RESULT" => {
                text("messageId")?;
                text("toolCallId")?;
            }
            "STATE_SNAPSHOT" | "CUSTOM" | "ACTIVITY_SNAPSHOT" => {}
            "MESSAGES_SNAPSHOT" | "STATE_DELTA" => {
                let list = if kind == "STATE_DELTA" {
                    &event["delta"]
                } else {
                    &event["messages"]
                };
                list.as_array().ok_or("no list")?;
            }
            "RUN_ERROR" => {
                text("message")?;
                is_over = true;
                open.clear();
            }
            "RUN_FINISHED" => {
                text("threadId")?;
                text("runId")?;
                is_over = true;
            }
            other => {
                let (kind, id) = match other {
                    "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_END" => ("text", "messageId"),
                    "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_END" => ("reasoning", "messageId"),
                    "REASONING_END" => ("span", "messageId"),
                    "TOOL_CALL_ARGS" | "TOOL_CALL_END" => ("call", "toolCallId"),
                    "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => ("subagent", "subagentRunId"),
                    other => return Err(format!("'{other}' is no event")),
                };
                let item = (kind, text(id)?);
                if other.ends_with("CONTENT") || other.ends_with("ARGS") {
                    text("delta")?;
                    if !open.contains(&item) {
                        return Err(format!("{event} belongs to nothing open"));
                    }
                } else if !open.remove(&item) {
                    return Err(format!("{event} ends what is not open"));
                }
            }
        }
    }
    match (is_over, open.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("{open:?} is left open")),
        (false, _) => Err("the stream has no end".into()),
    }
}
