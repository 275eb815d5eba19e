//! Custom helpers: functions that templates call by name.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::error::Error;
use crate::output::Output;

/// A function that templates call by name, as `{{shout name}}` or as `{{#repeat 3}}...{{/repeat}}`.
///
/// Closures of the right shape are helpers:
///
/// ```
/// # use dotprompt::{Data, Dotprompt};
/// let dotprompt = Dotprompt::new().define_helper("shout", |call| {
///     let text = call.text(0).ok_or("it needs a text")?;
///     Ok(text.to_uppercase().into())
/// });
///
/// let rendered = dotprompt.render("{{shout \"hello\"}}", &Data::new())?;
/// assert_eq!(rendered.messages[0].text(), "HELLO");
/// # Ok::<(), dotprompt::Error>(())
/// ```
pub trait Helper: Send + Sync {
    /// Computes what the call stands for.
    fn call(&self, call: &mut HelperCall<'_>) -> Result<HelperOutput, HelperError>;
}

impl<F> Helper for F
where
    F: Fn(&mut HelperCall<'_>) -> Result<HelperOutput, HelperError> + Send + Sync,
{
    fn call(&self, call: &mut HelperCall<'_>) -> Result<HelperOutput, HelperError> {
        self(call)
    }
}

/// What a helper is called with.
pub struct HelperCall<'c> {
    pub(crate) args: Vec<Option<Cow<'c, Value>>>,
    pub(crate) hash: Vec<(&'c str, Option<Cow<'c, Value>>)>,
    pub(crate) this: Cow<'c, Value>,
    pub(crate) block: Option<&'c mut dyn RenderBlock>,
}

/// Renders the block that a helper was given.
pub(crate) trait RenderBlock {
    fn body(&mut self, this: Option<&Value>) -> Result<Fragment, Error>;
    fn inverse(&mut self) -> Result<Fragment, Error>;
}

impl HelperCall<'_> {
    /// How many arguments were given, those without a value included.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// An argument, counted from 0; none if it was not given or has no value.
    pub fn arg(&self, index: usize) -> Option<&Value> {
        self.args.get(index)?.as_deref()
    }

    /// An argument that is a text.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.arg(index)?.as_str()
    }

    /// An argument of the form `key=value`.
    pub fn named(&self, key: &str) -> Option<&Value> {
        self.hash.iter().find(|(name, _)| *name == key)?.1.as_deref()
    }

    /// The context in which the call stands.
    pub fn this(&self) -> &Value {
        &self.this
    }

    /// Whether the call is a block: `{{#helper}}...{{/helper}}`.
    pub fn is_block(&self) -> bool {
        self.block.is_some()
    }

    /// Renders the block in the current context; nothing if the call is no block.
    pub fn body(&mut self) -> Result<Fragment, HelperError> {
        self.block
            .as_mut()
            .map_or(Ok(Fragment::default()), |block| Ok(block.body(None)?))
    }

    /// Renders the block with another context.
    pub fn body_with(&mut self, this: &Value) -> Result<Fragment, HelperError> {
        self.block
            .as_mut()
            .map_or(Ok(Fragment::default()), |block| Ok(block.body(Some(this))?))
    }

    /// Renders what stands behind `{{else}}`.
    pub fn inverse(&mut self) -> Result<Fragment, HelperError> {
        self.block
            .as_mut()
            .map_or(Ok(Fragment::default()), |block| Ok(block.inverse()?))
    }
}

impl fmt::Debug for HelperCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperCall")
            .field("args", &self.args)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Rendered text together with the roles, media and sections marked in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fragment(Output);

impl Fragment {
    /// The text without the marks.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether there is neither text nor a mark.
    pub fn is_empty(&self) -> bool {
        self.0.text.is_empty() && self.0.marks.is_empty()
    }

    /// Puts another fragment behind this one.
    pub fn push(&mut self, other: Self) {
        self.0.append(other.0);
    }

    pub(crate) fn into_text(self) -> String {
        self.0.text
    }

    pub(crate) fn into_output(self) -> Output {
        self.0
    }
}

impl From<Output> for Fragment {
    fn from(output: Output) -> Self {
        Self(output)
    }
}

/// What a helper returns: a value to print or to pass on, or a rendered block.
#[derive(Debug, Clone, PartialEq)]
pub enum HelperOutput {
    /// A value; text in it is never taken for a mark.
    Value(Value),
    /// What [`HelperCall::body`] or [`HelperCall::inverse`] returned.
    Fragment(Fragment),
}

impl<T: Into<Value>> From<T> for HelperOutput {
    fn from(value: T) -> Self {
        Self::Value(value.into())
    }
}

impl From<Fragment> for HelperOutput {
    fn from(fragment: Fragment) -> Self {
        Self::Fragment(fragment)
    }
}

/// Why a helper failed.
#[derive(Debug, Clone, PartialEq)]
pub enum HelperError {
    /// The helper's own reason.
    Message(String),
    /// Its block could not be rendered.
    Render(Error),
}

impl From<&str> for HelperError {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

impl From<String> for HelperError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<Error> for HelperError {
    fn from(error: Error) -> Self {
        Self::Render(error)
    }
}
