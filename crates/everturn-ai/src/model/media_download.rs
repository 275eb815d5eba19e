//! Downloading media behind URLs and inlining it for a model that does not accept URLs.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everturn_core::offload::{HEAVY, offload};
use everturn_core::{Context, Error, HandlerResult, Result};
use futures::future::{BoxFuture, try_join_all};

use super::client_media::ClientMedia;
use super::fetch_rules::{Fetch, FetchBudget, FetchRules};
use crate::{Feature, Media, Message, ModelRequest, Part, PartKind};

const DEFAULT_MAX_BYTES: usize = 20 * 1024 * 1024;

/// Fetches the content behind a URL.
pub trait MediaFetcher: Send + Sync + 'static {
    /// Fetches a URL, whose scheme and host were checked.
    ///
    /// Fails if the content is unavailable or larger than [allowed](Fetch::max_bytes): truncated media is
    /// worse than none. The fetcher checks addresses and redirects against [the rules](Fetch::rules), as
    /// [`HttpMediaFetcher`](crate::HttpMediaFetcher) does, and [counts](Fetch::take) what arrives.
    fn fetch<'a>(&'a self, fetch: &'a Fetch<'a>) -> BoxFuture<'a, HandlerResult<FetchedMedia>>;
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

    everturn_core::setters! {
        /// Sets the size above which a download fails.
        pub fn max_bytes(mut self, max_bytes: usize) { self.max_bytes = max_bytes }

        /// Fetches only media for which `filter` returns `true`.
        pub fn filter(mut self, filter: impl Fn(&Media) -> bool + Send + Sync + 'static) {
            self.filter = Arc::new(filter);
        }
    }

    /// Inlines the media behind `http` and `https` URLs of a request as `data:` URLs.
    ///
    /// Inside an agent's turn, URLs of the conversation are fetched as the agent allows its clients, once per
    /// turn. All other URLs are the program's, and fetched by the [`FetchRules`] that are a value of the
    /// application.
    ///
    /// # Errors
    /// The fetcher's error, with the URL; `INVALID_ARGUMENT` for a URL that may not be fetched, and for too
    /// many or too large ones; `DEADLINE_EXCEEDED` if fetching takes too long.
    pub async fn apply(&self, request: ModelRequest, context: &Context) -> Result<ModelRequest> {
        let mut fetched = HashMap::new();
        let mut start = 0;
        while let Some(index) = request.messages.next_with(Feature::Media, start) {
            let media = request.messages.get(index).into_iter().flat_map(Message::media);
            let wanted = media.filter(|media| self.wants(media));
            fetched.extend(wanted.map(|media| (media.url.clone(), None)));
            start = index + 1;
        }
        if fetched.is_empty() {
            return Ok(request);
        }
        self.fetch_all(&mut fetched, context).await?;
        let bytes: usize = fetched.values().flatten().map(|media| media.bytes.len()).sum();
        let this = self.clone();
        let inline = move || this.inline_all(request, &fetched);
        Ok(if bytes > HEAVY {
            offload(inline).await
        } else {
            inline()
        })
    }

    fn inline_all(
        &self,
        mut request: ModelRequest,
        fetched: &HashMap<String, Option<Arc<FetchedMedia>>>,
    ) -> ModelRequest {
        let mut start = 0;
        while let Some(index) = request.messages.next_with(Feature::Media, start) {
            if let Some(message) = request.messages.get(index)
                && message.media().any(|media| self.wants(media))
            {
                let content = message.content().iter().map(|part| self.inlined(part, fetched));
                let inlined = message.clone().with_content(content.collect::<Vec<_>>());
                request.messages.replace(index, inlined);
            }
            start = index + 1;
        }
        request
    }

    fn wants(&self, media: &Media) -> bool {
        media.url.starts_with("http") && (self.filter)(media)
    }

    /// Fetches all URLs concurrently.
    async fn fetch_all(
        &self,
        wanted: &mut HashMap<String, Option<Arc<FetchedMedia>>>,
        context: &Context,
    ) -> Result<()> {
        let by_client = context.extension::<ClientMedia>();
        let rules = context.find_dep::<FetchRules>();
        let rules = rules.map_or_else(FetchRules::of_program, |rules| FetchRules::clone(&rules));
        let own = FetchBudget::new(rules);
        let fetching = wanted.iter_mut().map(async |(url, content)| {
            let fetched = match &by_client {
                Some(media) if media.concerns(url) => media.fetch(&*self.fetcher, url, self.max_bytes).await,
                _ => self.fetch(&own, url).await,
            };
            *content =
                Some(fetched.map_err(|error| error.context(format_args!("cannot download media '{url}'")))?);
            Ok(())
        });
        let time = by_client.as_ref().and_then(|media| media.time());
        let time = time.unwrap_or_else(|| own.rules().total_time());
        let in_time = tokio::time::timeout(time, try_join_all(fetching)).await;
        in_time.unwrap_or_else(|_| {
            let message = format!("media could not be fetched within {} seconds", time.as_secs_f64());
            Err(Error::deadline_exceeded(message).with_public())
        })?;
        Ok(())
    }

    /// Fetches a URL of the program.
    async fn fetch(&self, budget: &FetchBudget, url: &str) -> Result<Arc<FetchedMedia>> {
        let fetch = budget.begin(url, self.max_bytes)?;
        let fetched = self.fetcher.fetch(&fetch).await?;
        fetch.finish(fetched.bytes.len())?;
        Ok(Arc::new(fetched))
    }

    fn inlined(&self, part: &Part, fetched: &HashMap<String, Option<Arc<FetchedMedia>>>) -> Part {
        let wanted = part.as_media().filter(|media| self.wants(media));
        let content = wanted.and_then(|media| Some((media, fetched.get(&media.url)?.as_ref()?)));
        let Some((media, fetched)) = content else {
            return part.clone();
        };
        // The author of the message is more reliable than a server that guesses.
        let content_type = media.content_type.as_ref().or(fetched.content_type.as_ref());
        let mut url = format!("data:{};base64,", content_type.map_or("", String::as_str));
        STANDARD.encode_string(&fetched.bytes, &mut url);
        let inlined = Media {
            content_type: content_type.filter(|kind| !kind.is_empty()).cloned(),
            url,
            ..media.clone()
        };
        part.clone().with_kind(PartKind::Media(Box::new(inlined)))
    }
}

everturn_core::opaque_debug!(MediaDownload, max_bytes);
