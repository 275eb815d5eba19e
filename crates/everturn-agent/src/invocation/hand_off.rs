//! Detaching an invocation from outside.

use std::fmt;

use everturn_core::Context;
use tokio_util::sync::CancellationToken;

/// Lets whoever carries an invocation detach it, as if its client had asked for that; an extension of the context.
///
/// A server that must end gives its turns this, and with it time to end elsewhere: the client is answered with the
/// pending snapshot, which holds what the run needs to be taken up. It is for agents that can be detached; one that
/// cannot fails its invocation instead.
///
/// ```
/// use std::sync::Arc;
///
/// use everturn_agent::HandOff;
/// use everturn_core::Context;
/// use tokio_util::sync::CancellationToken;
///
/// let ending = CancellationToken::new();
/// let context = Context::new().with_extension(Arc::new(HandOff::when(ending.clone())));
/// // … run agents in the context, and when the time has come:
/// ending.cancel();
/// # let _ = context;
/// ```
pub struct HandOff(CancellationToken);

impl HandOff {
    /// Detaches when the token is cancelled.
    pub fn when(token: CancellationToken) -> Self {
        Self(token)
    }

    /// Waits until whoever carries the invocation detaches it; for ever if nobody can.
    pub(crate) fn requested(context: &Context) -> impl Future<Output = ()> + Send + use<> {
        let hand_off = context.extension::<Self>();
        async move {
            match hand_off {
                Some(hand_off) => hand_off.0.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }
}

impl fmt::Debug for HandOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOff")
            .field("requested", &self.0.is_cancelled())
            .finish()
    }
}
