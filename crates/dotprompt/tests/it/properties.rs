//! Laws that hold for every input.

use dotprompt::{Data, Dotprompt, ErrorKind, Message, picoschema};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::fuzz_entry::parse_and_render;

/// Pieces that templates are made of, whole and broken.
fn template() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "{{x}}", "{{{x}}}", "{{&x}}", "{{~x~}}", "{{y}}", "{{z.x.y}}", "{{.}}", "{{..}}", "{{../x}}", "{{this}}", "{{@state.x}}",
            "{{@index}}", "{{@../key}}", "{{@metadata}}", "{{@root.z}}", "{{[a b]}}", "{{\"x\"}}", "{{y.[0]}}", "{{y.length}}",
            "{{#if t}}", "{{/if}}", "{{else}}", "{{^}}", "{{else if f}}", "{{#unless f}}", "{{/unless}}", "{{#each y}}", "{{/each}}",
            "{{#each list as |a b|}}", "{{a}}{{b}}", "{{#with z}}", "{{/with}}", "{{#z.x}}", "{{/z.x}}", "{{^n}}", "{{/n}}", "{{#t}}", "{{/t}}",
            "{{#ifEquals x \"a\"}}", "{{/ifEquals}}", "{{role \"system\"}}", "{{role x}}", "{{history}}", "{{section \"s\"}}",
            "{{media url=x}}", "{{json z indent=2}}", "{{json x}}", "{{lookup z \"x\"}}", "{{echo x}}", "{{#wrap}}", "{{/wrap}}", "{{log x}}",
            "{{> p}}", "{{> q}}", "{{> (lookup . \"p\")}}", "{{#> q z k=1}}", "{{/q}}", "{{> @partial-block}}", "{{#*inline \"i\"}}", "{{/inline}}",
            "{{> i}}", "{{! c }}", "{{!-- c --}}", "{{~!-- c --~}}", "{{{{raw}}}}", "{{{{/raw}}}}", "\\{{", "\\\\{{x}}",
            "<<<dotprompt:role:model>>>", "<<<dotprompt:history>>>", "---\n", "---\na: 1\n---\n", "{{", "}}", "{{{", "}}}", "{{{{", "\"", "'", "[",
            "(", ")", "|", "=", "~", "\\", "{{#", "{{/", "{{>", "{{!", "{{^", "{{else", "{{json (echo (echo x)) indent=y}}", "\r\n", "\u{feff}",
        ]).prop_map(str::to_owned),
        2 => "[ \n\ta-z]{0,4}",
        1 => "\\PC{0,4}",
        1 => "\\{\\{[#^/>&!~ a-z.@()\\[\\]\"'|=*{}]{0,12}\\}?\\}?",
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// A Picoschema definition below the top level, with names that resolve.
fn definition() -> impl Strategy<Value = Value> {
    let word = proptest::sample::select(vec![
        "any", "boolean", "integer", "null", "number", "string", "Named",
    ]);
    let described =
        (word, proptest::option::of("[ ,a-z]{0,8}")).prop_map(|(word, description)| match description {
            Some(description) => json!(format!("{word}, {description}")),
            None => json!(word),
        });
    described.prop_recursive(4, 32, 4, |inner| {
        let field = (
            "[a-z]{1,3}\\??",
            proptest::sample::select(vec!["", "(array)", "(array, d)", "(object, d)", "(enum, d)", "*"]),
            inner,
        );
        proptest::collection::vec(field, 0..4).prop_map(|fields| {
            let mut object = Map::new();
            for (name, kind, value) in fields {
                let (key, value) = match kind {
                    "*" => ("(*)".to_owned(), value),
                    "(enum, d)" => (format!("{name}{kind}"), json!(["a", 1])),
                    kind => (format!("{name}{kind}"), value),
                };
                object.insert(key, value);
            }
            // These two keys at the top would make it JSON Schema already.
            object.remove("type");
            Value::Object(object)
        })
    })
}

proptest! {
    #[test]
    fn rendering_never_panics(source in template()) {
        parse_and_render(&source);
    }

    #[test]
    fn arbitrary_text_never_panics(source in "\\PC{0,64}") {
        parse_and_render(&source);
    }

    #[test]
    fn picoschema_expands_to_valid_json_schema(definition in definition()) {
        let named = json!({"type": "object", "properties": {"a": {"type": "string"}}});

        let schema = picoschema(&definition, |name| Ok((name == "Named").then(|| named.clone()))).unwrap().unwrap();

        // At the top level the format keeps `type: any`, which JSON Schema does not have.
        prop_assume!(schema.get("type") != Some(&json!("any")));
        prop_assert!(jsonschema::draft7::meta::is_valid(&schema), "{schema}");
        prop_assert!(jsonschema::draft202012::meta::is_valid(&schema), "{schema}");
    }

    #[test]
    fn any_value_as_a_schema_expands_or_is_refused(value in json_value()) {
        if let Err(error) = picoschema(&value, |_| Ok(None)) {
            prop_assert!(matches!(error.kind(), ErrorKind::Schema(_) | ErrorKind::UnknownSchema(_)), "{error}");
        }
    }

    #[test]
    fn text_without_tags_is_rendered_as_it_is(text in "[^{\\\\<]*[^{\\\\<\\s-][^{\\\\<]*") {
        let rendered = Dotprompt::new().render(&text, &Data::new()).unwrap();

        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        prop_assert_eq!(rendered.messages, [Message::user(text)]);
    }

    #[test]
    fn a_variable_never_changes_the_number_or_the_roles_of_messages(value in "(<<<dotprompt:(role:[a-z]+|history|section s|media:url u)>>>|\\PC|\n){0,8}") {
        let input = json!({"value": value});
        let prompt = Dotprompt::new().compile("{{role \"system\"}}s{{value}}{{role \"user\"}}u{{value}}").unwrap();

        let rendered = prompt.render(&Data::new().input(&input)).unwrap();

        let expected = [Message::system(format!("s{value}")), Message::user(format!("u{value}"))];
        prop_assert_eq!(rendered.messages, expected);
    }

    #[test]
    fn a_history_is_never_lost_or_reordered(count in 0_usize..6, source in "(a|\\{\\{role \"(system|user|model)\"\\}\\}|\n){0,6}") {
        let history: Vec<Message> = (0..count).map(|index| Message::user(format!("message {index}"))).collect();

        let rendered = Dotprompt::new().render(&source, &Data::new().messages(&history)).unwrap();

        let found: Vec<&Message> = rendered.messages.iter().filter(|message| message.text().starts_with("message")).collect();
        prop_assert_eq!(found, history.iter().collect::<Vec<_>>());
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z(),? ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec(("[a-z(),?* ]{0,8}", inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}
