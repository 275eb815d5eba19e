//! Partials: where they come from, what they see, and when they never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dotprompt::{Data, Dotprompt, Error, ErrorKind};
use serde_json::{Value, json};

fn render(dotprompt: &Dotprompt, source: &str, input: &Value) -> Result<String, Error> {
    dotprompt
        .render(source, &Data::new().input(input))
        .map(|rendered| rendered.messages[0].text())
}

#[test]
fn a_partial_sees_the_context_and_the_arguments_it_is_given() {
    let dotprompt = Dotprompt::new().define_partial("p", "[{{x}} {{k}} {{../x}} {{@index}}]");
    let input = json!({"x": "X", "list": [{"x": "a"}], "other": {"x": "O"}});
    for (source, expected) in [
        ("{{> p}}", "[X   ]"),
        ("{{> p k=1}}", "[X 1  ]"),
        ("{{> p other}}", "[O   ]"),
        ("{{> p other k=x}}", "[O X  ]"),
        ("{{#each list}}{{> p k=../x}}{{/each}}", "[a X  0]"),
        (
            "{{> \"p\"}}{{> 'p'}}{{> [p]}}{{> (lookup . \"name\")}}",
            "[X   ][X   ][X   ][X   ]",
        ),
    ] {
        let mut input = input.clone();
        input["name"] = json!("p");
        assert_eq!(render(&dotprompt, source, &input).unwrap(), expected, "{source}");
    }
}

#[test]
fn arguments_lie_on_top_of_the_context() {
    let dotprompt = Dotprompt::new()
        .define_partial(
            "p",
            "{{json this}} {{#each this}}{{@key}}{{/each}} {{#with this}}{{b}}{{/with}} {{> q d=4}}",
        )
        .define_partial("q", "{{a}}{{b}}{{c}}{{d}}");

    let text = render(&dotprompt, "{{> p b=2 c=3}}", &json!({"a": 1, "b": 1})).unwrap();

    assert_eq!(text, r#"{"a":1,"b":2,"c":3} abc 2 1234"#);
}

#[test]
fn blocks_and_inline_partials_are_passed_to_a_partial() {
    let dotprompt = Dotprompt::new()
        .define_partial("layout", "<{{> @partial-block}}|{{> nav}}>")
        .define_partial("wrap", "({{> @partial-block}})")
        .define_partial("outer", "<{{> wrap}}>");
    let input = json!({"x": "X", "list": ["a", "b"]});
    for (source, expected) in [
        (
            "{{#> layout}}body {{x}}{{#*inline \"nav\"}}nav {{x}}{{/inline}}{{/layout}}",
            "<body X|nav X>",
        ),
        ("{{#> missing}}fallback{{/missing}}", "fallback"),
        ("{{#> wrap}}{{#> wrap}}in{{/wrap}}{{/wrap}}", "((in))"),
        (
            "{{#each list}}{{#> wrap}}{{@index}}{{.}}{{../x}}{{/wrap}}{{/each}}",
            "(0aX)(1bX)",
        ),
        ("{{#> outer}}passed on{{/outer}}", "<(passed on)>"),
        (
            "{{#each list}}{{#> wrap}}{{@index}}{{@../index}}{{@../../index}}{{@../../../index}}{{/wrap}}{{/each}}",
            "(000)(111)",
        ),
        ("{{> z}}{{#*inline \"z\"}}Z{{/inline}}", "Z"),
        (
            "{{#*inline \"z\"}}Z{{this}}{{/inline}}{{#each list}}{{> z}}{{/each}}",
            "ZaZb",
        ),
        (
            "{{#each list as |item|}}{{#*inline \"z\"}}<{{item}}>{{/inline}}{{#> wrap}}{{> z}}{{/wrap}}{{/each}}",
            "(<a>)(<b>)",
        ),
    ] {
        assert_eq!(render(&dotprompt, source, &input).unwrap(), expected, "{source}");
    }
}

#[test]
fn a_partial_may_include_itself_as_long_as_the_data_ends_it() {
    let dotprompt = Dotprompt::new().define_partial("node", "({{v}}{{#each kids}}{{> node}}{{/each}})");
    let input = json!({"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": [{"v": 4}]}]});

    assert_eq!(render(&dotprompt, "{{> node}}", &input).unwrap(), "(1(2)(3(4)))");
}

#[test]
fn partials_that_always_include_each_other_do_not_compile() {
    let dotprompt = Dotprompt::new()
        .define_partial("a", "{{> b}}")
        .define_partial("b", "x {{> c}}")
        .define_partial("c", "{{> a}}");

    let error = dotprompt.compile("{{> a}}").unwrap_err();

    let names = ["a", "b", "c", "a"].map(str::to_owned).to_vec();
    assert_eq!(*error.kind(), ErrorKind::PartialCycle(names));
    assert_eq!(
        error.to_string(),
        "partial 'a':1:1: partials include each other without end: a -> b -> c -> a"
    );
}

