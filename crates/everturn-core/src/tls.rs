/// Selects [ring](https://docs.rs/ring) as the cryptography of TLS in this process, unless the program has
/// installed another `rustls::crypto::CryptoProvider`. Does nothing without the feature `tls`.
///
/// Everturn's own HTTP clients call it, and so does the builder of an application. A program that creates a
/// `reqwest::Client` before these calls it first, or enables the feature `rustls` of `reqwest`: building a
/// client without a provider panics.
pub fn install_tls_provider() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has installed one in between.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
