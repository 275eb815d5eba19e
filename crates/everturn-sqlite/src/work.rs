//! Work for the thread that writes: prepared without a lock, then written in a transaction that it shares
//! with others.

use everturn_core::{Error, Result};
use tokio::sync::oneshot;

use crate::fault::Outcome;
use crate::prepare::Preparing;
use crate::write::Writing;

/// The result of preparing.
pub(crate) enum Prepared<P, T> {
    /// There is something to write, which holds about so many bytes.
    Write(P, usize),
    /// There is nothing to write, and this is the result.
    Done(T),
}

/// Work with the caller that waits for its result.
pub(crate) trait Work: Send {
    /// Reads and computes what to write. Returns how many bytes that holds; `None` if there is nothing to
    /// write.
    fn prepare(&mut self, preparing: &mut Preparing<'_>) -> Outcome<Option<usize>>;
    /// Writes the last prepared data. It may be called again after another `prepare`.
    fn write(&mut self, writing: &mut Writing<'_>) -> Outcome<()>;
    /// Sends the result to the caller, after the commit or after it failed.
    fn finish(self: Box<Self>, committed: Result<()>);
}

struct Task<P, T, F, G> {
    prepare: F,
    write: G,
    prepared: Option<P>,
    result: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

/// Returns work whose result arrives in a channel.
pub(crate) fn task<P, T, F, G>(prepare: F, write: G) -> (Box<dyn Work>, oneshot::Receiver<Result<T>>)
where
    P: Send + 'static,
    T: Send + 'static,
    F: FnMut(&mut Preparing<'_>) -> Outcome<Prepared<P, T>> + Send + 'static,
    G: FnMut(&mut Writing<'_>, P) -> Outcome<T> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let task = Task {
        prepare,
        write,
        prepared: None,
        result: None,
        reply,
    };
    (Box::new(task), answer)
}

impl<P, T, F, G> Work for Task<P, T, F, G>
where
    P: Send,
    T: Send,
    F: FnMut(&mut Preparing<'_>) -> Outcome<Prepared<P, T>> + Send,
    G: FnMut(&mut Writing<'_>, P) -> Outcome<T> + Send,
{
    fn prepare(&mut self, preparing: &mut Preparing<'_>) -> Outcome<Option<usize>> {
        match (self.prepare)(preparing)? {
            Prepared::Write(prepared, bytes) => {
                self.prepared = Some(prepared);
                Ok(Some(bytes))
            }
            Prepared::Done(result) => {
                self.result = Some(result);
                Ok(None)
            }
        }
    }

    fn write(&mut self, writing: &mut Writing<'_>) -> Outcome<()> {
        let prepared = self
            .prepared
            .take()
            .expect("work is prepared before it is written");
        self.result = Some((self.write)(writing, prepared)?);
        Ok(())
    }

    fn finish(self: Box<Self>, committed: Result<()>) {
        let Self { result, reply, .. } = *self;
        let result = committed.and_then(|()| result.ok_or_else(|| Error::internal("a task did not run")));
        // The caller may have stopped waiting.
        let _ = reply.send(result);
    }
}
