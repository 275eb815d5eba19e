//! Frontmatter, tools, schemas and the order in which metadata is merged.

use dotprompt::{Data, Dotprompt, ErrorKind, Metadata, ToolDefinition, picoschema};
use serde_json::{Value, json};

fn metadata(dotprompt: &Dotprompt, source: &str) -> Value {
    json!(
        dotprompt
            .render_metadata(source, &Metadata::new())
            .expect("the metadata resolves")
    )
}

#[test]
fn malformed_yaml_makes_the_whole_source_the_template() {
    let source = "# note\n---\nmodel: m\nlist: [1\n---\nHello {{name}}\n";

    let parsed = Dotprompt::new().parse(source);

    assert_eq!(parsed.template(), source.trim());
    assert_eq!(
        json!(parsed.metadata()),
        json!({"ext": {}, "metadata": {}, "config": {}})
    );
    let error = parsed.frontmatter_error().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Frontmatter(_)));
    assert!(error.location().unwrap().line >= 4, "{error}");
    assert!(Dotprompt::new().render(source, &Data::new()).is_ok());
}

#[test]
fn an_error_in_yaml_is_placed_in_the_file() {
    let prompt = Dotprompt::new()
        .compile_named("a.prompt", "\n---\na: 1\nb: \"x\n---\nbody\n")
        .unwrap();

    let error = prompt.parsed().frontmatter_error().unwrap();

    assert!(error.to_string().starts_with("a.prompt:"), "{error}");
    assert!(error.location().unwrap().line >= 4, "{error}");
}

#[test]
fn empty_frontmatter_is_none() {
    let parsed = Dotprompt::new().parse("---\n\n---\nbody\n");

    assert_eq!(parsed.template(), "---\n\n---\nbody\n");
    assert!(parsed.metadata().raw().is_none());
}

