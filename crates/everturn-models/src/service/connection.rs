//! The methods that every provider's plugin has.

/// Writes the builder methods of a plugin whose field `service` is a [`Service`](super::Service).
///
/// `base_url` is left to the plugin where it is read in a way of its own: `connection_methods!(Type, base_url: path)`
/// names a function from the given address to the one that is used.
macro_rules! connection_methods {
    ($plugin:ty, base_url: $normalise:expr) => {
        impl $plugin {
            /// Sends requests to another address, such as a proxy or a compatible server.
            pub fn base_url(mut self, base_url: impl AsRef<str>) -> Self {
                let normalise: fn(&str) -> String = $normalise;
                self.service = self.service.with_base_url(&normalise(base_url.as_ref()));
                self
            }

            /// Adds a header to every request. Its value is not printed anywhere.
            pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
                self.service = self.service.with_header(name.as_ref(), value.as_ref());
                self
            }

            /// Limits how long the provider may be silent: before the first byte of an answer (five minutes unless said
            /// otherwise) and between two bytes of it (two minutes). A whole call is limited by the deadline of its
            /// context alone.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.service = self.service.with_timeout(timeout);
                self
            }

            /// Makes a request again up to so many times, twice unless said otherwise, if it fails before the first byte
            /// of its answer and trying again can help.
            pub fn max_retries(mut self, most: u32) -> Self {
                self.service = self.service.with_max_retries(most);
                self
            }

            /// Uses an HTTP client of one's own, with its proxies, certificates and limits. It should follow no
            /// redirects: a key would go along.
            pub fn client(mut self, client: reqwest::Client) -> Self {
                self.service = self.service.with_client(client);
                self
            }
        }
    };
}
pub(crate) use connection_methods;
