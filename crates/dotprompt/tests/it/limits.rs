//! Hostile templates fail; they neither hang, nor exhaust the memory, nor overflow the stack.

use std::time::{Duration, Instant};

use dotprompt::{Data, Dotprompt, Error, ErrorKind, Limit, Limits};
use serde_json::{Value, json};

fn limit(error: &Error) -> Option<Limit> {
    match error.kind() {
        ErrorKind::LimitExceeded(limit) => Some(*limit),
        _ => None,
    }
}

fn render(source: &str, input: &Value) -> Result<(), Error> {
    Dotprompt::new()
        .render(source, &Data::new().input(input))
        .map(|_| ())
}

#[test]
fn a_source_that_is_too_long_is_refused() {
    let error = render(&"x".repeat(600 * 1024), &json!({})).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::SourceBytes));
}

#[test]
fn sources_of_partials_count_together() {
    let dotprompt = Dotprompt::new()
        .define_partial("a", "x".repeat(300 * 1024))
        .define_partial("b", "x".repeat(300 * 1024));

    let error = dotprompt.compile("{{> a}}{{> b}}").unwrap_err();

    assert_eq!(limit(&error), Some(Limit::SourceBytes));
}

#[test]
fn tags_of_partials_count_together() {
    let mut limits = Limits::default();
    limits.tags = 10;
    let dotprompt = Dotprompt::new()
        .limits(limits)
        .define_partial("a", "{{x}}".repeat(5));

    assert!(
        dotprompt
            .compile(&format!("{}{{{{> a}}}}", "{{x}}".repeat(4)))
            .is_ok()
    );
    let error = dotprompt
        .compile(&format!("{}{{{{> a}}}}", "{{x}}".repeat(5)))
        .unwrap_err();

    assert_eq!(limit(&error), Some(Limit::Tags));
}

#[test]
fn deep_nesting_is_refused_before_anything_recurses() {
    let depth = 20_000;
    for source in [
        "{{#if a}}".repeat(1000),
        format!("{}{}", "{{#if a}}".repeat(1000), "{{/if}}".repeat(1000)),
        "{{^a}}".repeat(1000),
        "{{#> a}}".repeat(1000),
        "{{#*inline \"a\"}}".repeat(1000),
        format!("{{{{json {}x{}}}}}", "(json ".repeat(depth), ")".repeat(depth)),
        format!("{{{{json {}", "(".repeat(depth)),
        format!("{{{{#if a}}}}{}{{{{/if}}}}", "{{else if a}}".repeat(1000)),
    ] {
        let error = render(&source, &json!({})).unwrap_err();
        assert_eq!(limit(&error), Some(Limit::Nesting), "{error}");
    }
    for source in [
        format!("{{{{json {}}}}}", "[".repeat(depth)),
        format!("{{{{json {}", "{".repeat(depth)),
    ] {
        assert!(render(&source, &json!({})).is_err());
    }
}

#[test]
fn nesting_within_the_limits_fits_on_a_small_stack() {
    let blocks = 64;
    let blocks = format!("{}x{}", "{{#if a}}".repeat(blocks), "{{/if}}".repeat(blocks));
    let chain = format!("{{{{#if no}}}}{}x{{{{/if}}}}", "{{else if a}}".repeat(63));
    let parentheses = format!("{{{{json {}a{}}}}}", "(lookup @root ".repeat(60), ")".repeat(60));
    let dotprompt = Dotprompt::new().define_partial(
        "p",
        "{{#if a}}{{#with b}}{{#each c}}{{> p}}{{/each}}{{/with}}{{/if}}",
    );

    std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(move || {
            let mut input = json!({"a": "a"});
            for source in [blocks, chain, parentheses] {
                dotprompt.render(&source, &Data::new().input(&input)).unwrap();
            }
            for _ in 0..200 {
                input = json!({"a": 1, "b": {"c": [input]}});
            }
            let error = dotprompt
                .render("{{> p}}", &Data::new().input(&input))
                .unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::PartialCycle(_)), "{error}");
            // The data itself is nested too deeply to be dropped on a small stack.
            std::mem::forget(input);
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn loops_in_loops_are_stopped_even_if_they_write_nothing() {
    let list: Vec<u32> = (0..1000).collect();
    let source = "{{#each list}}{{#each ../list}}{{#each ../../list}}{{/each}}{{/each}}{{/each}}";
    let start = Instant::now();

    let error = render(source, &json!({"list": list})).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::Steps));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn output_is_bounded() {
    let list: Vec<u32> = (0..1000).collect();
    let source = "{{#each list}}{{#each ../list}}{{../../text}}{{/each}}{{/each}}";

    let error = render(source, &json!({"list": list, "text": "x".repeat(1000)})).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::OutputBytes));
}

#[test]
fn values_that_double_in_parentheses_are_bounded() {
    let source = format!("{{{{json {}text{}}}}}", "(json ".repeat(60), ")".repeat(60));

    let error = render(&source, &json!({"text": "\"\\\""})).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::OutputBytes));
}

