//! The entry point: definitions by name, and methods that parse, compile and render a source.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::position::Position;
use crate::resolve::Definitions;
use crate::{
    Data, Error, ErrorKind, Helper, HelperCall, HelperError, HelperOutput, Limit, Limits, Metadata,
    ParsedPrompt, Prompt, PromptRef, PromptStore, Rendered, ResolveError, ToolDefinition,
};

/// Parses, compiles and renders prompts.
///
/// It holds the definitions that prompts refer to by name (partials, helpers, schemas and tools) and
/// resolvers for names that are not defined beforehand. A clone shares the definitions and can add its own.
///
/// ```
/// use dotprompt::{Data, Dotprompt};
/// use serde_json::json;
///
/// let dotprompt = Dotprompt::new().define_partial("tone", "Be {{manner}}.");
/// let prompt = dotprompt.compile("{{role \"system\"}}{{> tone manner=\"brief\"}}{{role \"user\"}}{{question}}")?;
///
/// let input = json!({"question": "Why is the sky blue?"});
/// let rendered = prompt.render(&Data::new().input(&input))?;
/// assert_eq!(rendered.messages[0].text(), "Be brief.");
/// assert_eq!(rendered.messages[1].text(), "Why is the sky blue?");
/// # Ok::<(), dotprompt::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Dotprompt {
    definitions: Arc<Definitions>,
}

impl Dotprompt {
    /// Creates an instance with the built-in helpers only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Defines a partial, which templates include as `{{> name}}`.
    #[must_use]
    pub fn define_partial(mut self, name: impl Into<String>, source: impl Into<String>) -> Self {
        self.edit().partials.insert(name.into(), source.into().into());
        self
    }

