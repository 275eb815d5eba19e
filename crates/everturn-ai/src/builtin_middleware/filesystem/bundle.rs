//! The hooks of one generate call.

use std::sync::Arc;

use async_trait::async_trait;
use everturn_core::{Context, Error, HandlerResult, Status};
use parking_lot::Mutex;

use super::read::ReadFile;
use super::tools::{READ_FILE, run, tools};
use super::workspace::Workspace;
use crate::{
    GenerateRound, Message, Messages, Middleware, ModelResponse, MultipartToolResponse, NextRound, NextTool,
    Part, Role, Tool, ToolCall, ToolRequest, ToolResponse, interrupt_data, metadata,
};

/// The state that the tools and the hooks of one generate call share.
pub(super) struct Shared {
    pub(super) workspace: Workspace,
    pub(super) pending: PendingContent,
}

/// The filesystem middleware of one generate call.
pub(in crate::builtin_middleware) struct Bundle {
    shared: Arc<Shared>,
    tools: Vec<Tool>,
    /// The name by which models call the reading tool.
    read_tool: String,
}

impl Bundle {
    pub(super) fn new(workspace: Workspace, prefix: &str, allow_write: bool) -> Self {
        let shared = Arc::new(Shared {
            workspace,
            pending: PendingContent::default(),
        });
        let read_tool = format!("{prefix}{READ_FILE}");
        Self {
            tools: tools(&shared, prefix, allow_write),
            read_tool: read_tool
                .rsplit('/')
                .next()
                .map(str::to_owned)
                .unwrap_or(read_tool),
            shared,
        }
    }

    fn is_ours(&self, tool: &Tool) -> bool {
        self.tools.iter().any(|own| own.name() == tool.name())
    }

    /// Reads files again whose contents were lost when another tool interrupted the round.
    ///
    /// The answer of a read was kept for the restarted call, but the pending content ended with the call.
    async fn reread(&self, messages: &Messages) {
        for request in interrupted_reads(messages, &self.read_tool) {
            let Some(input) = request
                .input
                .and_then(|input| serde_json::from_value::<ReadFile>(input).ok())
            else {
                continue;
            };
            let content = match run(Arc::clone(&self.shared), Workspace::read, input).await {
                Ok(reading) => reading.content,
                Err(error) => vec![Part::text(failure(&self.read_tool, &error))],
            };
            self.shared.pending.put(request.reference.as_deref(), content);
        }
    }
}

#[async_trait]
impl Middleware for Bundle {
    async fn generate(&self, mut round: GenerateRound, next: NextRound) -> HandlerResult<ModelResponse> {
        self.reread(&round.request.messages).await;
        if let Some((_, answers)) = last_answers(&round.request.messages) {
            let content = self.shared.pending.take(answers);
            if !content.is_empty() {
                round.inject(Message::user(content)).await?;
            }
        }
        Ok(next.run(round).await?)
    }

    async fn tool(&self, call: ToolCall, next: NextTool) -> HandlerResult<MultipartToolResponse> {
        if !self.is_ours(&call.tool) {
            return Ok(next.run(call).await?);
        }
        let (context, name) = (call.context.clone(), call.tool.name().to_owned());
        match next.run(call).await {
            Err(error) if is_for_the_model(&error, &context) => {
                let output = Some(failure(&name, &error).into());
                Ok(MultipartToolResponse {
                    output,
                    ..MultipartToolResponse::default()
                })
            }
            result => Ok(result?),
        }
    }

    fn tools(&self) -> Vec<Tool> {
        self.tools.clone()
    }
}

/// Returns whether the model can react to an error. Cancellation and interrupts are not for the model.
fn is_for_the_model(error: &Error, context: &Context) -> bool {
    let is_over =
        context.is_cancelled() || matches!(error.status(), Status::Cancelled | Status::DeadlineExceeded);
    !is_over && interrupt_data(error).is_none()
}

fn failure(tool: &str, error: &Error) -> String {
    format!("The tool '{tool}' failed: {error}")
}

