//! Fetching media behind URLs and inlining it for a model that cannot fetch it itself.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everturn_core::{Error, HandlerResult, Result};
use futures::future::{BoxFuture, try_join_all};

use crate::{Feature, Media, Message, ModelRequest, Part, PartKind};

const DEFAULT_MAX_BYTES: usize = 20 * 1024 * 1024;

/// Fetches the content behind a URL.
pub trait MediaFetcher: Send + Sync + 'static {
    /// Fetches `url`, which has the scheme `http` or `https`.
    ///
    /// Fails if the content is unavailable or larger than `max_bytes`: truncated media is worse than none.
    fn fetch<'a>(&'a self, url: &'a str, max_bytes: usize) -> BoxFuture<'a, HandlerResult<FetchedMedia>>;
}

/// The content behind a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedMedia {
    /// The MIME type that the server reported.
    pub content_type: Option<String>,
    /// The content.
    pub bytes: Vec<u8>,
}

type Filter = dyn Fn(&Media) -> bool + Send + Sync;

/// The settings for fetching media behind URLs. Cloning is cheap.
#[derive(Clone)]
pub struct MediaDownload {
    fetcher: Arc<dyn MediaFetcher>,
    max_bytes: usize,
    filter: Arc<Filter>,
}

impl MediaDownload {
    /// Creates settings that download all media of up to 20 MiB.
    pub fn new(fetcher: impl MediaFetcher) -> Self {
        Self {
            fetcher: Arc::new(fetcher),
            max_bytes: DEFAULT_MAX_BYTES,
            filter: Arc::new(|_| true),
        }
    }

    /// Sets the size above which a download fails.
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Fetches only media for which `filter` returns `true`.
    pub fn filter(self, filter: impl Fn(&Media) -> bool + Send + Sync + 'static) -> Self {
        Self {
            filter: Arc::new(filter),
            ..self
        }
    }

    /// Inlines the media behind `http` URLs of a request as `data:` URLs.
    ///
    /// # Errors
    /// The fetcher's error, with the URL.
    pub async fn apply(&self, mut request: ModelRequest) -> Result<ModelRequest> {
        let mut start = 0;
        while let Some(index) = request.messages.next_with(Feature::Media, start) {
            if let Some(message) = request
                .messages
                .get(index)
                .filter(|message| self.concerns(message))
            {
                let inlined = self.inlined(message).await?;
                request.messages.replace(index, inlined);
            }
            start = index + 1;
        }
        Ok(request)
    }

    fn concerns(&self, message: &Message) -> bool {
        message.media().any(|media| self.wants(media))
    }

    fn wants(&self, media: &Media) -> bool {
        media.url.starts_with("http") && (self.filter)(media)
    }

    async fn inlined(&self, message: &Message) -> Result<Message> {
        // The parts of one message at the same time; messages one after the other, which bounds the memory.
        let content = try_join_all(message.content().iter().map(|part| self.inlined_part(part))).await?;
        Ok(message.clone().with_content(content))
    }

    async fn inlined_part(&self, part: &Part) -> Result<Part> {
        let Some(media) = part.as_media().filter(|media| self.wants(media)) else {
            return Ok(part.clone());
        };
        let fetched = self.fetcher.fetch(&media.url, self.max_bytes).await;
        let fetched = fetched.map_err(|error| {
            Error::from(error).context(format_args!("cannot download media '{}'", media.url))
        })?;
        // The author of the message knows better than a server that guesses.
        let content_type = media
            .content_type
            .clone()
            .or(fetched.content_type)
            .unwrap_or_default();
        let url = format!("data:{content_type};base64,{}", STANDARD.encode(&fetched.bytes));
        let content_type = (!content_type.is_empty()).then_some(content_type);
        let inlined = Media {
            content_type,
            url,
            ..media.clone()
        };
        Ok(part.clone().with_kind(PartKind::Media(Box::new(inlined))))
    }
}

impl fmt::Debug for MediaDownload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MediaDownload")
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
