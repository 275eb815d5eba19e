//! The parts of a turn that clients may set in addition to their message.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use everturn_ai::{ClientMedia, Feature, FetchRules, History, Message, Messages, Part, Resource, Role};
use everturn_core::{ActionType, Context, Error, Result, WeakRegistry};
use serde_json::Value;

use crate::{AgentInput, SessionState};

/// The number of resource links that a client may send in an input, and in the conversation that it keeps.
const MAX_LINKS: usize = 32;

/// The parts of a turn that clients of an agent may set in addition to their message; nothing by default.
///
/// A client's message is the user's part of the conversation. Every other field of a request changes what the
/// model sees or does, so an agent accepts it only if it lists it here
/// ([`AgentBuilder::client_permissions`]). The setting belongs to the agent and holds on every route and for
/// every protocol adapter: mounting an adapter grants nothing.
///
/// | method | allows | native field |
/// |---|---|---|
/// | [`instructions`](Self::instructions) | texts after the system text, for one turn | `data.instructions` |
/// | [`tools`](Self::tools) | tools that the client runs itself, for one turn | `data.tools` |
/// | [`custom`](Self::custom) | the custom state as a session or turn starts | `init.custom`, `data.custom` |
/// | [`prompt_input`](Self::prompt_input) | fields of a new session's prompt input | `init.promptInput` |
/// | [`output_schema`](Self::output_schema) | the JSON Schema of the answer to a turn | `data.outputSchema` |
/// | [`fetch_media`](Self::fetch_media) | media that the server fetches for the model | URLs in messages |
///
/// A field that is not allowed is `INVALID_ARGUMENT`, with a public message that names the field and the
/// method, before anything runs. The protocol adapters ignore some fields instead, because their clients
/// always send them; `docs/serving.md` has the table. No client can choose a model, its config or the agent's
/// own tools.
///
/// **Calls from Rust are not clients.** A call through a handle of the agent
/// ([`Agent::chat`](crate::Agent::chat), [`Agent::run`](crate::Agent::run),
/// [`Agent::connect`](crate::Agent::connect)) is made by the program itself and needs no permission. Every
/// other call counts as a client's: over HTTP and WebSocket, through an adapter, and through the registered
/// action.
///
/// Clients of an agent without a store keep the conversation: the messages, custom state and artifacts of its
/// `state` are theirs in any case. System messages in it are refused without
/// [`instructions`](Self::instructions), except those with which the agent's conversations
/// [begin](crate::AgentBuilder::initial_messages). Of its prompt input only the allowed fields are read; the
/// others are the agent's own.
///
/// ```
/// use everturn_agent::{ClientPermissions, agent};
/// # use everturn_core::{Registry, Result};
/// # use serde_json::json;
/// # fn main() -> Result<()> {
/// # let registry = Registry::new();
/// agent(&registry, "painter")
///     .system("You paint. Write in {{language}}, be {{tone}}.")
///     .prompt_input(json!({"language": "English", "tone": "kind"}))
///     .client_permissions(ClientPermissions::none().tools().prompt_input(["language"]))
///     .define()?;
/// # Ok(()) }
/// ```
///
/// [`AgentBuilder::client_permissions`]: crate::AgentBuilder::client_permissions
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
#[must_use = "permissions take effect on the agent that is defined with them"]
pub struct ClientPermissions {
    fields: BTreeSet<Field>,
    /// The fields of the prompt input that clients may set.
    prompt_input: BTreeSet<String>,
    /// The rules for media that is fetched for clients; `None` if none is.
    fetch_media: Option<FetchRules>,
}

/// A field of a request that an agent may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    Instructions,
    Tools,
    Custom,
    OutputSchema,
}

impl Field {
    /// Returns the name of the field on the wire, and of the method that allows it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Instructions => ("instructions", "instructions"),
            Self::Tools => ("tools", "tools"),
            Self::Custom => ("custom", "custom"),
            Self::OutputSchema => ("outputSchema", "output_schema"),
        }
    }
}

impl ClientPermissions {
    /// Allows nothing, which is the default.
    pub fn none() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Allows texts that follow the agent's system text for one turn ([`AgentInput::instructions`]).
        pub fn instructions(mut self) { self.fields.insert(Field::Instructions); }

        /// Allows tools that the client runs itself, for one turn ([`AgentInput::tools`]).
        pub fn tools(mut self) { self.fields.insert(Field::Tools); }

