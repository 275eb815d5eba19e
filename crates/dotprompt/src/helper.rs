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
    /// Returns the result of a call.
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

/// A call of a helper: its arguments, its context and its block.
pub struct HelperCall<'c> {
    pub(crate) args: Vec<Option<Cow<'c, Value>>>,
    pub(crate) hash: Vec<(&'c str, Option<Cow<'c, Value>>)>,
    pub(crate) this: Cow<'c, Value>,
    pub(crate) block: Option<&'c mut dyn RenderBlock>,
}

/// Renders the block of a helper's call.
pub(crate) trait RenderBlock {
    fn body(&mut self, this: Option<&Value>) -> Result<Fragment, Error>;
    fn inverse(&mut self) -> Result<Fragment, Error>;
}

impl HelperCall<'_> {
    /// Returns the number of arguments, including those without a value.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// Returns an argument, counted from 0, or `None` if it was not given or has no value.
    pub fn arg(&self, index: usize) -> Option<&Value> {
        self.args.get(index)?.as_deref()
    }

    /// Returns an argument if it is a text.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.arg(index)?.as_str()
    }

    /// Returns the value of an argument of the form `key=value`.
    pub fn named(&self, key: &str) -> Option<&Value> {
        self.hash.iter().find(|(name, _)| *name == key)?.1.as_deref()
    }

    /// Returns the context in which the helper is called.
    pub fn this(&self) -> &Value {
        &self.this
    }

    /// Renders the block in the current context; returns an empty fragment if the call is not a block.
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

    /// Renders the part of the block after `{{else}}`.
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
    /// Returns the text without the marks.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns whether the fragment has neither text nor marks.
    pub fn is_empty(&self) -> bool {
        self.0.text.is_empty() && self.0.marks.is_empty()
    }

    /// Appends another fragment.
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

/// The result of a helper: a value to print or to pass on, or a rendered block.
#[derive(Debug, Clone, PartialEq)]
pub enum HelperOutput {
    /// A value. Its text is printed as it is, even if it looks like a mark.
    Value(Value),
    /// A block that [`HelperCall::body`] or [`HelperCall::inverse`] rendered.
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

/// The failure of a helper.
#[derive(Debug, Clone, PartialEq)]
pub enum HelperError {
    /// The helper's own reason.
    Message(String),
    /// The helper's block could not be rendered.
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