#[test]
fn partials_that_include_each_other_for_ever_on_some_data_fail_to_render() {
    let dotprompt = Dotprompt::new()
        .define_partial("a", "{{#if on}}{{> b}}{{/if}}")
        .define_partial("b", "{{#if on}}{{> a}}{{/if}}");
    let prompt = dotprompt.compile("{{> a}}").unwrap();

    let off = json!({"on": false});
    assert!(prompt.render(&Data::new().input(&off)).is_ok());
    let on = json!({"on": true});
    let error = prompt.render(&Data::new().input(&on)).unwrap_err();

    let ErrorKind::PartialCycle(names) = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(names.len(), 3);
    assert_eq!(names.first(), names.last());
}

#[test]
fn an_inline_partial_that_includes_itself_fails_to_render() {
    let error = render(
        &Dotprompt::new(),
        "{{#*inline \"a\"}}{{> a}}{{/inline}}{{> a}}",
        &json!({}),
    )
    .unwrap_err();

    assert_eq!(
        *error.kind(),
        ErrorKind::PartialCycle(vec!["a".to_owned(), "a".to_owned()])
    );
}

#[test]
fn a_computed_name_that_leads_in_a_circle_fails_to_render() {
    let dotprompt = Dotprompt::new().define_partial("a", "{{> (lookup @root \"next\")}}");

    let error = render(&dotprompt, "{{> a}}", &json!({"next": "a"})).unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::PartialCycle(_)), "{error}");
}

#[test]
fn resolved_partials_are_asked_for_once_each_and_may_name_others() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let dotprompt = Dotprompt::new()
        .define_partial("own", "own")
        .partial_resolver(move |name| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(match name {
                "outer" => Some("<{{> inner}}{{> inner}}{{> own}}>".to_owned()),
                "inner" => Some("i".to_owned()),
                _ => None,
            })
        });
    let prompt = dotprompt.compile("{{> outer}}{{> outer}}").unwrap();

    for _ in 0..3 {
        assert_eq!(
            prompt.render(&Data::new()).unwrap().messages[0].text(),
            "<iiown><iiown>"
        );
    }

    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[test]
fn a_resolver_that_fails_is_not_one_that_does_not_know() {
    let failing = Dotprompt::new().partial_resolver(|_| Err("disk on fire".into()));
    let ignorant = Dotprompt::new().partial_resolver(|_| Ok(None));

    let failed = failing.compile("{{> p}}").unwrap_err();
    let unknown = ignorant.render("x\n {{> p}}", &Data::new()).unwrap_err();

    assert_eq!(
        failed.to_string(),
        "the partial 'p' could not be resolved: disk on fire"
    );
    assert_eq!(unknown.to_string(), "2:2: unknown partial 'p'");
    assert!(ignorant.render("{{#if no}}{{> p}}{{/if}}x", &Data::new()).is_ok());
}

#[test]
fn a_resolver_that_always_returns_another_name_is_stopped() {
    let dotprompt = Dotprompt::new().partial_resolver(|name| Ok(Some(format!("{{{{> {name}x}}}}"))));

    let error = dotprompt.compile("{{> a}}").unwrap_err();

    assert_eq!(
        *error.kind(),
        ErrorKind::LimitExceeded(dotprompt::Limit::Partials)
    );
}

#[test]
fn a_broken_partial_fails_where_it_is_named_or_when_it_is_reached() {
    let dotprompt = Dotprompt::new()
        .define_partial("broken", "line\n{{#if x}}")
        .define_partial("fine", "ok");

    let named = dotprompt.compile("{{> broken}}").unwrap_err();
    let computed = dotprompt.compile("{{> (lookup . \"p\")}}").unwrap();
    let fine = json!({"p": "fine"});
    let broken = json!({"p": "broken"});

    assert_eq!(
        named.to_string(),
        "partial 'broken':2:1: invalid template: the block 'if' is never closed"
    );
    assert_eq!(
        computed.render(&Data::new().input(&fine)).unwrap().messages[0].text(),
        "ok"
    );
    assert_eq!(computed.render(&Data::new().input(&broken)).unwrap_err(), named);
}

#[test]
fn comments_in_a_partial_vanish_and_frontmatter_means_nothing_there() {
    let dotprompt = Dotprompt::new().define_partial("p", "---\na: 1\n---\n{{!-- licence --}}\n# text\n");

    assert_eq!(
        render(&dotprompt, "{{> p}}", &json!({})).unwrap(),
        "---\na: 1\n---\n# text\n"
    );
}