        /// Allows the custom state of a new session ([`AgentInit::custom`](crate::AgentInit::custom)), and
        /// one that replaces the session's at the start of a turn ([`AgentInput::custom`]), as front ends
        /// send it that share their state with an agent.
        ///
        /// Both are checked against the schema of the custom state before the session is touched.
        pub fn custom(mut self) { self.fields.insert(Field::Custom); }
    }

    /// Allows these top-level fields of the prompt input of a new conversation
    /// ([`AgentInit::prompt_input`](crate::AgentInit::prompt_input)); called again, more of them.
    ///
    /// A client may send some of them: the input is merged over the agent's
    /// [own](crate::AgentBuilder::prompt_input) and then checked against the prompt's schema.
    pub fn prompt_input<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.prompt_input.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Allows the JSON Schema of the answer to a turn ([`AgentInput::output_schema`]), which then replaces
    /// the prompt's. A custom function finds the schema in [`Turn::input`](crate::Turn::input) and has to
    /// apply it.
    pub fn output_schema(mut self) -> Self {
        self.fields.insert(Field::OutputSchema);
        self
    }

    /// Allows the server to fetch media behind URLs of the conversation, for models that do not fetch URLs
    /// themselves.
    ///
    /// Without it, a turn whose model needs such media inline fails with `INVALID_ARGUMENT`, and nothing is
    /// requested. URLs that the model's provider fetches itself are passed on in any case. The rules hold for
    /// the whole conversation, for messages of any role, and for URLs of the prompt that contain a part of
    /// the client's [prompt input](Self::prompt_input). Other URLs of the prompt, and those that a tool gives
    /// to a model, are trusted.
    ///
    /// ```
    /// # use everturn_agent::ClientPermissions;
    /// use everturn_ai::FetchRules;
    /// let permissions = ClientPermissions::none().fetch_media(FetchRules::hosts(["images.example.com"]));
    /// ```
    pub fn fetch_media(mut self, rules: FetchRules) -> Self {
        self.fetch_media = Some(rules);
        self
    }

    pub(crate) fn allows(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// Returns the names of everything that is allowed, as the agent's metadata has them.
    fn names(&self) -> Vec<String> {
        let fields = self.fields.iter().map(|field| field.names().0.to_owned());
        let of_input = self
            .prompt_input
            .iter()
            .map(|field| format!("promptInput.{field}"));
        let media = self.fetch_media.iter().map(|_| "fetchMedia".to_owned());
        fields.chain(of_input).chain(media).collect()
    }
}

/// The rules for calls of an agent's clients. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct ClientRules(pub(crate) Arc<Rules>);

pub(crate) struct Rules {
    pub(crate) agent: String,
    pub(crate) permissions: ClientPermissions,
    /// The names of the resources that messages may link to.
    pub(crate) resources: Vec<String>,
    /// The agent's own prompt input.
    pub(crate) own_prompt_input: Option<Arc<Value>>,
    pub(crate) registry: WeakRegistry,
}

impl ClientRules {
    pub(crate) fn permissions(&self) -> &ClientPermissions {
        &self.0.permissions
    }

    /// Returns the names of the resources that messages may link to.
    pub(crate) fn resources(&self) -> &[String] {
        &self.0.resources
    }

    /// Returns the names of everything that is allowed, as the agent's metadata has them.
    pub(crate) fn names(&self) -> Vec<String> {
        let resources = self.0.resources.iter().map(|name| format!("resources.{name}"));
        self.0.permissions.names().into_iter().chain(resources).collect()
    }

    /// Applies the rules for clients to the media of the conversation, and to media of the prompt whose URL
    /// contains a part of the prompt input that is not the agent's own.
    pub(crate) fn enter(
        &self,
        context: Context,
        conversation: &History,
        prompt_input: Option<&Value>,
    ) -> Context {
        let setting = "`ClientPermissions::fetch_media`";
        let mut texts = Vec::new();
        for field in &self.0.permissions.prompt_input {
            let given = prompt_input.and_then(|input| input.get(field));
            let own = self.0.own_prompt_input.as_ref().and_then(|own| own.get(field));
            if let Some(given) = given.filter(|given| own != Some(*given)) {
                add_texts(given, &mut texts);
            }
        }
        ClientMedia::enter(
            context,
            conversation,
            texts,
            self.0.permissions.fetch_media.as_ref(),
            setting,
        )
    }

    /// Checks the input of a turn.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a field that the agent does not allow.
    pub(crate) fn check(&self, input: &AgentInput) -> Result<()> {
        let given = [
            (Field::Instructions, !input.instructions.is_empty()),
            (Field::Tools, !input.tools.is_empty()),
            (Field::Custom, input.custom.is_some()),
            (Field::OutputSchema, input.output_schema.is_some()),
        ];
        for (field, is_given) in given {
            if is_given {
                self.require(field)?;
            }
        }
        let mut links = 0;
        let mut messages = input.messages();
        messages.try_for_each(|message| self.check_links(message, &mut links))
    }

