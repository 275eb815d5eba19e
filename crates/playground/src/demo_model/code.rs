//! Small programs of the demo coder.

/// Programs, each with the words that select it.
const PROGRAMS: [(&[&str], &str, &str); 4] = [
    (
        &["sort"],
        "Sorting is one call; the care is in what counts as equal. This ignores case.",
        "```rust\n// sort.rs\n/// Sorts names as people expect it: case does not matter.\npub fn sorted(mut names: Vec<String>) -> \
         Vec<String> {\n    names.sort_by_key(|name| name.to_lowercase());\n    names\n}\n\n#[test]\nfn case_does_not_matter() \
         {\n    let names = vec![\"bob\".into(), \"Ann\".into()];\n    assert_eq!(sorted(names), [\"Ann\", \
         \"bob\"]);\n}\n```",
    ),
    (
        &["page", "html", "web"],
        "A page needs less than one thinks.",
        "```html\n<!-- index.html -->\n<!doctype html>\n<title>Leeks</title>\n<h1>Leeks</h1>\n<p>In season from October to \
         March.</p>\n```",
    ),
    (
        &["fibonacci", "fizz", "number", "count", "prime"],
        "Two numbers are enough to remember.",
        "```python\n# fibonacci.py\ndef fibonacci(count):\n    \"\"\"Yields the first numbers of the sequence.\"\"\"\n    a, b = 0, \
         1\n    for _ in range(count):\n        yield a\n        a, b = b, a + b\n\nprint(list(fibonacci(10)))\n```",
    ),
    (
        &["print", "list", "hello"],
        "Printing a list is a loop and a line.",
        "```rust\n// main.rs\nfn main() {\n    for item in [\"leeks\", \"kale\", \"parsnips\"] {\n        println!(\"- \
         {item}\");\n    }\n}\n```",
    ),
];

/// Returns a short paragraph and a program for the request, or a default one.
pub(super) fn reply(text: &str) -> String {
    let lower = text.to_lowercase();
    let fits = |words: &&[&str]| words.iter().any(|word| lower.contains(word));
    match PROGRAMS.iter().find(|(words, ..)| fits(words)) {
        Some((_, about, code)) => format!("{about}\n\n{code}"),
        None => format!(
            "I am a handful of rules, so this is a beginning and not the whole of it.\n\n```rust\n// main.rs\n//! {}\n\nfn main() \
             {{\n    println!(\"not written yet\");\n}}\n```",
            text.trim().replace('\n', " ")
        ),
    }
}
