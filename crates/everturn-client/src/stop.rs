//! Stopping calls whose streams a server keeps.
//!
//! The call continues when its client disconnects, so a client has to stop it explicitly.

use std::sync::Arc;

use everturn_core::{Context, Error, Result};
use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::runtime::Handle;

use crate::client::Settings;
use crate::event_stream::STREAM_ID;

impl Settings {
    /// Requests that the server stop the work behind a stream.
    ///
    /// # Errors
    /// `NOT_FOUND` if the server has no such stream or cannot stop streams; the server's own error.
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

/// Stops the work behind a stream on drop, unless it is disarmed.
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

    /// Marks the stream as ended, so that drop does nothing.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // `drop` cannot wait. If the request fails, the work continues to its end.
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
