//! A coder: a custom turn loop that keeps the code it writes as artifacts.

use everturn::prelude::*;

use super::keep;
use crate::database::Database;

const SYSTEM: &str = "You are a coder. Answer with one short paragraph and one fenced code block. Name the file in the \
                      first line of the block, as a comment.";

/// The files so far.
#[payload]
#[derive(Debug, Default, Clone)]
pub(super) struct Workspace {
    files: Vec<String>,
}

async fn write(turn: Turn<Workspace>) -> HandlerResult<FinishReason> {
    turn.send_status("writing").await?;
    let reply = turn
        .generate()
        .history()
        .stream()
        .with(|generate| generate.system(SYSTEM))
        .await?;
    for Code { name, text } in code_in(&reply.text()) {
        turn.send_artifact(Artifact::text(&name, text)).await?;
        turn.update_custom(|workspace| {
            if !workspace.files.contains(&name) {
                workspace.files.push(name);
            }
        });
    }
    Ok(reply.finish_reason())
}

/// A piece of code and the name of its file.
struct Code {
    name: String,
    text: String,
}

/// Returns the fenced blocks of a Markdown text. A block's file is named in a comment in its first line.
fn code_in(text: &str) -> Vec<Code> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(fence) = lines.find(|line| line.trim_start().starts_with("```")) {
        let language = fence.trim_start().trim_start_matches('`').trim();
        let mut body: Vec<&str> = lines
            .by_ref()
            .take_while(|line| !line.trim_start().starts_with("```"))
            .collect();
        let named = body.first().and_then(|first| file_name(first));
        let name = match named {
            Some(name) => {
                body.remove(0);
                name
            }
            None => format!(
                "file{}.{}",
                found.len() + 1,
                if language.is_empty() { "txt" } else { language }
            ),
        };
        found.push(Code {
            name,
            text: body.join("\n").trim().to_owned() + "\n",
        });
    }
    found
}

/// Returns the file name in a comment, if it is one word with an ending.
fn file_name(line: &str) -> Option<String> {
    let comment = line
        .trim()
        .trim_start_matches(['/', '#', '-', '<', '!', '*', ' ']);
    let name = comment.trim_end_matches(['-', '>', '*', '/', ' ']);
    let is_name = line.trim() != name && name.contains('.') && !name.contains(char::is_whitespace);
    is_name.then(|| name.to_owned())
}

pub(super) fn define(app: &Everturn, files: &Database) -> Result<Agent<Workspace>> {
    let coder = app
        .custom_agent("coder", |session: AgentSession<Workspace>| async move {
            session.run(write).await?;
            Ok(session.result())
        })
        .description("writes files, and keeps them as artifacts: “Write a function that sorts names”, “Write a small web page”");
    keep(coder.public(), "coder", files).define()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_block_is_named_in_its_first_line() {
        let found = code_in("Here:\n```rust\n// sort.rs\nfn sort() {}\n```\nand\n```py\nx = 1\n```");

        assert_eq!(found[0].name, "sort.rs");
        assert_eq!(found[0].text, "fn sort() {}\n");
        assert_eq!(found[1].name, "file2.py");
        assert_eq!(found.len(), 2);
    }
}
