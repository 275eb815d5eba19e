//! Sentences of the demo agents.

use everturn::ai::ToolRequest;
use everturn::prelude::*;

use super::ParsedRequest;

/// Dishes, each with the ingredient that selects it.
const DISHES: [(&str, &str); 8] = [
    (
        "leek",
        "a **leek and potato soup**, slowly, with a spoon of cream at the end",
    ),
    ("bean", "a **bean stew** with thyme that is better the next day"),
    (
        "pea",
        "a **pea risotto**, stirred until somebody else sets the table",
    ),
    ("pumpkin", "**roast pumpkin** with sage and brown butter"),
    ("tomato", "a **tomato tart** on a thin, crisp base"),
    ("potato", "a **potato gratin** with a dark crust"),
    ("egg", "an **omelette**, folded twice, still soft inside"),
    ("cheese", "**toast with melted cheese** and a sharp salad"),
];

/// Answers a message to the chef, if it asks for no tool and the rules have an answer.
pub(super) fn kitchen(text: &str, system: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["stock", "season", "remember", "before", "help"])
        || !says(&["cook", "make", "dish", "dinner", "idea", "menu"])
    {
        return None;
    }
    let pantry = system
        .split_once("The pantry holds ")
        .and_then(|(_, rest)| rest.split_once(". "))
        .map_or("", |(pantry, _)| pantry.trim())
        .to_lowercase();
    if pantry.is_empty() {
        return Some(
            "The pantry is empty, so tonight it is bread and good intentions.\n\n\
             *Stock the pantry with leeks*, for instance, and ask me again."
                .to_owned(),
        );
    }
    let fitting: Vec<String> = DISHES
        .iter()
        .filter(|(word, _)| pantry.contains(word) && !lower.contains(&format!("without {word}")))
        .enumerate()
        .map(|(number, (_, dish))| format!("{}. {dish}", number + 1))
        .collect();
    Some(if fitting.is_empty() {
        format!("With {pantry} I would improvise: everything into one pan, and lemon at the end.")
    } else {
        format!(
            "From what is there I would make\n\n{}\n\nShall I say how?",
            fitting.join("\n")
        )
    })
}

/// Returns one sentence about an aspect of a topic, in the form that the researcher requests.
pub(super) fn finding(text: &str) -> String {
    let part = |name: &str| {
        let (_, rest) = text.split_once(name)?;
        Some(rest.split('.').next().unwrap_or(rest).trim().to_owned())
    };
    let topic = part("Topic: ").unwrap_or_else(|| text.to_owned());
    match part("Angle: ").as_deref() {
        Some("origin") => format!("{topic} is older than most people think, and nobody planned it"),
        Some("how it works") => format!("the parts of {topic} are simple; what is hard is their order"),
        Some("numbers") => format!("three of four sources about {topic} quote the fourth"),
        Some("what people say") => format!("those who know {topic} well talk about it least"),
        Some("what may go wrong") => format!("{topic} fails quietly, and usually on a Friday"),
        _ => format!("in ten years {topic} will look obvious"),
    }
}

/// Asks the next question, or grades an answer.
pub(super) fn lesson(text: &str, messages: usize) -> Part {
    let lower = text.to_lowercase();
    let answers = [
        "paris",
        "rome",
        "4",
        "four",
        "blue",
        "1789",
        "h2o",
        "i do not know",
        "i don't know",
    ];
    if let Some(answer) = answers.iter().find(|answer| lower.contains(*answer)) {
        let input = json!({ "right": !answer.starts_with('i') });
        let call = ToolRequest::new("grade", input).with_reference(format!("demo-{messages}"));
        return call.into();
    }
    Part::text(format!(
        "Let us look at **{}**. A first question: what is the capital of France?\n\n\
         This conversation is kept in your browser alone; the server forgets it after each answer.",
        task(text)
    ))
}

/// Reports the results of the tools.
pub(super) fn report(parsed: &ParsedRequest) -> String {
    let lines: Vec<String> = parsed
        .answers
        .iter()
        .map(|(tool, output)| match tool.strip_prefix("delegate_to_") {
            Some(agent) => format!("**{agent}** says:\n\n{}", text_of(&output["response"])),
            None => one(tool, output),
        })
        .collect();
    lines.join("\n\n")
}

fn one(tool: &str, output: &Value) -> String {
    match (tool, output) {
        ("stock_pantry", Value::String(text)) => {
            format!("Done: {text}. Ask *what can I cook?* when you are hungry.")
        }
        ("in_season", Value::Array(list)) => {
            let lines: Vec<String> = list.iter().map(|item| format!("- {}", text_of(item))).collect();
            format!(
                "In season are\n\n{}\n\nShall I put some into the pantry?",
                lines.join("\n")
            )
        }
        ("transfer", Value::String(text)) => format!("That is settled: {text}."),
        ("balance", balance) => format!("The balance is **{balance}**."),
        ("grade", Value::String(text)) => {
            format!("Noted: {text}. Next: in which year did the French Revolution begin?")
        }
        _ => format!("The tool `{tool}` answered: {}", text_of(output)),
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The reasoning before an answer.
pub(super) fn thought(text: &str) -> String {
    format!(
        "The request is “{}”. The smallest program that does it is best: one function, no dependencies, a test.",
        text.trim()
    )
}

/// Returns a task without the conjunctions and punctuation around it.
pub(super) fn task(text: &str) -> String {
    let mut rest = text.trim_matches(|letter: char| letter.is_whitespace() || ",.;:!?".contains(letter));
    for word in ["to ", "say ", "tell me ", "please ", "teach me ", "about "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    for word in [" and the", " and", " then", " the"] {
        rest = rest
            .strip_suffix(word)
            .unwrap_or(rest)
            .trim_end_matches([',', ' ']);
    }
    if rest.is_empty() {
        "help".to_owned()
    } else {
        rest.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_cut_out_of_its_sentence() {
        assert_eq!(task(" say what is in season, and the "), "what is in season");
        assert_eq!(task(" to sort names."), "sort names");
        assert_eq!(task(" "), "help");
    }

    #[test]
    fn the_chef_answers_from_the_pantry_and_otherwise_uses_tools() {
        let system = "You are a chef. The pantry holds leeks,beans. What you are given";

        let dishes = kitchen("What can I cook?", system).unwrap();
        let without = kitchen("What can I cook without beans?", system).unwrap();

        assert!(
            dishes.contains("leek and potato soup") && dishes.contains("bean stew"),
            "{dishes}"
        );
        assert!(!without.contains("bean stew"), "{without}");
        assert_eq!(kitchen("Stock the pantry with leeks", system), None);
        assert_eq!(kitchen("Hello", system), None);
    }
}
