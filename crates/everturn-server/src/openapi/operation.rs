//! One route as an operation of the OpenAPI document.

use everturn_agent::PlainProtocol;
use everturn_core::Descriptor;
use serde_json::{Map, Value, json};

use super::components::Components;
use super::security;
use crate::RouteKind;
use crate::handler::{JSON_LINES, Mounted};

/// Every failure of a call, with its reason.
const FAILURES: [(&str, &str); 12] = [
    (
        "400",
        "The request is wrong, or wrong for the state that the conversation is in.",
    ),
    (
        "404",
        "There is no such snapshot, session or other thing asked for.",
    ),
    ("408", "The body took too long to arrive."),
    ("409", "Another call was first."),
    ("413", "The body is too large."),
    ("415", "The body is not sent as JSON."),
    ("429", "Too many calls are under way."),
    ("499", "The call was cancelled."),
    ("500", "Something went wrong inside."),
    ("501", "The action does not offer this."),
    ("503", "The server cannot answer now."),
    ("504", "The call took too long."),
];

/// Returns the operation of a route.
pub(super) fn operation(mounted: &Mounted, components: &mut Components) -> Value {
    let descriptor = mounted.action.descriptor();
    let route = &mounted.route;
    let mut operation = json!({
        "operationId": format!("{}.{}", route.kind.name(), descriptor.key.trim_start_matches('/')),
        "tags": [route.kind.name()],
    });
    if let Some(description) = &descriptor.description {
        operation["description"] = description.as_str().into();
    }
    let own = descriptor.metadata.get("everturn");
    if let Some(allowed) = own.and_then(|own| own.get("clientPermissions")) {
        // The schemas are those of the whole protocol; this lists the fields that the agent accepts.
        operation["x-everturn-client-permissions"] = allowed.clone();
    }
    if super::alternatives(&mounted.shared)
        .iter()
        .any(|schemes| !schemes.is_empty())
    {
        operation["security"] = security(&mounted.shared);
    }
    let mut responses = failures(mounted);
    let mut answers = |code: &str, response: Value| responses.insert(code.to_owned(), response);
    operation["summary"] = summary(route.kind, descriptor).into();
    match route.kind {
        RouteKind::Stop => {
            operation["parameters"] = json!([stream_id(true)]);
            answers("204", json!({ "description": "The call is asked to stop." }));
        }
        RouteKind::Conversation => {
            answers(
                "101",
                json!({ "description": "A WebSocket, on which many turns may follow." }),
            );
            answers(
                "403",
                failure("Pages of this origin may not open connections, or the caller may not."),
            );
            answers(
                "426",
                failure("The path is a WebSocket and was not opened as one."),
            );
        }
        _ => {
            operation["parameters"] = parameters(mounted);
            let mut body = request_body(descriptor, components);
            let mut success = success(descriptor, components);
            if mounted.takes_lines() {
                body["content"][JSON_LINES] =
                    lines("Each line is an input; the query parameter 'init' is 'init'.");
            }
            if mounted.gives_lines() {
                success["content"][JSON_LINES] = lines("Each line is a chunk.");
            }
            operation["requestBody"] = body;
            answers("200", success);
            if route.kind == RouteKind::Archive {
                answers("403", failure("The caller may not change or export sessions."));
            }
            if mounted.is_recorded() {
                let gone = "The stream to reattach to is unknown, expired or another caller's.";
                answers("204", json!({ "description": gone }));
            }
        }
    }
    responses.sort_keys();
    operation["responses"] = Value::Object(responses);
    operation
}

fn summary(kind: RouteKind, descriptor: &Descriptor) -> String {
    match kind {
        RouteKind::Agent => format!("Runs one turn of the agent {}.", descriptor.name),
        RouteKind::Companion | RouteKind::Archive => {
            format!("{} of the agent {}.", descriptor.action_type, descriptor.name)
        }
        RouteKind::Conversation => format!("Holds a conversation with the agent {}.", descriptor.name),
        RouteKind::Stop => format!("Stops a streamed call of {}.", descriptor.name),
        _ => format!("Calls {}.", descriptor.name),
    }
}

