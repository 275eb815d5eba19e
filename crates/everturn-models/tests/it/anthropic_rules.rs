//! The rules of Anthropic's Messages API: a pure check of a request.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::server::Request;

type Check = Result<(), String>;

const FIELDS: [&str; 25] = [
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "stop_sequences",
    "stream",
    "metadata",
    "cache_control",
    "container",
    "service_tier",
    "speed",
    "diagnostics",
    "temperature",
    "top_p",
    "top_k",
    "context_management",
    "mcp_servers",
    "compaction",
    "fallbacks",
    "thread",
    "output_format",
];

/// The data that the server sent so far and expects back unchanged.
#[derive(Debug, Default)]
pub(crate) struct Given {
    answers: Vec<Vec<Value>>,
    /// Whether the last answer waits to be sent back.
    is_paused: bool,
}

impl Given {
    pub(crate) fn add(&mut self, blocks: &[Value], is_paused: bool) {
        self.answers.push(blocks.to_vec());
        self.is_paused = is_paused;
    }

    fn blocks(&self) -> impl Iterator<Item = &Value> {
        self.answers.iter().flatten()
    }
}

fn ensure(holds: bool, refusal: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(refusal()) }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}

/// Rejects the requests that the API rejects, with a message that names the position.
pub(crate) fn check(request: &Request, given: &Given) -> Check {
    let body = &request.body;
    check_headers(request)?;
    check_fields(body, "the request", &FIELDS)?;
    ensure(body["model"].is_string(), || {
        "model: a string is required".to_owned()
    })?;
    ensure(body["max_tokens"].is_u64(), || {
        "max_tokens: a number is required".to_owned()
    })?;
    ensure(body["stream"] == true, || {
        "the tests stream everything".to_owned()
    })?;
    check_tools(body)?;
    for block in list(&body["system"]) {
        ensure(kind(block) == "text", || "system: only text blocks".to_owned())?;
        check_block(block, "system")?;
    }
    check_roles(body, given)?;
    for (index, message) in list(&body["messages"]).enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        check_fields(message, &format!("messages.{index}"), &["role", "content"])?;
        let is_filled = message["content"]
            .as_array()
            .is_some_and(|blocks| !blocks.is_empty());
        ensure(is_filled, || {
            format!("messages.{index}: content must not be empty")
        })?;
        for block in list(&message["content"]) {
            check_block(block, role).map_err(|refusal| format!("messages.{index}: {refusal}"))?;
        }
    }
    check_calls(body)?;
    check_unchanged(body, given)?;
    check_cache(body)
}

fn check_headers(request: &Request) -> Check {
    let has = |name: &str| request.headers.contains_key(name);
    ensure(has("x-api-key") || has("authorization"), || "no key".to_owned())?;
    let version = request.headers.get("anthropic-version").map(String::as_str);
    let samples = ["temperature", "top_p", "top_k"]
        .iter()
        .any(|name| !request.body[name].is_null());
    match version {
        Some("2023-06-01") => Ok(()),
        Some("2026-10-21") => ensure(!samples, || "sampling values are not permitted".to_owned()),
        _ => Err("anthropic-version: header is required".to_owned()),
    }
}

fn check_fields(object: &Value, place: &str, known: &[&str]) -> Check {
    let unknown = object
        .as_object()
        .into_iter()
        .flatten()
        .find(|(key, _)| !known.contains(&key.as_str()));
    match unknown {
        None => Ok(()),
        Some((key, _)) => Err(format!("{place}: {key}: extra inputs are not permitted")),
    }
}

