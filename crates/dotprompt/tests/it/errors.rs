//! Errors in a source report their location.

use dotprompt::{Data, Dotprompt};

fn compile_error(source: &str) -> String {
    Dotprompt::new()
        .compile_named("f.prompt", source)
        .expect_err("the source is wrong")
        .to_string()
}

#[test]
fn syntax_errors_are_placed_at_the_tag() {
    for (source, expected) in [
        (
            "a\n {{#if x}}b",
            "f.prompt:2:2: invalid template: the block 'if' is never closed",
        ),
        (
            "{{#if x}}\n{{#each y}}{{/if}}",
            "f.prompt:2:12: invalid template: the block 'each' is closed as 'if'",
        ),
        (
            "é {{/if}}",
            "f.prompt:1:3: invalid template: 'if' is closed but was never opened",
        ),
        (
            "{{x}} {{else}}",
            "f.prompt:1:7: invalid template: 'else' is outside a block",
        ),
        ("a {{x", "f.prompt:1:3: invalid template: the tag is never closed"),
        (
            "a {{x \"b}}",
            "f.prompt:1:3: invalid template: a string or a bracket is never closed",
        ),
        (
            "a {{x.[b}}",
            "f.prompt:1:3: invalid template: a string or a bracket is never closed",
        ),
        (
            "{{! never",
            "f.prompt:1:1: invalid template: the comment is never closed",
        ),
        (
            "{{{{raw}}}} x",
            "f.prompt:1:1: invalid template: the block 'raw' is never closed",
        ),
        (
            "{{* nope}}",
            "f.prompt:1:1: invalid template: unknown decorator 'nope'",
        ),
        (
            "a {{#*inline x}}{{/inline}}",
            "f.prompt:1:3: invalid template: an inline partial needs a name in quotation marks",
        ),
        (
            "{{> p a b}}",
            "f.prompt:1:1: invalid template: a partial takes one context at most",
        ),
        (
            "{{#if x}}\n\n {{else if (nope 1)}}{{/if}}",
            "f.prompt:3:2: unknown helper 'nope'",
        ),
        (
            "{{#if x}}{{else}}\n  {{json}}{{/if}}",
            "f.prompt:2:3: helper 'json': it takes one value",
        ),
    ] {
        assert_eq!(compile_error(source), expected, "{source}");
    }
}

#[test]
fn an_error_in_an_expression_is_placed_at_its_tag() {
    for (source, expected) in [
        (
            "text {{ok}}\n and {{json x=}} more",
            "2:6: invalid template: the tag is incomplete",
        ),
        (
            "{{#if x}}{{else}}{{else}}{{/if}}",
            "1:18: invalid template: unexpected 'else'",
        ),
        (
            "{{#> p}}{{else}}{{/p}}",
            "1:9: invalid template: unexpected 'else'",
        ),
        (
            "a {{b}} {{json (}}",
            "1:9: invalid template: the tag is incomplete",
        ),
        (
            "a {{b}} {{json (x}}",
            "1:9: invalid template: the tag is incomplete",
        ),
        ("a {{b}} {{}}", "1:9: invalid template: the tag is incomplete"),
        ("{{>}}", "1:1: invalid template: expected the name of a partial"),
        ("{{json x)}}", "1:1: invalid template: unexpected ')'"),
        ("{{(json x) y}}", "1:1: invalid template: unexpected 'y'"),
        ("{{#if a == b}}{{/if}}", "1:1: invalid template: unexpected '='"),
        ("{{name | upper}}", "1:1: invalid template: unexpected '|'"),
        ("{{a..b}}", "1:1: invalid template: 'a..b' is not a valid path"),
        (
            "{{#each x as |a b c|}}{{/each}}",
            "1:1: invalid template: a block has one or two parameters",
        ),
        (
            "{{#each x as |a.b|}}{{/each}}",
            "1:1: invalid template: a block has one or two parameters",
        ),
        (
            "{{#each x as |a}}{{/each}}",
            "1:1: invalid template: unexpected 'as'",
        ),
        ("{{json x as |a|}}", "1:1: invalid template: unexpected 'as'"),
    ] {
        assert_eq!(compile_error(source), format!("f.prompt:{expected}"), "{source}");
    }
}

#[test]
fn places_count_the_frontmatter_and_the_space_after_it() {
    let source = "# licence\n---\nmodel: m\n---\n\n   {{ok}}{{nope 1}}";

    assert_eq!(compile_error(source), "f.prompt:6:10: unknown helper 'nope'");
}

#[test]
fn an_error_in_a_partial_names_the_partial() {
    let dotprompt = Dotprompt::new().define_partial("p", "a\n{{> gone}}");

    let error = dotprompt.render("{{> p}}", &Data::new()).unwrap_err();

    assert_eq!(error.to_string(), "partial 'p':2:1: unknown partial 'gone'");
    let location = error.location().unwrap();
    assert_eq!(
        (location.file.as_deref(), location.line, location.column),
        (Some("partial 'p'"), 2, 1)
    );
}

#[test]
fn an_error_in_a_passed_block_names_the_template_that_wrote_it() {
    let dotprompt = Dotprompt::new().define_partial("wrap", "\n\n({{> @partial-block}})");

    let prompt = dotprompt
        .compile_named("main", "{{#> wrap}}\n {{> gone}}{{/wrap}}")
        .unwrap();

    assert_eq!(
        prompt.render(&Data::new()).unwrap_err().to_string(),
        "main:2:2: unknown partial 'gone'"
    );
}
