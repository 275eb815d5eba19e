//! What the plugins of all providers have in common.

/// Implements [`Plugin`](everturn_core::Plugin) and the builder methods for a plugin whose field `service` is
/// a [`Service`](super::Service) and whose field `listing` is a [`Listing`](crate::listing::Listing).
/// `normalise` converts the base URL.
///
/// The plugin has two methods: `model` returns the model of a name, and `fetch` the
/// [entries](crate::listing::Entry) of its list. `embedder` returns the embedder of a name, if the provider
/// has any.
macro_rules! provider_plugin {
    ($plugin:ty, base_url: $normalise:expr $(, embedder: $embedder:expr)?) => {
        impl $plugin {
            fn action(
                &self,
                action_type: &everturn_core::ActionType,
                id: &str,
            ) -> Option<std::sync::Arc<dyn everturn_core::DynAction>> {
                if *action_type == everturn_core::ActionType::MODEL {
                    let name = format!("{}/{id}", self.service.provider());
                    return Some(std::sync::Arc::new(everturn_ai::model_action(name, self.model(id))));
                }
                $(if *action_type == everturn_core::ActionType::EMBEDDER {
                    let embedder: fn(&Self, &str) -> everturn_ai::EmbedderAction = $embedder;
                    return Some(std::sync::Arc::new(embedder(self, id)));
                })?
                None
            }

            /// Returns the names of the listed models that can chat, without the plugin's prefix. The list is
            /// kept for five minutes.
            ///
            /// # Errors
            /// The provider's error.
            pub async fn chat_models(&self) -> everturn_core::Result<Vec<String>> {
                let listed = self.listing.get(self.fetch()).await?;
                let chats = listed
                    .iter()
                    .filter(|entry| entry.kind() == Some(everturn_core::ActionType::MODEL));
                Ok(chats.map(|entry| entry.id().to_owned()).collect())
            }

            /// Sends requests to another address, such as a proxy or a compatible server.
            pub fn base_url(mut self, base_url: impl AsRef<str>) -> Self {
                let normalise: fn(&str) -> String = $normalise;
                self.service = self.service.with_base_url(&normalise(base_url.as_ref()));
                self
            }

            /// Adds a header to every request. Its value is never printed.
            pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
                self.service = self.service.with_header(name.as_ref(), value.as_ref());
                self
            }

            /// Sets how long the provider may be silent: before the first byte of a response (default: five
            /// minutes) and between two bytes of it (two minutes). A whole call is limited only by the
            /// deadline of its context.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.service = self.service.with_timeout(timeout);
                self
            }

            /// Sets the number of retries for a request that fails before the first byte of its response, if
            /// a retry can help; two by default.
            pub fn max_retries(mut self, most: u32) -> Self {
                self.service = self.service.with_max_retries(most);
                self
            }

            /// Sets the HTTP client, with its proxies, certificates and limits. It should not follow
            /// redirects, because the key would be sent along.
            pub fn client(mut self, client: reqwest::Client) -> Self {
                self.service = self.service.with_client(client);
                self
            }
        }

        impl everturn_core::Plugin for $plugin {
            fn name(&self) -> &str {
                self.service.provider()
            }

            fn check(&self) -> everturn_core::HandlerResult<()> {
                Ok(self.service.check()?)
            }

            fn resolve<'a>(
                &'a self,
                action_type: &'a everturn_core::ActionType,
                id: &'a str,
            ) -> futures::future::BoxFuture<
                'a,
                everturn_core::HandlerResult<Option<std::sync::Arc<dyn everturn_core::DynAction>>>,
            > {
                Box::pin(std::future::ready(Ok(self.action(action_type, id))))
            }

            fn list(
                &self,
            ) -> futures::future::BoxFuture<'_, everturn_core::HandlerResult<Vec<everturn_core::Descriptor>>>
            {
                Box::pin(async {
                    // Models work without a list.
                    let listed = self.listing.get(self.fetch()).await.unwrap_or_else(|error| {
                        tracing::debug!(provider = self.service.provider(), %error, "the models cannot be listed");
                        Vec::new()
                    });
                    let actions = listed
                        .iter()
                        .filter_map(|entry| self.action(&entry.kind()?, entry.id()));
                    Ok(actions.map(|action| action.descriptor().clone()).collect())
                })
            }
        }
    };
}
pub(crate) use provider_plugin;