    /// Defines a helper as a closure, which templates call as `{{name ...}}`; it may replace a built-in one.
    #[must_use]
    pub fn define_helper<F>(self, name: impl Into<String>, helper: F) -> Self
    where
        F: Fn(&mut HelperCall<'_>) -> Result<HelperOutput, HelperError> + Send + Sync + 'static,
    {
        self.define_helper_type(name, helper)
    }

    setters! {
        /// Defines a helper as a value that implements [`Helper`].
        pub fn define_helper_type(mut self, name: impl Into<String>, helper: impl Helper + 'static) {
            self.edit().helpers.insert(name.into(), Arc::new(helper));
        }

        /// Defines a JSON Schema that Picoschema can refer to by name.
        pub fn define_schema(mut self, name: impl Into<String>, schema: Value) {
            self.edit().schemas.insert(name.into(), schema);
        }

        /// Defines a tool that prompts can refer to by name.
        pub fn define_tool(mut self, tool: ToolDefinition) {
            self.edit().tools.insert(tool.name.clone(), tool);
        }
    }

    /// Sets a resolver that returns the source of partials that are not defined. It is called when a prompt
    /// is compiled.
    #[must_use]
    pub fn partial_resolver<F>(mut self, resolver: F) -> Self
    where
        F: Fn(&str) -> Result<Option<String>, ResolveError> + Send + Sync + 'static,
    {
        self.edit().partial_resolver = Some(Arc::new(resolver));
        self
    }

    /// Sets a resolver that returns schemas that are not defined.
    #[must_use]
    pub fn schema_resolver<F>(mut self, resolver: F) -> Self
    where
        F: Fn(&str) -> Result<Option<Value>, ResolveError> + Send + Sync + 'static,
    {
        self.edit().schema_resolver = Some(Arc::new(resolver));
        self
    }

    /// Sets a resolver that returns tools that are not defined. A tool that it does not return is then an
    /// error.
    #[must_use]
    pub fn tool_resolver<F>(mut self, resolver: F) -> Self
    where
        F: Fn(&str) -> Result<Option<ToolDefinition>, ResolveError> + Send + Sync + 'static,
    {
        self.edit().tool_resolver = Some(Arc::new(resolver));
        self
    }

    setters! {
        /// Sets the store of prompts, and of partials that are neither defined nor resolved.
        pub fn store(mut self, store: impl PromptStore + 'static) {
            self.edit().store = Some(Arc::new(store));
        }

        /// Sets the model whose configuration applies to prompts that name no model.
        pub fn default_model(mut self, model: impl Into<String>) {
            self.edit().default_model = Some(model.into());
        }

        /// Sets the default configuration of a model, an object; a prompt's own `config` overrides it key by
        /// key.
        pub fn model_config(mut self, model: impl Into<String>, config: Value) {
            self.edit().model_configs.insert(model.into(), config);
        }

        /// Replaces the limits.
        pub fn limits(mut self, limits: Limits) { self.edit().limits = limits }
    }

    /// Parses a source into frontmatter and template; never fails.
    pub fn parse(&self, source: &str) -> ParsedPrompt {
        ParsedPrompt::read(source, None)
    }

    /// Parses a source under a name, usually its path, which error messages show; never fails.
    pub fn parse_named(&self, file: &str, source: &str) -> ParsedPrompt {
        ParsedPrompt::read(source, Some(Arc::from(file)))
    }

    /// Compiles a source, together with all partials that it may reach.
    ///
    /// Fails if the template or a partial that it names is malformed or calls an unknown helper, if partials
    /// include each other without end, or if a limit is exceeded.
    pub fn compile(&self, source: &str) -> Result<Prompt, Error> {
        self.compile_source(source, None)
    }

    /// Compiles a source under a name, usually its path, which error messages show.
    pub fn compile_named(&self, file: &str, source: &str) -> Result<Prompt, Error> {
        self.compile_source(source, Some(Arc::from(file)))
    }

    /// Loads a prompt from the store and compiles it.
    ///
    /// Its metadata gets `name`, `variant` and `version` from the store unless the frontmatter sets them.
    /// Fails as [`compile`](Self::compile) does, and if there is no store or the store does not have the
    /// prompt.
    pub fn load(&self, prompt: &PromptRef) -> Result<Prompt, Error> {
        let Some(store) = &self.definitions.store else {
            return Err(Error::new(ErrorKind::Metadata(
                "there is no store to load prompts from".to_owned(),
            )));
        };
        let stored = store.load(prompt)?;
        let mut parsed = self.read(&stored.source, stored.file.map(Arc::from))?;
        let known = [
            ("name", Some(prompt.name.clone())),
            ("variant", prompt.variant.clone()),
            ("version", Some(stored.version)),
        ];
        for (key, value) in known {
            if let Some(value) = value.filter(|_| parsed.metadata.get(key).is_none()) {
                parsed
                    .metadata
                    .as_map_mut()
                    .insert(key.to_owned(), Value::from(value));
            }
        }
        Prompt::compile(parsed, self.definitions.clone())
    }

    /// Compiles a source and renders it once.
    pub fn render(&self, source: &str, data: &Data<'_>) -> Result<Rendered, Error> {
        self.compile(source)?.render(data)
    }

    /// Compiles a source and renders it once, with `options` on top of its metadata.
    pub fn render_with(&self, source: &str, data: &Data<'_>, options: &Metadata) -> Result<Rendered, Error> {
        self.compile(source)?.render_with(data, options)
    }

    /// Returns the metadata of a source with `options` on top, schemas expanded and tools resolved.
    pub fn render_metadata(&self, source: &str, options: &Metadata) -> Result<Metadata, Error> {
        self.definitions.resolve(&self.read(source, None)?, options)
    }

    fn compile_source(&self, source: &str, file: Option<Arc<str>>) -> Result<Prompt, Error> {
        Prompt::compile(self.read(source, file)?, self.definitions.clone())
    }

    fn read(&self, source: &str, file: Option<Arc<str>>) -> Result<ParsedPrompt, Error> {
        if source.len() > self.definitions.limits.source_bytes {
            let start = Position::START.in_file(file.as_ref());
            return Err(Error::at(ErrorKind::LimitExceeded(Limit::SourceBytes), start));
        }
        Ok(ParsedPrompt::read(source, file))
    }

    fn edit(&mut self) -> &mut Definitions {
        Arc::make_mut(&mut self.definitions)
    }
}

impl fmt::Debug for Dotprompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dotprompt")
            .field("limits", &self.definitions.limits)
            .finish_non_exhaustive()
    }
}
