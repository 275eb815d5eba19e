//! A tutor without a store: its clients keep the conversation and its state.

use everturn::prelude::*;

/// The score, which the client keeps.
#[payload]
#[derive(Debug, Default, Clone)]
pub(super) struct Score {
    topic: String,
    right: u32,
    asked: u32,
}

/// Notes whether an answer was right.
#[tool]
async fn grade(
    /// Whether the answer was right.
    right: bool,
    score: Session<Score>,
) -> Result<String> {
    Ok(score.update_custom(|score| {
        score.asked += 1;
        score.right += u32::from(right);
        format!("{} of {} answers were right", score.right, score.asked)
    }))
}

pub(super) fn define(app: &Everturn) -> Result<Agent<Score>> {
    app.agent("tutor")
        .description("keeps nothing, so that the conversation stays with you: “Teach me about France”")
        .custom::<Score>()
        .system(
            "You are a tutor. Ask one question about the topic at a time; grade each answer with grade. \
             So far {{@custom.right}} of {{@custom.asked}} answers were right.",
        )
        .tool(grade)
        .define()
}