/// Returns the last message with tool responses, and its index. Other middleware may have added messages
/// after it.
fn last_answers(messages: &Messages) -> Option<(usize, &Message)> {
    let index = messages.rposition(|message| message.role() != Role::User)?;
    let message = messages.get(index)?;
    (message.role() == Role::Tool).then_some((index, message))
}

/// Returns the requests to `tool` whose answers were kept while another call was interrupted.
fn interrupted_reads(messages: &Messages, tool: &str) -> Vec<ToolRequest> {
    let Some((index, answers)) = last_answers(messages) else {
        return Vec::new();
    };
    let asked = index.checked_sub(1).and_then(|index| messages.get(index));
    let was_kept = |part: &&Part| {
        part.metadata_entry(metadata::SOURCE)
            .is_some_and(|source| source == metadata::SOURCE_PENDING)
    };
    answers
        .content()
        .iter()
        .filter(was_kept)
        .filter_map(Part::as_tool_response)
        .filter(|response| response.name == tool)
        .filter_map(|response| {
            let is_answered =
                |request: &&ToolRequest| request.is_same_call(tool, response.reference.as_deref());
            asked?.tool_requests().find(is_answered).cloned()
        })
        .collect()
}

/// Contents that were read and not shown to the model yet.
///
/// Models take text and images from users more readily than from tools, so a read answers with a short note
/// and its content follows as a user message before the next model call.
#[derive(Debug, Default)]
pub(super) struct PendingContent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Vec<ReadContent>,
    /// The contents shown last and the message they followed. A round that runs again needs them again.
    shown: Option<(Message, Vec<Part>)>,
}

#[derive(Debug)]
struct ReadContent {
    /// The reference of the tool request that asked for it.
    call: Option<String>,
    content: Vec<Part>,
}

impl PendingContent {
    pub(super) fn put(&self, call: Option<&str>, content: Vec<Part>) {
        if !content.is_empty() {
            self.0.lock().waiting.push(ReadContent {
                call: call.map(str::to_owned),
                content,
            });
        }
    }

    /// Takes the contents to show after `answers`, the message with the tools' responses, in the order of
    /// those responses.
    ///
    /// Tools run at the same time, so the contents arrive in the order in which the tools complete.
    pub(super) fn take(&self, answers: &Message) -> Vec<Part> {
        let mut state = self.0.lock();
        let shown = state.shown.take().filter(|(message, _)| message.is_same(answers));
        let mut waiting = std::mem::take(&mut state.waiting);
        let responses: Vec<&ToolResponse> = answers
            .content()
            .iter()
            .filter_map(Part::as_tool_response)
            .collect();
        waiting.sort_by_key(|read| {
            let is_answer = |response: &&ToolResponse| response.reference == read.call;
            responses.iter().position(is_answer).unwrap_or(responses.len())
        });
        let mut content = shown.map(|(_, content)| content).unwrap_or_default();
        content.extend(waiting.into_iter().flat_map(|read| read.content));
        state.shown = (!content.is_empty()).then(|| (answers.clone(), content.clone()));
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ToolRequest;

    fn answers() -> Message {
        let answer =
            |call: &str| ToolResponse::to(&ToolRequest::new("read", ()).with_reference(call), "ok").into();
        Message::tool([answer("1"), answer("2"), answer("3")])
    }

    #[test]
    fn contents_come_in_the_order_of_the_answers() {
        let pending = PendingContent::default();

        pending.put(None, vec![Part::text("unasked")]);
        pending.put(Some("3"), vec![Part::text("third")]);
        pending.put(Some("1"), vec![Part::text("first")]);

        assert_eq!(
            pending.take(&answers()),
            ["first", "third", "unasked"].map(Part::text)
        );
    }

    #[test]
    fn contents_are_shown_again_only_after_the_same_message() {
        let pending = PendingContent::default();
        let answers_of_one_round = answers();
        pending.put(Some("1"), vec![Part::text("first")]);

        let first_run = pending.take(&answers_of_one_round);
        let second_run = pending.take(&answers_of_one_round);
        let next_round = pending.take(&answers());

        assert_eq!(first_run, [Part::text("first")]);
        assert_eq!(second_run, first_run);
        assert!(next_round.is_empty());
    }
}
