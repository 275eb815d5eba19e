//! The conditions under which tools ask and people answer.

use std::sync::Arc;

use everturn_core::Context;
use jiff::Timestamp;

/// The conditions under which tools ask and people answer: the clock, the session, and whether arguments may
/// be edited. An agent sets them for its turns. Cloning is cheap.
#[derive(Clone)]
pub struct Questions {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    session: Option<Arc<str>>,
    allows_edits: bool,
    is_kept_by_client: bool,
}

impl Questions {
    /// Creates the conditions of a generation outside any agent: no session, and edits are allowed.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            now: Arc::new(now),
            session: None,
            allows_edits: true,
            is_kept_by_client: false,
        }
    }

    everturn_core::setters! {
        /// Sets the session in which tools ask.
        #[must_use]
        pub fn in_session(mut self, session: impl Into<Arc<str>>) { self.session = Some(session.into()) }

        /// Sets whether people may edit the arguments of calls of tools that [do not decide it
        /// themselves](crate::Tool::with_editable_input).
        #[must_use]
        pub fn allowing_edits(mut self, allows_edits: bool) { self.allows_edits = allows_edits }

        /// Sets whether the conversation is kept by the client that answers. Then nothing in it can be
        /// verified, neither that a tool was called nor that it asked.
        #[must_use]
        pub fn kept_by_client(mut self, is_kept_by_client: bool) {
            self.is_kept_by_client = is_kept_by_client;
        }
    }

    /// Returns the conditions of a context, if it has any.
    pub(crate) fn in_context(context: &Context) -> Option<Arc<Self>> {
        context.extension::<Self>()
    }

    /// Returns the conditions of a context, or the default ones with the system's clock.
    pub(crate) fn of(context: &Context) -> Arc<Self> {
        Self::in_context(context).unwrap_or_else(|| Arc::new(Self::new(Timestamp::now)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(crate) fn is_kept_by_client(&self) -> bool {
        self.is_kept_by_client
    }

    pub(crate) fn allows_edits(&self) -> bool {
        self.allows_edits
    }
}

everturn_core::opaque_debug!(Questions, session, allows_edits);

/// Returns the context with these conditions for its questions and answers.
pub fn with_questions(context: Context, questions: Questions) -> Context {
    context.with_extension(Arc::new(questions))
}