fn parameters(mounted: &Mounted) -> Value {
    let mut parameters = vec![json!({
        "name": "stream",
        "in": "query",
        "description": "Whether to stream; so does 'Accept: text/event-stream'.",
        "schema": { "type": "boolean" },
    })];
    if mounted.takes_lines() {
        parameters.push(json!({
            "name": "init",
            "in": "query",
            "description": "The 'init' of a body of JSON lines.",
            "content": json_content(&json!({ "type": "object" })),
        }));
    }
    if PlainProtocol::of(&mounted.action.descriptor().action_type).is_some() {
        parameters.push(json!({
            "name": "X-Everturn-Extensions",
            "in": "header",
            "description": "Whether to send the fields that Everturn adds to Genkit's protocol.",
            "schema": { "enum": ["0", "1", "false", "true"] },
        }));
    }
    if !mounted.is_recorded() {
        return parameters.into();
    }
    parameters.push(stream_id(false));
    if mounted.shared.logged_calls.is_some() {
        parameters.push(json!({
            "name": "Last-Event-ID",
            "in": "header",
            "description": "The last event of the stream that was seen; with X-Genkit-Stream-Id only.",
            "schema": { "type": "string" },
        }));
    }
    parameters.into()
}

fn stream_id(required: bool) -> Value {
    json!({
        "name": "X-Genkit-Stream-Id",
        "in": "header",
        "required": required,
        "description": "The stream that is meant, as an earlier response named it.",
        "schema": { "type": "string" },
    })
}

fn request_body(descriptor: &Descriptor, components: &mut Components) -> Value {
    let key = &descriptor.key;
    let mut properties = Map::new();
    let data = components.refer(descriptor.input_schema.as_ref(), &format!("{key}.input"));
    properties.insert("data".into(), data);
    if let Some(init) = &descriptor.init_schema {
        let init = components.refer(Some(init), &format!("{key}.init"));
        properties.insert("init".into(), json!({ "anyOf": [init, { "type": "null" }] }));
    }
    let takes_nothing = |schema: &everturn_core::Schema| schema.validate(&Value::Null).is_ok();
    let required = !descriptor.input_schema.as_ref().is_none_or(takes_nothing);
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if required {
        schema["required"] = json!(["data"]);
    }
    json!({ "required": required, "content": json_content(&schema) })
}

fn success(descriptor: &Descriptor, components: &mut Components) -> Value {
    let key = &descriptor.key;
    let output = components.refer(descriptor.output_schema.as_ref(), &format!("{key}.output"));
    let chunk = components.refer(descriptor.stream_schema.as_ref(), &format!("{key}.chunk"));
    let only = |name: &str, schema: &Value| json!({ "type": "object", "properties": { name: schema }, "required": [name] });
    let error = json!({ "$ref": "#/components/schemas/Error" });
    let mut content = json_content(&only("result", &output));
    content["text/event-stream"] = json!({
        // Without a type: tools disagree on whether a schema here is of the whole text or of one event.
        "schema": {
            "description": "Events of the form 'data: <json>', each followed by a blank line: any number of messages, \
                            then one result or one error.",
        },
        "x-event-schema": { "oneOf": [only("message", &chunk), only("result", &output), only("error", &error)] },
    });
    json!({ "description": "The result; once streaming has begun, also failures.", "content": content })
}

fn failures(mounted: &Mounted) -> Map<String, Value> {
    let mut responses: Map<String, Value> = FAILURES
        .iter()
        .map(|(code, description)| ((*code).to_owned(), failure(description)))
        .collect();
    // The HTTP library answers it before our code sees the request, so it has no body.
    let flood = json!({ "description": "The head of the request is too large." });
    responses.insert("431".into(), flood);
    if mounted.shared.provider.is_some() {
        let unproven = "The caller does not say who it is, or does not prove it.";
        responses.insert("401".into(), failure(unproven));
        responses.insert("403".into(), failure("The caller may not do this."));
    }
    let other = json!({ "$ref": "#/components/responses/Error" });
    responses.insert("default".into(), other);
    responses
}

/// Returns a response with the body of a failure.
fn failure(description: &str) -> Value {
    let error = json!({ "$ref": "#/components/schemas/Error" });
    json!({ "description": description, "content": json_content(&error) })
}

/// Returns JSON content of a schema.
pub(super) fn json_content(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn lines(description: &str) -> Value {
    json!({ "schema": { "description": description } })
}
