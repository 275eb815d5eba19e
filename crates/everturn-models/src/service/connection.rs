//! The builder methods of every provider's plugin.

/// Generates the builder methods of a plugin whose field `service` is a [`Service`](super::Service).
///
/// A plugin that normalises the address itself passes a function for it: `connection_methods!(Type, base_url:
/// path)`.
macro_rules! connection_methods {
    ($plugin:ty, base_url: $normalise:expr) => {
        impl $plugin {
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
    };
}
pub(crate) use connection_methods;