#[test]
fn a_source_without_frontmatter_is_not_trimmed_and_one_with_it_is() {
    let dotprompt = Dotprompt::new();

    assert_eq!(dotprompt.parse("  a\n").template(), "  a\n");
    assert_eq!(dotprompt.parse("---\na: 1\n---\n\n  a \u{a0}\n").template(), "a");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_source() {
    assert_eq!(
        Dotprompt::new()
            .parse("\u{feff}---\nmodel: m\n---\nx")
            .metadata()
            .model(),
        Some("m")
    );
}

#[test]
fn keys_that_the_format_does_not_define_are_in_raw_only() {
    let source = "---\nmaxTurns: 3\ntoolChoice: none\nuse: [retry]\nmetadata: {a: 1}\nreturnToolRequests: true\n---\nx";

    let metadata = Dotprompt::new()
        .render_metadata(source, &Metadata::new())
        .unwrap();

    assert_eq!(metadata.raw().unwrap()["maxTurns"], 3);
    assert_eq!(metadata.raw().unwrap()["use"], json!(["retry"]));
    assert_eq!(metadata.get("maxTurns"), None);
    assert_eq!(metadata.get("metadata"), Some(&json!({})));
}

#[test]
fn defined_tools_become_definitions_and_others_stay_names() {
    let search = ToolDefinition::new("search", json!({"type": "object"})).description("searches");
    let dotprompt = Dotprompt::new().define_tool(search);

    let metadata = metadata(&dotprompt, "---\ntools: [search, refund]\n---\nx");

    assert_eq!(metadata["tools"], json!(["refund"]));
    let expected = json!([{"name": "search", "description": "searches", "inputSchema": {"type": "object"}}]);
    assert_eq!(metadata["toolDefs"], expected);
}

#[test]
fn a_tool_resolver_must_know_the_tools_it_is_asked_for() {
    let dotprompt = Dotprompt::new().tool_resolver(|name| {
        Ok((name == "search").then(|| ToolDefinition::new("search", json!({"type": "object"}))))
    });

    let known = dotprompt
        .render_metadata("---\ntools: [search]\n---\nx", &Metadata::new())
        .unwrap();
    let unknown = dotprompt
        .render_metadata("---\ntools: [search, refund]\n---\nx", &Metadata::new())
        .unwrap_err();

    assert_eq!(known.tool_definitions().len(), 1);
    assert_eq!(known.tools().count(), 0);
    assert_eq!(unknown.to_string(), "2:17: unknown tool 'refund'");
}

#[test]
fn tools_that_are_no_list_are_an_error() {
    let error = Dotprompt::new()
        .render_metadata("---\na: 1\ntools: search\n---\nx", &Metadata::new())
        .unwrap_err();

    assert_eq!(
        error.to_string(),
        "3:1: 'tools' must be a list of names, found \"search\""
    );
}

#[test]
fn a_models_configuration_lies_below_the_prompts_and_that_below_the_options() {
    let dotprompt = Dotprompt::new()
        .default_model("small")
        .model_config("small", json!({"temperature": 0.1, "topK": 1, "topP": 1}))
        .model_config("large", json!({"temperature": 0.9}));
    let source = "---\nconfig: {topK: 2, topP: 2}\n---\nx";
    let options = Metadata::new().with("config", json!({"topP": 3}));

    let metadata = dotprompt.render_metadata(source, &options).unwrap();
    assert_eq!(
        json!(metadata.config()),
        json!({"temperature": 0.1, "topK": 2, "topP": 3})
    );
    assert_eq!(metadata.model(), None);

    let own = dotprompt
        .render_metadata("---\nmodel: large\n---\nx", &Metadata::new())
        .unwrap();
    assert_eq!(json!(own.config()), json!({"temperature": 0.9}));

    let chosen = dotprompt
        .render_metadata(source, &Metadata::new().with("model", "large"))
        .unwrap();
    assert_eq!(
        json!(chosen.config()),
        json!({"temperature": 0.9, "topK": 2, "topP": 2})
    );
}

#[test]
fn options_replace_whole_keys_but_merge_the_configuration() {
    let source = "---\ndescription: old\noutput: {format: json, schema: string}\n---\nx";
    let options = Metadata::new()
        .with("output", json!({"format": "text"}))
        .with("extra", 1);
    let prompt = Dotprompt::new().compile(source).unwrap();

    let rendered = prompt.render_with(&Data::new(), &options).unwrap();

    assert_eq!(rendered.metadata.description(), Some("old"));
    assert_eq!(rendered.metadata.output_format(), Some("text"));
    assert_eq!(rendered.metadata.output_schema(), None);
    assert_eq!(rendered.metadata.get("extra"), Some(&json!(1)));
}

#[test]
fn rendering_returns_the_metadata_without_the_input() {
    let prompt = Dotprompt::new()
        .compile("---\nmodel: m\ninput: {schema: string}\n---\nx")
        .unwrap();

    let rendered = prompt.render(&Data::new()).unwrap();

    assert_eq!(rendered.metadata.model(), Some("m"));
    assert_eq!(rendered.metadata.get("input"), None);
    assert_eq!(
        prompt.metadata().unwrap().input_schema(),
        Some(&json!({"type": "string"}))
    );
}

#[test]
fn named_schemas_come_from_definitions_then_from_the_resolver() {
    let dotprompt = Dotprompt::new()
        .define_schema("Name", json!({"type": "string", "minLength": 1}))
        .schema_resolver(|name| Ok((name == "Age").then(|| json!({"type": "integer"}))));
    let source = "---\noutput:\n  schema:\n    name: Name, who\n    age?: Age\n---\nx";

    let metadata = metadata(&dotprompt, source);

    let properties = &metadata["output"]["schema"]["properties"];
    assert_eq!(
        properties["name"],
        json!({"type": "string", "minLength": 1, "description": "who"})
    );
    assert_eq!(properties["age"], json!({"type": ["integer", "null"]}));
}

#[test]
fn an_error_in_a_schema_is_placed_at_its_key() {
    let source =
        "---\ninput:\n  schema:\n    a: string\noutput:\n  schema:\n    list(array):\n      a: Nope\n---\nx";
    let prompt = Dotprompt::new().compile_named("p.prompt", source).unwrap();

    assert_eq!(
        prompt.metadata().unwrap_err().to_string(),
        "p.prompt:8:7: unknown schema 'Nope'"
    );
    assert!(
        prompt.render_pieces(&Data::new()).is_ok(),
        "the template does not need the schema"
    );
}

#[test]
fn a_name_that_is_defined_later_is_found_by_a_prompt_that_failed_before() {
    use std::sync::{Arc, Mutex};
    let known = Arc::new(Mutex::new(None));
    let asked = known.clone();
    let dotprompt = Dotprompt::new().schema_resolver(move |_| Ok(asked.lock().unwrap().clone()));
    let prompt = dotprompt.compile("---\noutput: {schema: Later}\n---\nx").unwrap();

    assert!(prompt.metadata().is_err());
    *known.lock().unwrap() = Some(json!({"type": "string"}));

    assert_eq!(
        prompt.metadata().unwrap().output_schema(),
        Some(&json!({"type": "string"}))
    );
}

#[test]
fn picoschema_refuses_what_the_notation_does_not_have() {
    for (definition, message) in [
        (
            json!({"a": 5}),
            "invalid schema: a: expected a type or a mapping of properties, found 5",
        ),
        (
            json!({"a": {"b(tuple)": "string"}}),
            "invalid schema: a.b(tuple): the type in parentheses must be array, object or enum, found 'tuple'",
        ),
        (
            json!({"a(array": "string"}),
            "invalid schema: a(array: the parenthesis in the key is not closed",
        ),
        (
            json!({"a(enum)": "x"}),
            "invalid schema: a(enum): an enum needs a list of values, found \"x\"",
        ),
        (json!("Unknown, thing"), "unknown schema 'Unknown'"),
        (json!("object"), "unknown schema 'object'"),
    ] {
        assert_eq!(
            picoschema(&definition, |_| Ok(None)).unwrap_err().to_string(),
            message
        );
    }
}

#[test]
fn picoschema_expands_the_corners_of_the_notation() {
    for (definition, expected) in [
        (json!(null), None),
        (
            json!("any, thing"),
            Some(json!({"type": "any", "description": "thing"})),
        ),
        (json!("string, "), Some(json!({"type": "string"}))),
        (
            json!({}),
            Some(json!({"type": "object", "properties": {}, "additionalProperties": false})),
        ),
        (
            json!({"type": ["string", "null"]}),
            Some(json!({"type": ["string", "null"]})),
        ),
        (
            json!({"a?(enum, b, c)": ["x", null], "d(array, see (e))": "any", "f?(object)": "string", "g": null}),
            Some(json!({
                "type": "object",
                "properties": {
                    "a": {"enum": ["x", null], "description": "b, c"},
                    "d": {"type": "array", "items": {}, "description": "see (e)"},
                    "f": {"type": ["string", "null"]},
                    "g": {"type": "object", "properties": {}, "additionalProperties": false},
                },
                "required": ["d", "g"],
                "additionalProperties": false,
            })),
        ),
    ] {
        assert_eq!(picoschema(&definition, |_| Ok(None)).unwrap(), expected);
    }
}
