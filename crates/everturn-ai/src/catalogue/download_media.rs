//! Media behind URLs, fetched before the model sees it.

use async_trait::async_trait;
use everturn_core::HandlerResult;

use crate::{MediaDownload, MediaFetcher, Middleware, ModelCall, ModelResponse, NextModel};

/// Fetches the media behind `http` URLs and gives it to the model inline.
///
/// Media over the limit fails the call: cut media is worse than none. Who writes the messages decides what is fetched,
/// so a program that takes messages from strangers should give a fetcher, or a [filter](MediaDownload::filter), that
/// refuses addresses of its own network.
#[derive(Debug, Clone)]
pub struct DownloadMedia(MediaDownload);

impl DownloadMedia {
    /// Fetches with `fetcher`, up to the default size.
    pub fn new(fetcher: impl MediaFetcher) -> Self {
        Self(MediaDownload::new(fetcher))
    }
}

/// With all the settings that a download has.
impl From<MediaDownload> for DownloadMedia {
    fn from(download: MediaDownload) -> Self {
        Self(download)
    }
}

#[async_trait]
impl Middleware for DownloadMedia {
    async fn model(&self, mut call: ModelCall, next: NextModel) -> HandlerResult<ModelResponse> {
        call.request = call.context.guard(self.0.apply(call.request)).await?;
        Ok(next.run(call).await?)
    }
}

#[cfg(feature = "download")]
pub(super) use self::http::HttpDownload;

#[cfg(feature = "download")]
mod http {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::DownloadMedia;
    use crate::{HttpMediaFetcher, MediaDownload};

    /// How media is downloaded when the middleware is used by name.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    pub(in crate::catalogue) struct HttpDownload {
        /// The largest download, in bytes.
        max_bytes: Option<usize>,
    }

    impl From<HttpDownload> for DownloadMedia {
        fn from(config: HttpDownload) -> Self {
            let download = MediaDownload::new(HttpMediaFetcher::default());
            match config.max_bytes {
                Some(max_bytes) => download.max_bytes(max_bytes).into(),
                None => download.into(),
            }
        }
    }
}
