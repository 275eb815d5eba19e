//! A span in a distributed trace, in the form of the W3C recommendation on trace context.

use std::fmt;
use std::sync::Arc;

use super::{SpanId, SpanIds, SpanPlace, TraceId};
use crate::Context;

/// The flag of a trace that is recorded somewhere.
const SAMPLED: u8 = 1;

/// The longest `tracestate` that is passed on; intermediaries may drop longer ones.
const LONGEST_STATE: usize = 512;

/// A span that other programs can name as the parent or the cause of theirs: the values of the headers
/// `traceparent` and `tracestate`.
///
/// As an extension of the context it is the span of the program that called this one; the outermost span of
/// the invocation then belongs to its trace. [`TraceParent::current`] is the span to name in calls to other
/// programs.
///
/// ```
/// use everturn_core::TraceParent;
///
/// let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let caller = TraceParent::parse(header).expect("the header is well formed");
/// assert!(caller.is_sampled());
/// assert_eq!(caller.to_string(), header);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    ids: SpanIds,
    flags: u8,
    state: Option<Arc<str>>,
}

impl TraceParent {
    pub(super) fn new(ids: SpanIds, flags: u8, state: Option<Arc<str>>) -> Self {
        Self { ids, flags, state }
    }

    /// Reads the header `traceparent`; `None` if it is malformed, as if there were no header.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hex::<2>(version)?;
        // Later versions may add parts after the first four.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let ids = SpanIds {
            trace: TraceId::new(hex::<32>(trace)?)?,
            span: SpanId::new(u64::try_from(hex::<16>(span)?).ok()?)?,
        };
        let flags = u8::try_from(hex::<2>(flags)?).ok()?;
        Some(Self::new(ids, flags, None))
    }

    /// Sets the value of the header `tracestate`, which is passed on unparsed. A value that is too long or
    /// not text is ignored.
    pub fn with_state(mut self, state: &str) -> Self {
        let is_usable = !state.is_empty()
            && state.len() <= LONGEST_STATE
            && state.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        self.state = is_usable.then(|| state.into());
        self
    }

    /// Returns the span of the current invocation, or of its caller if this program's spans are not recorded;
    /// `None` if there is neither.
    pub fn current() -> Option<Self> {
        Self::of(&Context::current())
    }

    /// Returns the span of an invocation, like [`TraceParent::current`].
    pub fn of(context: &Context) -> Option<Self> {
        let own = context
            .extension::<SpanPlace>()
            .and_then(|place| place.recording.as_ref().map(|own| own.trace_parent()));
        own.or_else(|| context.extension::<Self>().map(Arc::unwrap_or_clone))
    }

    /// Returns the ids of the span and of its trace.
    pub fn ids(&self) -> SpanIds {
        self.ids
    }

    /// Returns whether the program that started the trace records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the value of the header `tracestate`, if there is one.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the flags and the state for a span that continues the trace.
    pub(super) fn inherited(parent: Option<&Self>) -> (u8, Option<Arc<str>>) {
        parent.map_or((SAMPLED, None), |parent| (parent.flags, parent.state.clone()))
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ids, flags, .. } = self;
        write!(f, "00-{}-{}-{flags:02x}", ids.trace, ids.span)
    }
}

/// Reads exactly `DIGITS` lower-case hexadecimal digits.
fn hex<const DIGITS: usize>(text: &str) -> Option<u128> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_whole = text.len() == DIGITS && text.bytes().all(is_hex);
    is_whole.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

    #[test]
    fn a_header_is_read_and_written_unchanged() {
        let parent = TraceParent::parse(HEADER).unwrap().with_state("vendor=1");

        assert_eq!(parent.to_string(), HEADER);
        assert!(!parent.is_sampled());
        assert_eq!(parent.state(), Some("vendor=1"));
    }

    #[test]
    fn a_later_version_may_have_more_parts() {
        let later = format!("cc{}-what", &HEADER[2..]);

        assert!(TraceParent::parse(&later).is_some());
    }

    #[test]
    fn a_malformed_header_counts_as_none() {
        let malformed = [
            "",
            "00",
            &HEADER[..54],
            &HEADER.to_uppercase(),
            &format!("{HEADER}-more"),
            &format!("ff{}", &HEADER[2..]),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",
        ];

        for header in malformed {
            assert_eq!(TraceParent::parse(header), None, "{header}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_or_not_text_is_left_out() {
        let parent = TraceParent::parse(HEADER).unwrap();

        for state in ["", "a\nb", &"x".repeat(513)] {
            assert_eq!(parent.clone().with_state(state).state(), None);
        }
    }
}
