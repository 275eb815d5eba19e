//! A prompt's metadata: model, configuration, schemas, tools and all other keys of its frontmatter.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The metadata of a prompt, as the frontmatter writes it or with schemas and tools resolved.
///
/// It is a JSON object with a few known keys, which the methods read; a key of the wrong type reads as
/// absent. Keys that the format does not define are in [`raw`](Self::raw), and those of the form
/// `namespace.key` also in [`ext`](Self::ext).
///
/// Additional metadata can be passed at render time, where it overrides the frontmatter:
///
/// ```
/// # use dotprompt::{Dotprompt, Metadata};
/// # use serde_json::json;
/// let source = "---\nconfig:\n  temperature: 1\n  topK: 4\n---\nHello";
/// let options = Metadata::new().with("config", json!({"topK": 8}));
///
/// let metadata = Dotprompt::new().render_metadata(source, &options)?;
/// assert_eq!(json!(metadata.config()), json!({"temperature": 1, "topK": 8}));
/// # Ok::<(), dotprompt::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Metadata(Map<String, Value>);

impl Metadata {
    /// Creates empty metadata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates metadata with the keys that every prompt has.
    pub(crate) fn base() -> Self {
        Self(
            ["ext", "metadata", "config"]
                .map(|key| (key.to_owned(), Value::Object(Map::new())))
                .into_iter()
                .collect(),
        )
    }

    /// Sets one key.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// Returns the name of the prompt.
    pub fn name(&self) -> Option<&str> {
        self.text("name")
    }

    /// Returns the variant of the prompt.
    pub fn variant(&self) -> Option<&str> {
        self.text("variant")
    }

    /// Returns the description of the prompt.
    pub fn description(&self) -> Option<&str> {
        self.text("description")
    }

    /// Returns the name of the model.
    pub fn model(&self) -> Option<&str> {
        self.text("model")
    }

    /// Returns the configuration for the model.
    pub fn config(&self) -> Option<&Map<String, Value>> {
        self.object("config")
    }

    /// Returns the names of tools without a definition.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.0
            .get("tools")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    /// Returns the definitions of tools that were resolved by name.
    pub fn tool_definitions(&self) -> &[Value] {
        self.0
            .get("toolDefs")
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns the schema of the input: as written, or JSON Schema once resolved.
    pub fn input_schema(&self) -> Option<&Value> {
        self.object("input")?.get("schema")
    }

    /// Returns the default values of the template's variables.
    pub fn input_default(&self) -> Option<&Map<String, Value>> {
        self.object("input")?.get("default")?.as_object()
    }

    /// Returns the schema of the output: as written, or JSON Schema once resolved.
    pub fn output_schema(&self) -> Option<&Value> {
        self.object("output")?.get("schema")
    }

    /// Returns the format of the output.
    pub fn output_format(&self) -> Option<&str> {
        self.object("output")?.get("format")?.as_str()
    }

    /// Returns the whole frontmatter as written, or `None` if the source has none.
    pub fn raw(&self) -> Option<&Map<String, Value>> {
        self.object("raw")
    }

    /// Returns the keys with a dot, split at the last dot: `a.b.c: 1` is `c: 1` in `ext["a.b"]`.
    pub fn ext(&self) -> Option<&Map<String, Value>> {
        self.object("ext")
    }

    /// Returns the metadata as a JSON object.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Returns the metadata as a JSON object.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Merges `over` into this metadata: its keys replace those here, and `config` is merged key by key.
    pub(crate) fn overlay(&mut self, over: &Self) {
        let mut config = self.config().cloned().unwrap_or_default();
        config.extend(over.config().cloned().unwrap_or_default());
        self.0.extend(over.0.clone());
        self.0.insert("config".to_owned(), Value::Object(config));
    }

    pub(crate) fn as_map_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn object(&self, key: &str) -> Option<&Map<String, Value>> {
        self.0.get(key)?.as_object()
    }
}

impl From<Map<String, Value>> for Metadata {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}
