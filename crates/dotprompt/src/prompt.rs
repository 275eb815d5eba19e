//! A compiled prompt.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::resolve::Definitions;
use crate::template::{self, Ambient, Library};
use crate::transcript;
use crate::{Data, Error, Message, Metadata, ParsedPrompt, Piece};

/// A prompt that is ready to be rendered any number of times, from any thread.
///
/// The template and its partials are compiled. Schemas and tools are resolved when the metadata is first
/// needed and then kept: compile again to use later definitions.
#[derive(Clone)]
pub struct Prompt(Arc<Compiled>);

struct Compiled {
    parsed: ParsedPrompt,
    library: Library,
    definitions: Arc<Definitions>,
    metadata: OnceLock<Resolved>,
}

/// The resolved metadata, complete and without `input`, as it accompanies messages.
#[derive(Clone)]
struct Resolved {
    whole: Arc<Metadata>,
    rendered: Arc<Metadata>,
}

/// The result of rendering a prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rendered {
    /// The metadata, resolved, without `input`.
    #[serde(flatten)]
    pub metadata: Arc<Metadata>,
    /// The messages, the history included.
    pub messages: Vec<Message>,
}

impl Prompt {
    pub(crate) fn compile(parsed: ParsedPrompt, definitions: Arc<Definitions>) -> Result<Self, Error> {
        let label = parsed.file.clone();
        let library = Library::compile(&parsed.template, parsed.template_start, label, &definitions)?;
        Ok(Self(Arc::new(Compiled {
            parsed,
            library,
            definitions,
            metadata: OnceLock::new(),
        })))
    }

    /// Returns the parsed source.
    pub fn parsed(&self) -> &ParsedPrompt {
        &self.0.parsed
    }

    /// Returns the names of the `@` variables that the template or one of its partials reads.
    ///
    /// A caller can skip computing an expensive context variable that is not among them.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.library.variables()
    }

    /// Returns an error for each include of a partial that is not defined, with its place: rendering fails
    /// where it comes to one.
    ///
    /// Includes with a computed name, and those with their own block to fall back to, are not among
    /// them.
    pub fn unknown_partials(&self) -> Vec<Error> {
        self.0.library.unknown_partials()
    }

    /// Returns the metadata with schemas expanded and tools resolved.
    ///
    /// Fails if a schema is malformed or a name is not known.
    pub fn metadata(&self) -> Result<Arc<Metadata>, Error> {
        Ok(self.resolved()?.whole)
    }

    /// Returns the resolved metadata with `options` on top.
    pub fn metadata_with(&self, options: &Metadata) -> Result<Metadata, Error> {
        self.0.definitions.resolve(&self.0.parsed, options)
    }

    /// Renders the prompt.
    ///
    /// Fails if a partial does not exist, a helper fails or a limit is exceeded, and as
    /// [`metadata`](Self::metadata) does.
    pub fn render(&self, data: &Data<'_>) -> Result<Rendered, Error> {
        let metadata = self.resolved()?.rendered;
        let describe = || Ok(Value::Object(metadata.as_map().clone()));
        let pieces = self.pieces(data, None, &describe)?;
        let messages = transcript::splice(pieces, data.history());
        Ok(Rendered { metadata, messages })
    }

    /// Renders the prompt with `options` on top of its metadata; their `input.default` applies as well.
    pub fn render_with(&self, data: &Data<'_>, options: &Metadata) -> Result<Rendered, Error> {
        let metadata = Arc::new(without_input(self.metadata_with(options)?));
        let describe = || Ok(Value::Object(metadata.as_map().clone()));
        let pieces = self.pieces(data, options.input_default(), &describe)?;
        let messages = transcript::splice(pieces, data.history());
        Ok(Rendered { metadata, messages })
    }

    /// Renders the template without its history, which the caller splices in.
    ///
    /// The metadata is resolved only if the template reads `@metadata.prompt`.
    pub fn render_pieces(&self, data: &Data<'_>) -> Result<Vec<Piece>, Error> {
        let describe = || Ok(Value::Object(self.resolved()?.rendered.as_map().clone()));
        self.pieces(data, None, &describe)
    }

    fn pieces(
        &self,
        data: &Data<'_>,
        defaults: Option<&Map<String, Value>>,
        describe: &dyn Fn() -> Result<Value, Error>,
    ) -> Result<Vec<Piece>, Error> {
        let root = self.input(data.input, defaults);
        let ambient = Ambient::new(data, &root, describe);
        let output = template::render(&self.0.library, &ambient, &self.0.definitions.limits)?;
        Ok(transcript::pieces(output))
    }

    /// Merges the frontmatter's defaults, this rendering's defaults and the input; later ones win.
    fn input<'d>(&self, input: Option<&'d Value>, defaults: Option<&Map<String, Value>>) -> Cow<'d, Value> {
        let own = self.0.parsed.metadata().input_default();
        let given = match input {
            Some(Value::Object(given)) => Some(given),
            None | Some(Value::Null) => None,
            Some(other) => return Cow::Borrowed(other),
        };
        if let (Some(input), true) = (
            input.filter(|_| given.is_some()),
            own.is_none() && defaults.is_none(),
        ) {
            return Cow::Borrowed(input);
        }
        let mut merged = own.cloned().unwrap_or_default();
        merged.extend(defaults.cloned().unwrap_or_default());
        merged.extend(given.cloned().unwrap_or_default());
        Cow::Owned(Value::Object(merged))
    }

    fn resolved(&self) -> Result<Resolved, Error> {
        if let Some(resolved) = self.0.metadata.get() {
            return Ok(resolved.clone());
        }
        let whole = self.metadata_with(&Metadata::new())?;
        let rendered = Arc::new(without_input(whole.clone()));
        let resolved = Resolved {
            whole: Arc::new(whole),
            rendered,
        };
        Ok(self.0.metadata.get_or_init(|| resolved).clone())
    }
}

fn without_input(mut metadata: Metadata) -> Metadata {
    metadata.as_map_mut().shift_remove("input");
    metadata
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt")
            .field("parsed", &self.0.parsed)
            .finish_non_exhaustive()
    }
}
