//! The servers that play providers refuse what the real ones refuse.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::server::Request;
use crate::{anthropic_rules, chat_rules, chat_server, gemini_rules};

fn request(path: &str, headers: &[(&str, &str)], body: Value) -> Request {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Request {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: headers.collect::<BTreeMap<_, _>>(),
        body,
    }
}

/// A change of a good request, and a word of the refusal that must follow.
type Change = (&'static str, fn(&mut Value));

fn anthropic(change: fn(&mut Value)) -> Result<(), String> {
    let thinking = json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" });
    let call = json!({ "type": "tool_use", "id": "t1", "name": "look", "input": {} });
    let mut body = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 100, "stream": true,
        "system": [{ "type": "text", "text": "You are a chef." }],
        "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Leeks?" }] },
            { "role": "assistant", "content": [thinking, call] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "yes" }] },
        ],
    });
    let mut given = anthropic_rules::Given::default();
    given.add(&[thinking, call], false);
    change(&mut body);
    let headers = [("x-api-key", "k"), ("anthropic-version", "2026-10-21")];
    anthropic_rules::check(&request("/v1/messages", &headers, body), &given)
}

#[test]
fn anthropic_refuses() {
    let changes: [Change; 21] = [
        ("extra inputs", |body| {
            body["novel"] = json!(1);
        }),
        ("max_tokens", |body| {
            body["max_tokens"] = Value::Null;
        }),
        ("sampling", |body| {
            body["temperature"] = json!(0);
        }),
        ("system", |body| {
            body["system"][0] = json!({ "type": "image" });
        }),
        ("the first", |body| {
            body["messages"][0]["role"] = json!("assistant");
        }),
        ("must not follow", |body| {
            body["messages"][1]["role"] = json!("user");
        }),
        ("must not follow", |body| {
            body["messages"][1] = json!({ "role": "system", "content": [] });
        }),
        ("prefill", |body| {
            body["messages"].as_array_mut().unwrap().truncate(2);
        }),
        ("must not be empty", |body| {
            body["messages"][0]["content"] = json!([]);
        }),
        ("non-empty", |body| {
            body["messages"][0]["content"][0]["text"] = json!(" ");
        }),
        ("not permitted for user", |body| {
            body["messages"][0]["content"][0]["type"] = json!("thinking");
        }),
        ("not permitted for assistant", |body| {
            body["messages"][1]["content"][0]["type"] = json!("document");
        }),
        ("must start with its thinking", |body| {
            body["messages"][1]["content"].as_array_mut().unwrap().remove(0);
        }),
        ("cannot be modified", |body| {
            body["messages"][1]["content"][0]["thinking"] = json!("Hm");
        }),
        ("must be an object", |body| {
            body["messages"][1]["content"][1]["input"] = json!("x");
        }),
        ("tool_use.id", |body| {
            body["messages"][1]["content"][1]["id"] = json!("call:1");
        }),
        ("unexpected tool_use_id", |body| {
            body["messages"][2]["content"][0]["tool_use_id"] = json!("t2");
        }),
        ("without tool_result", |body| {
            body["messages"][2]["content"][0] = json!({ "type": "text", "text": "yes" });
        }),
        ("come first", |body| {
            let text = json!({ "type": "text", "text": "Here." });
            body["messages"][2]["content"]
                .as_array_mut()
                .unwrap()
                .insert(0, text);
        }),
        ("top level", |body| {
            body["tools"][0]["input_schema"]["oneOf"] = json!([{}]);
        }),
        ("additionalProperties", |body| {
            body["output_config"] =
                json!({ "format": { "type": "json_schema", "schema": { "type": "object" } } });
        }),
    ];
    assert_eq!(anthropic(|_| {}), Ok(()));
    for (word, change) in changes {
        let refusal = anthropic(change).unwrap_err();
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
}

fn gemini(change: fn(&mut Value)) -> Result<(), String> {
    let call =
        json!({ "functionCall": { "id": "f1", "name": "look", "args": {} }, "thoughtSignature": "c2ln" });
    let second = json!({ "functionCall": { "id": "f2", "name": "look", "args": { "n": 2 } } });
    let answer =
        |id: &str| json!({ "functionResponse": { "id": id, "name": "look", "response": { "output": 1 } } });
    let mut body = json!({
        "systemInstruction": { "parts": [{ "text": "You are a chef." }] },
        "tools": [{ "functionDeclarations": [{ "name": "look" }] }],
        "contents": [
            { "role": "user", "parts": [{ "text": "Leeks?" }] },
            { "role": "model", "parts": [call, second] },
            { "role": "user", "parts": [answer("f1"), answer("f2")] },
        ],
    });
    let mut given = gemini_rules::Given::default();
    given.add(&[call, second]);
    change(&mut body);
    let path = "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse";
    gemini_rules::check(&request(path, &[("x-goog-api-key", "k")], body), &given)
}

#[test]
fn gemini_refuses() {
    let changes: [Change; 14] = [
        ("Unknown name", |body| {
            body["novel"] = json!(1);
        }),
        ("Unknown name", |body| {
            body["generationConfig"] = json!({ "novel": 1 });
        }),
        ("Unknown name", |body| {
            body["contents"][0]["parts"][0]["novel"] = json!(1);
        }),
        ("Invalid function name", |body| {
            body["tools"][0]["functionDeclarations"][0]["name"] = json!("9/a");
        }),
        ("begins and ends", |body| {
            body["contents"].as_array_mut().unwrap().truncate(2);
        }),
        ("alternate", |body| {
            body["contents"][1]["role"] = json!("user");
        }),
        ("must not be empty", |body| {
            body["contents"][0]["parts"] = json!([]);
        }),
        ("must not be empty", |body| {
            body["contents"][0]["parts"][0]["text"] = json!("");
        }),
        ("one kind of data", |body| {
            body["contents"][0]["parts"][0]["inlineData"] = json!({});
        }),
        ("number of function response", |body| {
            body["contents"][2]["parts"].as_array_mut().unwrap().pop();
        }),
        ("does not answer", |body| {
            body["contents"][2]["parts"].as_array_mut().unwrap().reverse();
        }),
        ("missing a thought_signature", |body| {
            body["contents"][1]["parts"][0]
                .as_object_mut()
                .unwrap()
                .remove("thoughtSignature");
        }),
        ("not valid for this part", |body| {
            body["contents"][1]["parts"][0]["thoughtSignature"] = json!("c2lO");
        }),
        ("not valid for this part", |body| {
            body["contents"][1]["parts"][1]["thoughtSignature"] = json!("c2ln");
        }),
    ];
    assert_eq!(gemini(|_| {}), Ok(()));
    for (word, change) in changes {
        let refusal = gemini(change).unwrap_err();
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
}

fn chat(change: fn(&mut Value)) -> Result<(), String> {
    let answer = chat_server::called("Hm.", &[("a", "look", json!({})), ("b", "look", json!({}))]);
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "yes" });
    let schema = json!({ "type": "object", "properties": {} });
    let mut body = json!({
        "model": "m", "stream": true,
        "tools": [{ "type": "function", "function": { "name": "look", "parameters": schema } }],
        "messages": [
            { "role": "system", "content": "You are a chef." },
            { "role": "user", "content": "Leeks?" },
            answer, result("a"), result("b"),
        ],
    });
    let mut given = chat_rules::Given::default();
    given.add(&answer);
    change(&mut body);
    chat_rules::check(&request("/v1/chat/completions", &[], body), &given)
}

