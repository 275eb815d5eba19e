//! Stopping work whose stream a server keeps.
//!
//! Such work goes on when its client leaves. A client that wants it to end has to say so.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};
use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::runtime::Handle;

use crate::client::Settings;
use crate::event_stream::STREAM_ID;

impl Settings {
    /// Asks the server to stop the work behind a stream.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server does not know the stream, or does not stop any; what it refuses with.
    pub(crate) async fn stop(&self, url: &Url, stream_id: &str, context: &Context) -> Result<()> {
        let mut headers = self.headers.get(context).await?;
        headers.insert(
            STREAM_ID,
            HeaderValue::from_str(stream_id).map_err(Error::foreign)?,
        );
        let request = self.http.delete(url.clone()).headers(headers);
        self.answered(url, request)
            .await
            .map(drop)
            .map_err(|failed| failed.error)
    }
}

/// Stops the work behind a stream when it is dropped, unless it was told that the stream is over.
#[derive(Debug)]
pub(crate) struct StopOnDrop(Option<Work>);

#[derive(Debug)]
struct Work {
    settings: Arc<Settings>,
    url: Url,
    stream_id: Arc<str>,
    context: Context,
}

impl StopOnDrop {
    pub(crate) fn new(settings: &Arc<Settings>, url: &Url, stream_id: &Arc<str>, context: &Context) -> Self {
        Self(Some(Work {
            settings: Arc::clone(settings),
            url: url.clone(),
            stream_id: Arc::clone(stream_id),
            context: context.detached(),
        }))
    }

    /// There is nothing to stop any more.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Whoever drops cannot wait. A stop that does not get through leaves the work to its own end.
        if let Some(work) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                let stopping = work.settings.stop(&work.url, &work.stream_id, &work.context);
                let _ = tokio::time::timeout(work.settings.timeout, stopping).await;
            });
        }
    }
}