fn check_tools(body: &Value) -> Check {
    let mut names = BTreeSet::new();
    for tool in list(&body["tools"]) {
        let name = tool["name"].as_str().unwrap_or_default();
        ensure(is_name(name, 128), || format!("tools: '{name}' is no name"))?;
        ensure(names.insert(name), || format!("tools: '{name}' is there twice"))?;
        // A tool with a type is the server's own.
        if tool["type"].is_null() {
            let fields = [
                "name",
                "description",
                "input_schema",
                "strict",
                "cache_control",
                "defer_loading",
                "eager_input_streaming",
            ];
            check_fields(tool, "tools", &fields)?;
            let schema = &tool["input_schema"];
            ensure(schema["type"] == "object", || {
                format!("tools: input_schema of '{name}' must be of type object")
            })?;
            let is_plain = ["oneOf", "anyOf", "allOf"]
                .iter()
                .all(|keyword| schema[*keyword].is_null());
            ensure(is_plain, || {
                format!("tools: input_schema of '{name}' does not support oneOf at the top level")
            })?;
        }
    }
    ensure(body["tool_choice"].is_null() || !names.is_empty(), || {
        "tool_choice may only be specified while providing tools".to_owned()
    })?;
    check_closed(&body["output_config"]["format"]["schema"])
}

fn check_closed(schema: &Value) -> Check {
    if schema["type"] == "object" {
        ensure(schema["additionalProperties"] == false, || {
            "output_config.format.schema: for 'object' type, 'additionalProperties' must be false".to_owned()
        })?;
    }
    match schema {
        Value::Object(members) => members.values().try_for_each(check_closed),
        Value::Array(items) => items.iter().try_for_each(check_closed),
        _ => Ok(()),
    }
}

fn is_name(name: &str, longest: usize) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (1..=longest).contains(&name.len()) && name.chars().all(is_allowed)
}

fn check_roles(body: &Value, given: &Given) -> Check {
    let roles: Vec<&str> = list(&body["messages"])
        .map(|message| message["role"].as_str().unwrap_or_default())
        .collect();
    ensure(roles.first() == Some(&"user"), || {
        "messages: the first must be the user's".to_owned()
    })?;
    let model = body["model"].as_str().unwrap_or_default();
    let families = ["opus-4-8", "opus-5", "sonnet-5", "haiku-5", "fable", "mythos"];
    let knows_system = families.iter().any(|family| model.contains(family));
    for pair in roles.windows(2) {
        let is_in_order = match pair {
            ["user" | "system", "assistant"] | ["assistant" | "system", "user"] => true,
            ["user", "system"] => knows_system,
            _ => false,
        };
        ensure(is_in_order, || {
            format!("messages: {} must not follow {}", pair[1], pair[0])
        })?;
    }
    let is_prefilled = roles.last() == Some(&"assistant");
    ensure(!is_prefilled || given.is_paused, || {
        "this model does not support assistant message prefill".to_owned()
    })
}

fn check_block(block: &Value, role: &str) -> Check {
    let known = match (role, kind(block)) {
        (_, "text") => &["type", "text", "cache_control", "citations"][..],
        ("user", "image") => &["type", "source", "cache_control"],
        ("user", "document") => &["type", "source", "title", "context", "citations", "cache_control"],
        ("user", "tool_result") => &["type", "tool_use_id", "content", "is_error", "cache_control"],
        ("assistant", "tool_use") => &[
            "type",
            "id",
            "name",
            "input",
            "caller",
            "toolset_name",
            "cache_control",
        ],
        ("assistant", "thinking") => &["type", "thinking", "signature"],
        ("assistant", "redacted_thinking") => &["type", "data"],
        ("assistant", kind) if kind.ends_with("_tool_result") => return Ok(()),
        ("user", "search_result" | "container_upload")
        | ("assistant", "server_tool_use" | "container_upload" | "compaction" | "mcp_tool_use") => {
            return Ok(());
        }
        (role, kind) => return Err(format!("a block of type '{kind}' is not permitted for {role}")),
    };
    check_fields(block, kind(block), known)?;
    match kind(block) {
        "text" => {
            let text = block["text"].as_str().unwrap_or_default();
            ensure(!text.trim().is_empty(), || {
                "text content blocks must be non-empty".to_owned()
            })?;
            let cites = role != "assistant" && !block["citations"].is_null();
            ensure(!cites, || "citations are not permitted here".to_owned())
        }
        "tool_use" => {
            ensure(block["input"].is_object(), || {
                "tool_use.input must be an object".to_owned()
            })?;
            let (id, name) = (block["id"].as_str(), block["name"].as_str());
            ensure(is_name(id.unwrap_or_default(), 256), || {
                format!("tool_use.id: {id:?}")
            })?;
            ensure(is_name(name.unwrap_or_default(), 128), || {
                format!("tool_use.name: {name:?}")
            })
        }
        "tool_result" => {
            let content = &block["content"];
            ensure(content.is_string() || content.is_array(), || {
                "tool_result.content".to_owned()
            })?;
            list(content).try_for_each(|block| check_block(block, "user"))
        }
        "image" | "document" => check_source(&block["source"]),
        _ => Ok(()),
    }
}