#[test]
fn strict_servers_of_chat_completions_refuse() {
    let changes: [Change; 14] = [
        ("unknown parameter", |body| {
            body["novel"] = json!(1);
        }),
        ("must not be empty", |body| {
            body["messages"] = json!([]);
        }),
        ("must not be empty", |body| {
            body["messages"][1]["content"] = json!("");
        }),
        ("is no role", |body| {
            body["messages"][1]["role"] = json!("human");
        }),
        ("no such content", |body| {
            body["messages"][1]["content"] = json!([{ "type": "thinking" }]);
        }),
        ("must be followed by tool messages", |body| {
            body["messages"].as_array_mut().unwrap().pop();
        }),
        ("must be followed by tool messages", |body| {
            body["messages"].as_array_mut().unwrap().swap(1, 2);
        }),
        ("response to a preceding message", |body| {
            body["messages"].as_array_mut().unwrap().remove(2);
        }),
        ("there twice", |body| {
            body["messages"][2]["tool_calls"][1]["id"] = json!("a");
        }),
        ("JSON text of an object", |body| {
            body["messages"][2]["tool_calls"][1]["function"]["arguments"] = json!("5");
        }),
        ("reasoning_content", |body| {
            body["messages"][2]["reasoning_content"] = json!("Hm");
        }),
        ("thought signature", |body| {
            body["messages"][2]["tool_calls"][0]["extra_content"] = Value::Null;
        }),
        ("must have type 'object'", |body| {
            body["tools"][0]["function"]["parameters"]["type"] = json!("string");
        }),
        ("only allowed when", |body| {
            body["tools"] = json!([]);
            body["tool_choice"] = json!("auto");
        }),
    ];
    assert_eq!(chat(|_| {}), Ok(()));
    for (word, change) in changes {
        let refusal = chat(change).unwrap_err();
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
}
