//! The headers of every request.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use everturn_agent::IdempotencyKey;
use everturn_core::{Context, Error, HandlerResult, RequestId, Result, TraceParent};
use futures::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Requests Everturn's additions to Genkit's protocol; other servers ignore it.
const EXTENSIONS: HeaderName = HeaderName::from_static("x-everturn-extensions");

type Provider = dyn Fn(Context) -> BoxFuture<'static, HandlerResult<HeaderMap>> + Send + Sync;

/// The fixed headers, and the provider that is called before each request.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    fixed: HeaderMap,
    provider: Option<Arc<Provider>>,
}

impl Headers {
    /// Adds a fixed header.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is not a valid header.
    pub(crate) fn insert(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong =
            |what| Error::invalid_argument(format!("'{name}' is not a header: its {what} is not allowed"));
        let parsed: HeaderName = name.parse().map_err(|_| wrong("name"))?;
        let mut value: HeaderValue = value.parse().map_err(|_| wrong("value"))?;
        // Most headers set by hand are credentials, which must not appear in debug output.
        value.set_sensitive(true);
        self.fixed.insert(parsed, value);
        Ok(())
    }

    pub(crate) fn set_provider<F, Fut>(&mut self, provider: F)
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<HeaderMap>> + Send + 'static,
    {
        self.provider = Some(Arc::new(move |context| Box::pin(provider(context))));
    }

    /// Returns the headers of one request.
    ///
    /// # Errors
    /// The error of the provider.
    pub(crate) async fn get(&self, context: &Context) -> Result<HeaderMap> {
        let mut headers = self.fixed.clone();
        if let Some(provider) = &self.provider {
            let provided = provider(context.clone()).await?;
            for name in provided.keys() {
                headers.remove(name);
            }
            for (name, value) in &provided {
                headers.append(name, value.clone());
            }
        }
        headers.entry(EXTENSIONS).or_insert(HeaderValue::from_static("1"));
        for (name, value) in correlation(context) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.entry(name).or_insert(value);
            }
        }
        Ok(headers)
    }
}

/// Returns the headers that correlate the server's spans and log lines with the caller's: those of the
/// current span, or else of the context in which the chat was opened.
fn correlation(context: &Context) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if let Some(parent) = TraceParent::current().or_else(|| TraceParent::of(context)) {
        headers.push(("traceparent", parent.to_string()));
        headers.extend(parent.state().map(|state| ("tracestate", state.to_owned())));
    }
    let request = Context::current()
        .extension::<RequestId>()
        .or_else(|| context.extension::<RequestId>());
    headers.extend(request.map(|request| ("x-request-id", request.to_string())));
    // A request may contain several calls, so each call has a separate key.
    let key = context.extension::<IdempotencyKey>();
    let key = key.map_or_else(RequestId::random, |key| {
        RequestId::given(key.as_str()).unwrap_or_else(RequestId::random)
    });
    headers.push(("idempotency-key", key.to_string()));
    headers
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers")
            .field("fixed", &self.fixed.keys())
            .field("provided", &self.provider.is_some())
            .finish()
    }
}