fn check_source(source: &Value) -> Check {
    let required = match source["type"].as_str().unwrap_or_default() {
        "base64" | "text" => &["media_type", "data"][..],
        "url" => &["url"],
        "file" => &["file_id"],
        "content" => &["content"],
        other => return Err(format!("source.type: '{other}'")),
    };
    let missing = required.iter().find(|name| source[**name].is_null());
    missing.map_or(Ok(()), |name| Err(format!("source.{name}: required")))
}

/// Every call is answered at the beginning of the next message, once; nothing else is.
fn check_calls(body: &Value) -> Check {
    let messages: Vec<&Value> = list(&body["messages"]).collect();
    let mut seen = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        let mut open: BTreeSet<&str> = BTreeSet::new();
        if message["role"] == "assistant" {
            for block in list(&message["content"]).filter(|block| kind(block) == "tool_use") {
                let id = block["id"].as_str().unwrap_or_default();
                ensure(seen.insert(id), || format!("tool_use ids must be unique: {id}"))?;
                open.insert(id);
            }
        }
        let next = messages.get(index + 1);
        let answers = next.map(|next| list(&next["content"])).into_iter().flatten();
        let mut is_over = false;
        for block in answers {
            match kind(block) {
                "tool_result" => {
                    ensure(!is_over, || "tool_result blocks must come first".to_owned())?;
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    ensure(open.remove(id), || {
                        format!("unexpected tool_use_id in tool_result: {id}")
                    })?;
                }
                _ => is_over = true,
            }
        }
        ensure(open.is_empty(), || {
            format!("messages.{index}: tool_use ids without tool_result immediately after: {open:?}")
        })?;
    }
    Ok(())
}

/// The server's own data is sent back unchanged, and no other data.
fn check_unchanged(body: &Value, given: &Given) -> Check {
    for message in list(&body["messages"]).filter(|message| message["role"] == "assistant") {
        let blocks: Vec<&Value> = list(&message["content"]).collect();
        for block in &blocks {
            let is_ours = !matches!(kind(block), "text" | "tool_use");
            ensure(!is_ours || given.blocks().any(|known| known == *block), || {
                format!(
                    "`{}` blocks in an assistant message cannot be modified: {block}",
                    kind(block)
                )
            })?;
        }
        // Thinking stands before the call that it led to, in its order.
        for answer in &given.answers {
            let is_thought = |block: &&Value| matches!(kind(block), "thinking" | "redacted_thinking");
            let call = answer.iter().find(|block| kind(block) == "tool_use");
            let place = call.and_then(|call| blocks.iter().position(|block| block["id"] == call["id"]));
            let Some(place) = place else { continue };
            let thoughts: Vec<&Value> = answer.iter().filter(is_thought).collect();
            let sent: Vec<&Value> = blocks[..place].iter().copied().filter(is_thought).collect();
            ensure(sent.ends_with(&thoughts), || {
                "a final assistant message must start with its thinking blocks".to_owned()
            })?;
        }
    }
    Ok(())
}

fn check_cache(body: &Value) -> Check {
    let messages = list(&body["messages"]).flat_map(|message| list(&message["content"]));
    let places = list(&body["system"])
        .chain(list(&body["tools"]))
        .chain(messages)
        .chain([body]);
    let marks: Vec<&Value> = places
        .map(|place| &place["cache_control"])
        .filter(|mark| !mark.is_null())
        .collect();
    ensure(marks.len() <= 4, || {
        format!("a maximum of 4 blocks with cache_control, found {}", marks.len())
    })?;
    let is_known = |mark: &&Value| {
        mark["type"] == "ephemeral" && matches!(mark["ttl"].as_str(), None | Some("5m" | "1h"))
    };
    ensure(marks.iter().all(is_known), || {
        "cache_control: not known".to_owned()
    })
}