    /// Checks the conversation that a client kept. `own` are the messages with which the agent's
    /// conversations begin.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a link to a resource that the agent does not list, and for a system message
    /// that is neither allowed nor the agent's own.
    pub(crate) fn check_state(&self, state: &SessionState, own: &[Message]) -> Result<()> {
        let messages = Messages::from(&state.messages);
        let is_own = |message: &Message| {
            let is_same = |own: &Message| own.role() == message.role() && own.content() == message.content();
            own.iter().any(is_same)
        };
        let mut system = messages.iter().filter(|message| message.role() == Role::System);
        if !self.0.permissions.allows(Field::Instructions) && !system.all(is_own) {
            let (_, method) = Field::Instructions.names();
            return Err(self.refused("state.messages' of role 'system", method));
        }
        let (mut start, mut links) = (0, 0);
        while let Some(index) = messages.next_with(Feature::Resource, start) {
            messages
                .get(index)
                .map_or(Ok(()), |message| self.check_links(message, &mut links))?;
            start = index + 1;
        }
        Ok(())
    }

    /// Checks the links of a message, of which `count` came before.
    fn check_links(&self, message: &Message, count: &mut usize) -> Result<()> {
        let mut links = message.content().iter().filter_map(Part::as_resource);
        links.try_for_each(|link| {
            *count += 1;
            if *count > MAX_LINKS {
                return Err(Error::invalid_argument(format!(
                    "agent '{}' accepts {MAX_LINKS} links to resources from a client: link fewer",
                    self.0.agent
                ))
                .with_public());
            }
            let registry = self.0.registry.upgrade()?;
            let serves = |name: &String| {
                let action = registry.get(&ActionType::RESOURCE.key(name));
                let resource = action.and_then(Resource::from_action);
                resource.is_some_and(|resource| resource.matches(&link.uri).is_some())
            };
            if self.0.resources.iter().any(serves) {
                return Ok(());
            }
            Err(Error::invalid_argument(format!(
                "agent '{}' does not read the resource '{}' for clients: leave the link out, or list the resource with \
                 `AgentBuilder::resources`",
                self.0.agent, link.uri
            ))
            .with_public())
        })
    }

    /// # Errors
    /// `INVALID_ARGUMENT` for a field that the agent does not allow.
    pub(crate) fn require(&self, field: Field) -> Result<()> {
        if self.0.permissions.allows(field) {
            return Ok(());
        }
        let (name, method) = field.names();
        Err(self.refused(name, method))
    }

    /// Checks a prompt input, of which a client may give a part.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an input that is not an object, and for a field that the agent does not allow.
    pub(crate) fn check_prompt_input(&self, given: &Value) -> Result<()> {
        let Value::Object(given) = given else {
            return Err(Error::invalid_argument("'promptInput' of a client is an object").with_public());
        };
        let allowed = &self.0.permissions.prompt_input;
        match given.keys().find(|field| !allowed.contains(*field)) {
            Some(field) => Err(self.refused(format_args!("promptInput.{field}"), "prompt_input")),
            None => Ok(()),
        }
    }

    /// Returns the allowed fields of a prompt input that a client kept, over the agent's own input.
    pub(crate) fn kept_prompt_input(&self, kept: &Value, own: Option<&Arc<Value>>) -> Option<Arc<Value>> {
        let mut allowed = kept.clone();
        match &mut allowed {
            Value::Object(fields) => {
                fields.retain(|field, _| self.0.permissions.prompt_input.contains(field));
            }
            _ => return own.cloned(),
        }
        match allowed.as_object() {
            Some(fields) if fields.is_empty() => own.cloned(),
            _ => Some(Arc::new(merged(own, allowed))),
        }
    }

    fn refused(&self, field: impl fmt::Display, method: &str) -> Error {
        Error::invalid_argument(format!(
            "agent '{}' does not accept '{field}' from clients: leave it out, or define the agent with \
             `ClientPermissions::{method}`",
            self.0.agent
        ))
        .with_public()
    }
}

/// Adds the texts from which a template can make a part of a URL.
fn add_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => texts.push(number.to_string()),
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, texts)),
        Value::Object(fields) => {
            for (name, value) in fields {
                texts.push(name.clone());
                add_texts(value, texts);
            }
        }
    }
}

/// Returns a prompt input with its fields replaced by those of another one.
pub(crate) fn merged(base: Option<&Arc<Value>>, given: Value) -> Value {
    match (base.map(|base| &**base), given) {
        (Some(Value::Object(base)), Value::Object(given)) => {
            let mut fields = base.clone();
            fields.extend(given);
            Value::Object(fields)
        }
        (_, given) => given,
    }
}

everturn_core::opaque_debug!(ClientRules, 0.permissions);