#[test]
fn partials_that_double_are_bounded() {
    let dotprompt = (0..60).fold(Dotprompt::new().define_partial("p60", ""), |dotprompt, level| {
        let next = level + 1;
        dotprompt.define_partial(format!("p{level}"), format!("{{{{> p{next}}}}}{{{{> p{next}}}}}"))
    });

    let error = dotprompt.render("{{> p0}}", &Data::new()).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::Steps));
}

#[test]
fn blocks_passed_on_and_doubled_are_bounded() {
    let dotprompt = Dotprompt::new().define_partial("d", "{{> @partial-block}}{{> @partial-block}}");
    let source = format!("{}x{}", "{{#> d}}".repeat(40), "{{/d}}".repeat(40));

    let error = dotprompt.render(&source, &Data::new()).unwrap_err();

    assert!(
        matches!(limit(&error), Some(Limit::Steps | Limit::OutputBytes)),
        "{error}"
    );
}

#[test]
fn comparing_and_measuring_long_texts_costs_steps() {
    let list: Vec<u32> = (0..1000).collect();
    let input = json!({"list": list, "a": "x".repeat(100_000), "b": "x".repeat(100_000)});
    let mut limits = Limits::default();
    limits.steps = 50_000;
    let dotprompt = Dotprompt::new().limits(limits);
    for source in [
        "{{#each list}}{{#ifEquals @root.a @root.b}}{{/ifEquals}}{{/each}}",
        "{{#each list}}{{@root.a.length}}{{/each}}",
    ] {
        let error = dotprompt.render(source, &Data::new().input(&input)).unwrap_err();
        assert_eq!(limit(&error), Some(Limit::Steps), "{source}");
    }
}

#[test]
fn compiling_a_large_source_takes_seconds_at_most() {
    let long = format!("{{{{{}}}}}", "a".repeat(200));
    for unit in [
        "{{a}}",
        "{{> [a]}}",
        "{{#if a}}b{{/if}}",
        "{{json (lookup a \"b\") indent=2}}",
        &long,
    ] {
        let start = Instant::now();

        Dotprompt::new().compile(&unit.repeat(512)).unwrap();

        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{unit}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn sources_that_invite_searching_twice_are_read_once() {
    let start = Instant::now();
    let size = 400 * 1024;
    for source in [
        "<<<dotprompt:".repeat(size / 13) + ">>>",
        "{{!-- --~}}".repeat(2000) + &"x".repeat(size),
        "{{!-- }}".repeat(size / 8),
        "{{{{raw}}}}{{{{/raw}}}}".repeat(1000) + &"x".repeat(size),
        "\\{{".repeat(size / 3),
        format!("{{{{> p {}}}}}", "a=b ".repeat(size / 4)),
        format!("---\n{}", "\n---   x".repeat(size / 8)),
    ] {
        let _ = render(&source, &json!({}));
    }

    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn long_paths_and_many_arguments_cost_steps() {
    let list: Vec<u32> = (0..5000).collect();
    let path = vec!["a"; 50_000].join(".");
    let arguments: String = (0..150).fold(String::new(), |all, index| all + "k" + &index.to_string() + "=1 ");
    let dotprompt = Dotprompt::new().define_partial(
        "p",
        "{{#each list}}{{x}}{{y}}{{/each}}{{#each ../list}}{{x}}{{/each}}",
    );
    let input = json!({"list": list});
    for source in [
        format!("{{{{#each list}}}}{{{{{path}}}}}{{{{/each}}}}"),
        format!("{{{{#each list}}}}{{{{> p {arguments}}}}}{{{{/each}}}}"),
    ] {
        let start = Instant::now();
        let _ = dotprompt.render(&source, &Data::new().input(&input));
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

#[test]
fn hostile_frontmatter_is_refused_quickly() {
    let aliases: String = (1..40).fold("a0: &a0 [x, x]\n".to_owned(), |yaml, level| {
        format!("{yaml}a{level}: &a{level} [*a{0}, *a{0}]\n", level - 1)
    });
    let brackets = format!("a: {}", "[".repeat(200_000));
    let braces = format!("a: {}", "{a: ".repeat(50_000));
    let dashes = "- ".repeat(100_000);
    let questions = "? ".repeat(100_000);
    let indented = (0..600).map(|depth| " ".repeat(depth) + "a:\n").collect();
    for yaml in [aliases, brackets, braces, dashes, questions, indented] {
        let start = Instant::now();

        let parsed = Dotprompt::new().parse(&format!("---\n{yaml}\n---\nbody"));

        assert!(parsed.frontmatter_error().is_some());
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }
}

#[test]
fn limits_can_be_raised_and_lowered() {
    let mut limits = Limits::default();
    limits.output_bytes = 3;
    let dotprompt = Dotprompt::new().limits(limits);

    assert!(dotprompt.render("abc", &Data::new()).is_ok());
    let error = dotprompt.render("abcd", &Data::new()).unwrap_err();

    assert_eq!(limit(&error), Some(Limit::OutputBytes));
}
