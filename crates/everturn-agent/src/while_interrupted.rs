//! The policy for messages that arrive while interrupts are open.

/// What an agent does with a message that arrives while tool requests wait for answers.
///
/// A request waits for an answer after a tool asked a person, after the model called a tool of the client, and if the outcome
/// of a call is unknown because its process died. An input that answers the requests is never affected.
///
/// | | the message | the requests |
/// |---|---|---|
/// | `Mend` | the model answers it | are closed with answers that say that the conversation went on |
/// | `Reject` | fails with `FAILED_PRECONDITION` | stay open |
/// | `Ask` | is kept, and read by the model after the answers | stay open, and are put to the client again |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum WhileInterrupted {
    /// Adds an answer to each open request, and runs the turn. The answers say that there was none
    /// (`not answered: the conversation went on`), have `mended` in their metadata, and are streamed like answers of tools.
    /// If the turn fails, the requests are still open.
    #[default]
    Mend,
    /// Fails the turn with `FAILED_PRECONDITION`, and names the open requests. Nothing is kept of the message.
    Reject,
    /// Ends the turn at once as interrupted, with the requests that are open. The message is part of the session, with `waiting`
    /// in its metadata. Once the requests are answered it comes after the answers, so that the model reads both.
    Ask,
}
