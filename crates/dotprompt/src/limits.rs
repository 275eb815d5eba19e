//! The bounds within which a template is compiled and rendered.

use std::fmt;

/// The limits of work and memory for one prompt.
///
/// A template that exceeds a bound fails with
/// [`ErrorKind::LimitExceeded`](crate::ErrorKind::LimitExceeded); it cannot hang the process, exhaust its
/// memory or overflow its stack. The defaults suit prompts written by people; start from them to change one:
///
/// ```
/// let mut limits = dotprompt::Limits::default();
/// limits.output_bytes = 64 * 1024;
/// # let _ = dotprompt::Dotprompt::new().limits(limits);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of source, a prompt and all its partials together. Default 512 KiB.
    pub source_bytes: usize,
    /// Tags (`{{...}}`) in a prompt and all its partials together. Default 2048.
    pub tags: usize,
    /// Nested blocks in one template, and nested parentheses in one tag. Default 64.
    pub nesting: usize,
    /// Different partials that one prompt may reach. Default 256.
    pub partials: usize,
    /// Partials active inside each other while rendering. Default 64.
    pub partial_depth: usize,
    /// Blocks, partials and subexpressions active inside each other while rendering. Default 256.
    pub depth: usize,
    /// Statements executed while rendering, counted again in each pass of a loop. Default one million.
    pub steps: u64,
    /// Bytes written while rendering, intermediate results included. Default 16 MiB.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source_bytes: 512 * 1024,
            tags: 2048,
            nesting: 64,
            partials: 256,
            partial_depth: 64,
            depth: 256,
            steps: 1_000_000,
            output_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Names the bound of [`Limits`] that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::source_bytes`].
    SourceBytes,
    /// [`Limits::tags`].
    Tags,
    /// [`Limits::nesting`].
    Nesting,
    /// [`Limits::partials`].
    Partials,
    /// [`Limits::partial_depth`].
    PartialDepth,
    /// [`Limits::depth`].
    Depth,
    /// [`Limits::steps`].
    Steps,
    /// [`Limits::output_bytes`].
    OutputBytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SourceBytes => "the source is too long",
            Self::Tags => "the source has too many tags",
            Self::Nesting => "blocks or parentheses are nested too deeply",
            Self::Partials => "the prompt reaches too many partials",
            Self::PartialDepth => "partials are nested too deeply",
            Self::Depth => "rendering is nested too deeply",
            Self::Steps => "rendering takes too many steps",
            Self::OutputBytes => "rendering writes too much",
        })
    }
}
