//! What is typed when nobody types.

/// A streamed turn with a tool, a conversation that is resumed and then branched, a question before money moves, and a
/// run in the background.
pub(crate) const LINES: [&str; 17] = [
    "Stock the pantry with leeks",
    "What is in season in month 5?",
    "/state",
    "/new",
    "/resume 1",
    "What did I say before?",
    "/branch 1",
    "Stock the pantry with olives",
    "/history",
    "/agent banker",
    "Transfer 50 to Ann",
    "yes",
    "/agent planner",
    "/detach Plan the week",
    "/history",
    "/wait",
    "/history",
];
