//! The tools as the model sees them.

use std::sync::Arc;

use everturn_core::Result;
use futures::TryFutureExt as _;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bundle::Shared;
use super::read::ReadFile;
use super::workspace::Workspace;
use crate::{Replay, Tool};

pub(super) const READ_FILE: &str = "read_file";

/// Returns the tools of one generate call.
pub(super) fn tools(shared: &Arc<Shared>, prefix: &str, allow_write: bool) -> Vec<Tool> {
    let mut tools = vec![
        tool(
            shared,
            "list_files",
            "Lists the files and directories in a directory.",
            Workspace::list,
        )
        .with_replay(Replay::Pure),
        read_file(shared),
    ];
    if allow_write {
        tools.extend([
            tool(
                shared,
                "write_file",
                "Writes a whole text file. Makes the file, and directories on the way to it, if there is none; a file \
                 that exists must have been read before.",
                Workspace::write,
            ),
            tool(
                shared,
                "edit_file",
                "Replaces exact pieces of a text file, which must have been read before.",
                Workspace::edit,
            ),
            tool(
                shared,
                "search_and_replace",
                "Replaces pieces of a text file, given as search-and-replace blocks. Each block replaces the first \
                 place that matches exactly. The file must have been read before.",
                Workspace::search_and_replace,
            ),
        ]);
    }
    let prefixed = |tool: Tool| {
        let name = format!("{prefix}{}", tool.name());
        tool.named(name)
    };
    tools.into_iter().map(prefixed).collect()
}

/// Creates a tool that answers with its result alone.
fn tool<I, O>(
    shared: &Arc<Shared>,
    name: &str,
    description: &str,
    operation: fn(&Workspace, &I) -> Result<O>,
) -> Tool
where
    I: DeserializeOwned + JsonSchema + Send + 'static,
    O: Serialize + JsonSchema + Send + 'static,
{
    let shared = Arc::clone(shared);
    Tool::new(name, description, move |input: I, _| {
        run(Arc::clone(&shared), operation, input).err_into()
    })
}

/// Creates the reading tool, whose answer is followed by a message with the content.
fn read_file(shared: &Arc<Shared>) -> Tool {
    let shared = Arc::clone(shared);
    let description = "Reads a text file or an image. What it holds follows in a message after this tool's answer. \
                       Of a large text file read some lines at a time, with offset and limit.";
    Tool::new(READ_FILE, description, move |input: ReadFile, context| {
        let shared = Arc::clone(&shared);
        async move {
            let reading = run(Arc::clone(&shared), Workspace::read, input).await?;
            let call = context.request().and_then(|request| request.reference.as_deref());
            shared.pending.put(call, reading.content);
            Ok(reading.answer)
        }
    })
    // The content follows as a separate message, so replaying the recorded answer alone would lose it.
    .with_replay(Replay::Pure)
}

/// Runs a file operation on a thread that may block.
pub(super) async fn run<I, O>(
    shared: Arc<Shared>,
    operation: fn(&Workspace, &I) -> Result<O>,
    input: I,
) -> Result<O>
where
    I: Send + 'static,
    O: Send + 'static,
{
    tokio::task::spawn_blocking(move || operation(&shared.workspace, &input)).await?
}
