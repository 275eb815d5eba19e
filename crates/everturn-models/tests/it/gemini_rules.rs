//! The rules of Gemini's `generateContent`: a pure check of a request.

use serde_json::Value;

use crate::server::Request;

type Check = Result<(), String>;

const FIELDS: [&str; 10] = [
    "contents",
    "systemInstruction",
    "generationConfig",
    "tools",
    "toolConfig",
    "safetySettings",
    "cachedContent",
    "serviceTier",
    "labels",
    "store",
];
const CONFIG_FIELDS: [&str; 17] = [
    "temperature",
    "topP",
    "topK",
    "maxOutputTokens",
    "stopSequences",
    "candidateCount",
    "seed",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "thinkingConfig",
    "speechConfig",
    "imageConfig",
    "mediaResolution",
    "presencePenalty",
    "frequencyPenalty",
];
/// The content of a part: exactly one of these.
const CONTENTS: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];
const BESIDE: [&str; 5] = [
    "thought",
    "thoughtSignature",
    "videoMetadata",
    "mediaResolution",
    "partMetadata",
];
const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// The parts that the server gave out so far.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<Value>);

impl Given {
    pub(crate) fn add(&mut self, parts: &[Value]) {
        self.0.extend_from_slice(parts);
    }

    /// The call that the server gave with this name and these arguments.
    fn call(&self, part: &Value) -> Option<&Value> {
        let call = &part["functionCall"];
        self.0.iter().find(|known| {
            let known = &known["functionCall"];
            known["name"] == call["name"] && arguments(known) == arguments(call) && known["id"] == call["id"]
        })
    }
}

fn arguments(call: &Value) -> Value {
    match &call["args"] {
        Value::Null => Value::Object(serde_json::Map::new()),
        args => args.clone(),
    }
}

fn ensure(holds: bool, refusal: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(refusal()) }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Rejects the requests that the API rejects, with a message that names the position.
pub(crate) fn check(request: &Request, given: &Given) -> Check {
    let (body, path) = (&request.body, request.path.as_str());
    ensure(request.headers.contains_key("x-goog-api-key"), || {
        "no key".to_owned()
    })?;
    let is_stream = path.starts_with("/v1beta/models/") && path.ends_with(":streamGenerateContent?alt=sse");
    ensure(is_stream, || format!("no such method: {path}"))?;
    check_names(body, "the request", &FIELDS)?;
    check_names(&body["generationConfig"], "generation_config", &CONFIG_FIELDS)?;
    let is_early = path.contains("/gemini-1") || path.contains("/gemini-2");
    check_tools(body, is_early)?;
    for part in list(&body["systemInstruction"]["parts"]) {
        check_part(part)?;
    }
    check_contents(body)?;
    check_calls(body)?;
    check_signatures(body, given, is_early)
}

fn check_names(object: &Value, place: &str, known: &[&str]) -> Check {
    let unknown = object
        .as_object()
        .into_iter()
        .flatten()
        .find(|(key, _)| !known.contains(&key.as_str()));
    match unknown {
        None => Ok(()),
        Some((key, _)) => Err(format!(
            "Invalid JSON payload received. Unknown name \"{key}\" at '{place}'"
        )),
    }
}

fn check_tools(body: &Value, is_early: bool) -> Check {
    let functions: Vec<&Value> = list(&body["tools"])
        .flat_map(|tool| list(&tool["functionDeclarations"]))
        .collect();
    for function in &functions {
        let known = [
            "name",
            "description",
            "parameters",
            "parametersJsonSchema",
            "response",
            "behavior",
        ];
        check_names(function, "function_declarations", &known)?;
        let name = function["name"].as_str().unwrap_or_default();
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
        let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        ensure(
            starts_well && name.len() <= 128 && name.chars().all(is_allowed),
            || format!("Invalid function name '{name}'"),
        )?;
        let schema = &function["parametersJsonSchema"];
        ensure(schema.is_null() || schema["type"] == "object", || {
            format!("the parameters schema of '{name}' should be of type OBJECT")
        })?;
    }
    let is_json = body["generationConfig"]["responseMimeType"] == "application/json";
    ensure(!(is_early && is_json && !functions.is_empty()), || {
        "Function calling with a response mime type: 'application/json' is unsupported".to_owned()
    })
}

