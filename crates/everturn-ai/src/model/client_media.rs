//! Media that a conversation with a client refers to.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use everturn_core::{Context, Error, Result};
use parking_lot::Mutex;

use super::fetch_rules::{FetchBudget, FetchRules};
use super::{FetchedMedia, MediaFetcher};
use crate::{Feature, History};

/// The media of a conversation with a client during one turn: the rules for downloads, and the results.
///
/// An extension of the turn's context. It governs every URL of the conversation at the start of the turn,
/// regardless of the message's author, and every URL with a text of the client in it. All other URLs come
/// from the application.
pub struct ClientMedia {
    /// The setting that allows downloads, for errors.
    setting: String,
    conversation: History,
    urls: OnceLock<HashSet<String>>,
    /// Texts of the client that the application may use in URLs.
    texts: Vec<String>,
    /// `None` if nothing is fetched.
    budget: Option<FetchBudget>,
    fetched: Mutex<HashMap<String, Arc<FetchedMedia>>>,
}

impl ClientMedia {
    /// Adds the media of a conversation to the context of a turn. `setting` is the name of the setting with
    /// the `rules`, for errors; without rules nothing is fetched. `texts` are the client's, other than its
    /// messages: a URL that contains one of them is the client's, too.
    pub fn enter(
        context: Context,
        conversation: &History,
        mut texts: Vec<String>,
        rules: Option<&FetchRules>,
        setting: &str,
    ) -> Context {
        texts.retain(|text| !text.is_empty());
        if texts.is_empty() && conversation.next_with(Feature::Media, 0).is_none() {
            return context;
        }
        context.with_extension(Arc::new(Self {
            setting: setting.to_owned(),
            conversation: conversation.clone(),
            urls: OnceLock::new(),
            texts,
            budget: rules.map(|rules| FetchBudget::for_client(rules.clone())),
            fetched: Mutex::default(),
        }))
    }

    /// Returns whether a URL is part of the conversation, or made from a text of the client.
    pub(super) fn concerns(&self, url: &str) -> bool {
        let urls = self.urls.get_or_init(|| {
            let conversation = &self.conversation;
            let mut urls = HashSet::new();
            let mut start = 0;
            while let Some(index) = conversation.next_with(Feature::Media, start) {
                let media = conversation
                    .get(index)
                    .into_iter()
                    .flat_map(crate::Message::media);
                urls.extend(media.map(|media| media.url.clone()));
                start = index + 1;
            }
            urls
        });
        urls.contains(url) || self.texts.iter().any(|text| url.contains(text))
    }

    /// Returns how long fetching may take.
    pub(super) fn time(&self) -> Option<Duration> {
        self.budget.as_ref().map(|budget| budget.rules().total_time())
    }

    /// Fetches a URL of the conversation, or returns the result of an earlier fetch in the turn.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the URL may not be fetched; the fetcher's error, whose public text does not
    /// contain its cause.
    pub(super) async fn fetch(
        &self,
        fetcher: &dyn MediaFetcher,
        url: &str,
        max_bytes: usize,
    ) -> Result<Arc<FetchedMedia>> {
        let budget = self.budget.as_ref().ok_or_else(|| self.refused())?;
        let known = self.fetched().get(url).cloned();
        if let Some(media) = known {
            return Ok(media);
        }
        let fetch = budget.begin(url, max_bytes)?;
        let media = fetcher.fetch(&fetch).await.map_err(|error| {
            let error = Error::from(error);
            match error.public_message() {
                Some(_) => error,
                None => error.with_public_message("the media could not be fetched"),
            }
        })?;
        fetch.finish(media.bytes.len())?;
        let media = Arc::new(media);
        self.fetched().insert(url.to_owned(), Arc::clone(&media));
        Ok(media)
    }

    fn fetched(&self) -> parking_lot::MutexGuard<'_, HashMap<String, Arc<FetchedMedia>>> {
        self.fetched.lock()
    }

    fn refused(&self) -> Error {
        let setting = &self.setting;
        Error::invalid_argument(format!(
            "no media is fetched for callers: send the content as a 'data:' URL, or allow its host with {setting}"
        ))
        .with_public()
    }
}

everturn_core::opaque_debug!(ClientMedia, budget);
