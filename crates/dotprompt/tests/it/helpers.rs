//! Custom helpers, and the built-in ones called wrongly.

use dotprompt::{Data, Dotprompt, ErrorKind, Fragment, Message};
use serde_json::{Value, json};

fn dotprompt() -> Dotprompt {
    Dotprompt::new()
        .define_helper("shout", |call| {
            Ok(call.text(0).ok_or("it needs a text")?.to_uppercase().into())
        })
        .define_helper("add", |call| {
            let sum: f64 = (0..call.len())
                .filter_map(|index| call.arg(index)?.as_f64())
                .sum();
            Ok(sum.into())
        })
        .define_helper("repeat", |call| {
            let times = call.arg(0).and_then(Value::as_u64).unwrap_or(0);
            if times == 0 {
                return Ok(call.inverse()?.into());
            }
            let mut all = Fragment::default();
            for _ in 0..times {
                all.push(call.body()?);
            }
            Ok(all.into())
        })
        .define_helper("upside", |call| {
            let value = call.named("of").cloned().unwrap_or_default();
            Ok(call.body_with(&json!({"v": value}))?.into())
        })
        .define_helper("words", |call| {
            Ok(call.text(0).unwrap_or("").split(' ').collect::<Vec<_>>().into())
        })
}

fn text(source: &str, input: &Value) -> String {
    dotprompt()
        .render(source, &Data::new().input(input))
        .expect("the prompt renders")
        .messages[0]
        .text()
}

#[test]
fn helpers_get_arguments_and_return_values_or_blocks() {
    let input = json!({"name": "ada", "n": 2, "list": ["x"], "text": "a b"});
    for (source, expected) in [
        ("{{shout name}} {{shout \"x\"}}", "ADA X"),
        ("{{add 1 n 0.5}} {{add (add 1 1) (add n)}}", "3.5 4"),
        ("{{#repeat n}}[{{name}}]{{/repeat}}", "[ada][ada]"),
        ("{{#repeat 0}}x{{else}}none{{/repeat}}", "none"),
        ("{{#upside of=n}}{{v}}{{../name}}{{/upside}}", "2ada"),
        ("{{#each (words text)}}{{@index}}{{this}}{{/each}}", "0a1b"),
        ("{{#if (add)}}y{{else}}n{{/if}}", "n"),
    ] {
        assert_eq!(text(source, &input), expected, "{source}");
    }
}

#[test]
fn a_helper_that_renders_its_block_keeps_the_marks_in_it() {
    let source = "{{#repeat 2}}{{role \"system\"}}s{{role \"user\"}}u{{/repeat}}";

    let rendered = dotprompt().render(source, &Data::new()).unwrap();

    let (system, user) = (Message::system("s"), Message::user("u"));
    assert_eq!(rendered.messages, [system.clone(), user.clone(), system, user]);
}

#[test]
fn a_helper_may_replace_a_built_in_one_and_a_parameter_hides_it() {
    let dotprompt = Dotprompt::new().define_helper("json", |_| Ok("mine".into()));
    let input = json!({"list": ["a"]});

    let rendered = dotprompt.render(
        "{{json list}} {{#each list as |json|}}{{json}}{{/each}}",
        &Data::new().input(&input),
    );

    assert_eq!(rendered.unwrap().messages[0].text(), "mine a");
}

#[test]
fn a_variable_with_the_name_of_a_helper_is_reached_by_an_explicit_path() {
    assert_eq!(
        text("{{this.shout}}{{./json}}", &json!({"shout": "s", "json": "j"})),
        "sj"
    );
}

#[test]
fn a_helpers_error_names_the_helper_and_its_location() {
    let error = dotprompt()
        .compile_named("a.prompt", "x\n  {{shout 5}}")
        .unwrap()
        .render(&Data::new())
        .unwrap_err();

    assert_eq!(error.to_string(), "a.prompt:2:3: helper 'shout': it needs a text");
}

#[test]
fn an_error_inside_a_helpers_block_is_reported_where_it_is() {
    let error = dotprompt()
        .render("{{#repeat 1}}\n{{shout 1}}{{/repeat}}", &Data::new())
        .unwrap_err();

    assert_eq!(error.to_string(), "2:1: helper 'shout': it needs a text");
}

#[test]
fn an_unknown_helper_does_not_compile_but_an_unknown_name_is_a_variable() {
    for source in [
        "{{nope 1}}",
        "{{nope a=1}}",
        "{{#nope 1}}{{/nope}}",
        "{{json (nope 1)}}",
        "{{len x}}",
        "{{eq 1 1}}",
    ] {
        let error = Dotprompt::new().compile(source).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnknownHelper(_)),
            "{source}: {error}"
        );
    }
    assert!(
        Dotprompt::new()
            .compile("{{nope}}{{#nope}}{{/nope}}{{#if nope}}{{/if}}")
            .is_ok()
    );
}

#[test]
fn built_in_helpers_called_wrongly_do_not_compile() {
    for source in [
        "{{role}}x",
        "{{role \"a\" \"b\"}}",
        "{{section}}",
        "{{media \"x\"}}",
        "{{history 1}}",
        "{{json}}",
        "{{lookup x}}",
        "{{if x}}",
        "{{#if}}{{/if}}",
        "{{#if a b}}{{/if}}",
        "{{#ifEquals a}}{{/ifEquals}}",
        "{{json (ifEquals a b)}}",
        "{{json (role \"user\")}}",
        "{{#each}}{{/each}}",
    ] {
        let error = Dotprompt::new().compile(source).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Helper { .. }),
            "{source}: {error}"
        );
    }
}

#[test]
fn a_role_without_a_name_is_an_error_at_its_place() {
    let error = Dotprompt::new()
        .render("a {{role missing}}", &Data::new())
        .unwrap_err();

    assert_eq!(
        error.to_string(),
        "1:3: helper 'role': the name of the role is missing"
    );
}
