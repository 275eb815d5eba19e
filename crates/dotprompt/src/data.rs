//! The data of a rendering: input, context, history and documents, all borrowed.

use serde_json::{Map, Value};

use crate::message::Message;

/// The data of one rendering.
///
/// Everything is borrowed, so that rendering copies neither a large context nor a long history.
///
/// ```
/// # use dotprompt::{Data, Dotprompt};
/// # use serde_json::json;
/// let dotprompt = Dotprompt::new();
/// let input = json!({"name": "Ada"});
/// let auth = json!({"email": "ada@example.com"});
/// let data = Data::new().input(&input).variable("auth", &auth);
///
/// let rendered = dotprompt.render("Hello {{name}} ({{@auth.email}})", &data)?;
/// assert_eq!(rendered.messages[0].text(), "Hello Ada (ada@example.com)");
/// # Ok::<(), dotprompt::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Data<'a> {
    pub(crate) input: Option<&'a Value>,
    pub(crate) context: Option<&'a Map<String, Value>>,
    pub(crate) variables: Vec<(&'a str, &'a Value)>,
    pub(crate) history: History<'a>,
    pub(crate) docs: Option<&'a [Value]>,
}

/// The conversation so far: as messages, or as a function that returns its JSON for templates that read it.
#[derive(Clone, Copy, Default)]
pub(crate) enum History<'a> {
    #[default]
    None,
    Messages(&'a [Message]),
    Described(&'a dyn Fn() -> Value),
}

impl<'a> Data<'a> {
    /// Creates data without input, context, history and documents.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the variables of the template, an object: `{{name}}` prints its `name`.
        ///
        /// Defaults apply key by key. An input that is not an object is available as `{{this}}` and gets no
        /// defaults.
        pub fn input(mut self, input: &'a Value) { self.input = Some(input) }

        /// Sets the context variables: `{{@auth.email}}` prints `email` of its `auth`.
        pub fn context(mut self, context: &'a Map<String, Value>) { self.context = Some(context) }

        /// Adds one context variable, which overrides a variable of that name in [`context`](Self::context).
        pub fn variable(mut self, name: &'a str, value: &'a Value) { self.variables.push((name, value)) }

        /// Sets the conversation so far, which `{{history}}` inserts.
        ///
        /// Without that helper the history goes before the last message if that is the user's, else to the
        /// end.
        pub fn messages(mut self, messages: &'a [Message]) { self.history = History::Messages(messages) }

        /// Sets a function that returns the conversation so far as JSON, for `{{@metadata.messages}}` only.
        ///
        /// It is for callers that splice their own history type into the result of
        /// [`Prompt::render_pieces`](crate::Prompt::render_pieces). The function runs only if the template
        /// reads that variable.
        pub fn describe_messages(mut self, describe: &'a dyn Fn() -> Value) {
            self.history = History::Described(describe);
        }

        /// Sets the documents, available as `{{@metadata.docs}}`.
        pub fn docs(mut self, docs: &'a [Value]) { self.docs = Some(docs) }
    }

    pub(crate) fn history(&self) -> &'a [Message] {
        match self.history {
            History::Messages(messages) => messages,
            History::None | History::Described(_) => &[],
        }
    }
}

impl std::fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data")
            .field("input", &self.input)
            .field("context", &self.context)
            .field("variables", &self.variables)
            .field("messages", &self.history().len())
            .field("docs", &self.docs)
            .finish()
    }
}