fn check_part(part: &Value) -> Check {
    let known: Vec<&str> = CONTENTS.iter().chain(&BESIDE).copied().collect();
    check_names(part, "parts", &known)?;
    let count = CONTENTS.iter().filter(|name| !part[**name].is_null()).count();
    ensure(count == 1, || {
        format!("a part must have one kind of data: {part}")
    })?;
    let is_empty = part["text"] == "" && part["thoughtSignature"].is_null();
    ensure(!is_empty, || "a part must not be empty".to_owned())?;
    if let Some(inline) = part.get("inlineData") {
        ensure(
            inline["mimeType"].is_string() && inline["data"].is_string(),
            || "inline_data".to_owned(),
        )?;
    }
    if let Some(call) = part.get("functionCall") {
        check_names(call, "function_call", &["id", "name", "args"])?;
        ensure(call["args"].is_object(), || {
            "function_call.args must be an object".to_owned()
        })?;
    }
    if let Some(response) = part.get("functionResponse") {
        check_names(
            response,
            "function_response",
            &["id", "name", "response", "parts"],
        )?;
        ensure(response["response"].is_object(), || {
            "function_response.response must be an object".to_owned()
        })?;
    }
    Ok(())
}

fn check_contents(body: &Value) -> Check {
    let roles: Vec<&str> = list(&body["contents"])
        .map(|content| content["role"].as_str().unwrap_or("?"))
        .collect();
    ensure(
        roles.first() == Some(&"user") && roles.last() == Some(&"user"),
        || "Please ensure that a conversation begins and ends with a user turn".to_owned(),
    )?;
    let alternates = roles.windows(2).all(|pair| pair[0] != pair[1]);
    ensure(
        alternates && roles.iter().all(|role| matches!(*role, "user" | "model")),
        || "Please ensure that turns alternate between user and model".to_owned(),
    )?;
    for content in list(&body["contents"]) {
        ensure(list(&content["parts"]).next().is_some(), || {
            "contents.parts must not be empty".to_owned()
        })?;
        list(&content["parts"]).try_for_each(check_part)?;
    }
    Ok(())
}

/// Each content with calls is followed by one with as many answers, in their order.
fn check_calls(body: &Value) -> Check {
    let contents: Vec<&Value> = list(&body["contents"]).collect();
    let of = |content: Option<&&Value>, kind: &str| -> Vec<Value> {
        let parts = content
            .map(|content| list(&content["parts"]))
            .into_iter()
            .flatten();
        parts
            .map(|part| part[kind].clone())
            .filter(|value| !value.is_null())
            .collect()
    };
    for index in 0..contents.len() {
        let calls = match contents[index]["role"].as_str() {
            Some("model") => of(contents.get(index), "functionCall"),
            _ => continue,
        };
        let answers = of(contents.get(index + 1), "functionResponse");
        ensure(calls.len() == answers.len(), || {
            "Please ensure that the number of function response parts is equal to the number of function call parts"
                .to_owned()
        })?;
        for (call, answer) in calls.iter().zip(&answers) {
            ensure(
                call["name"] == answer["name"] && call["id"] == answer["id"],
                || format!("function response {answer} does not answer {call}"),
            )?;
        }
    }
    Ok(())
}

/// A signature comes back on the part that it was given with; the first call of a step of the current turn
/// has one.
fn check_signatures(body: &Value, given: &Given, is_early: bool) -> Check {
    let contents: Vec<&Value> = list(&body["contents"]).collect();
    for part in contents.iter().flat_map(|content| list(&content["parts"])) {
        let signature = &part["thoughtSignature"];
        if signature.is_null() || signature == SKIP_SIGNATURE {
            continue;
        }
        ensure(given.0.iter().any(|known| is_same(known, part)), || {
            format!("Thought signature is not valid for this part: {part}")
        })?;
    }
    let is_text = |part: &Value| part["functionResponse"].is_null();
    let begins = |content: &&Value| content["role"] == "user" && list(&content["parts"]).any(is_text);
    let turn = contents.iter().rposition(begins).unwrap_or_default();
    for content in contents[turn..]
        .iter()
        .filter(|content| content["role"] == "model")
    {
        let mut calls = list(&content["parts"]).filter(|part| !part["functionCall"].is_null());
        let Some(first) = calls.next() else { continue };
        let own = given.call(first);
        let is_signed = match own {
            Some(own) if !own["thoughtSignature"].is_null() => {
                own["thoughtSignature"] == first["thoughtSignature"]
            }
            _ => is_early || first["thoughtSignature"] == SKIP_SIGNATURE,
        };
        ensure(is_signed, || {
            format!("Function call {first} in the current turn is missing a thought_signature")
        })?;
    }
    Ok(())
}

fn is_same(known: &Value, part: &Value) -> bool {
    let mut known = known.clone();
    if let Some(call) = known.get_mut("functionCall") {
        call["args"] = arguments(call);
    }
    known == *part
}
