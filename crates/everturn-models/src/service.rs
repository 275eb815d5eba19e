//! A provider's HTTP service: its address, credentials, timeouts and retries.

mod body;
mod connection;
mod failure;
mod key;
mod retries;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use everturn_core::{Context, Error, Result, Status, TraceParent};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use self::body::Body;
pub(crate) use self::connection::provider_plugin;
pub(crate) use self::failure::{Classify, Failure, sample};
pub use self::key::ApiKey;
pub(crate) use self::key::KeyHeader;
use self::retries::{Retries, Timeouts};

/// The part of an error's body that is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;
/// The largest response that is read as a whole.
const MAX_WHOLE_BYTES: usize = 64 * 1024 * 1024;

/// A provider's service. Cloning is cheap, and clones share their connections.
#[derive(Clone)]
pub(crate) struct Service {
    provider: Arc<str>,
    base_url: Arc<str>,
    key: Option<ApiKey>,
    key_header: KeyHeader,
    /// The unset variable in which the key was expected.
    missing_variable: Option<&'static str>,
    headers: HeaderMap,
    timeouts: Timeouts,
    retries: Retries,
    client: Arc<OnceLock<Client>>,
    classify: Classify,
    /// The mistake in the settings, if any.
    problem: Option<Error>,
}

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Call<'a> {
    /// The path behind the base URL, with its slash.
    pub(crate) path: Cow<'a, str>,
    /// The JSON to post; without one, the path is fetched.
    pub(crate) body: Option<Value>,
    /// Headers of this request alone.
    pub(crate) headers: HeaderMap,
    /// A key for this request alone.
    pub(crate) key: Option<ApiKey>,
}

impl<'a> Call<'a> {
    /// A request that posts JSON.
    pub(crate) fn post(path: impl Into<Cow<'a, str>>, body: impl Into<Value>) -> Self {
        Self {
            path: path.into(),
            body: Some(body.into()),
            ..Self::default()
        }
    }

    /// A request that fetches a path.
    pub(crate) fn get(path: impl Into<Cow<'a, str>>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }
}

impl Service {
    /// Creates the service of a provider with the name of its plugin.
    pub(crate) fn new(provider: &str, base_url: &str) -> Self {
        let service = Self {
            provider: provider.into(),
            base_url: "".into(),
            key: None,
            key_header: KeyHeader::Bearer,
            missing_variable: None,
            headers: HeaderMap::new(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            client: Arc::default(),
            classify: |_, _| {},
            problem: None,
        };
        service.with_base_url(base_url)
    }

    /// The name of the provider's plugin.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// The address, without a slash at its end.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Whether the address is on this machine, where services need no key.
    pub(crate) fn is_local(&self) -> bool {
        let url = Url::parse(&self.base_url).ok();
        url.as_ref().and_then(Url::host_str).is_some_and(is_loopback)
    }

    pub(crate) fn with_base_url(mut self, base_url: &str) -> Self {
        let trimmed = base_url.trim().trim_end_matches('/');
        match Url::parse(trimmed) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => {}
            _ => {
                self.problem = Some(Error::invalid_argument(format!(
                    "'{trimmed}' is no base URL for {}: it must begin with http:// or https://",
                    self.provider
                )));
            }
        }
        self.base_url = trimmed.into();
        self
    }

    pub(crate) fn with_key(self, key: Option<ApiKey>) -> Self {
        Self { key, ..self }
    }

    pub(crate) fn with_key_header(self, key_header: KeyHeader) -> Self {
        Self { key_header, ..self }
    }

    /// Sets the variable in which the key was expected, so that errors can name it.
    pub(crate) fn with_key_from(self, key: Option<&str>, variable: &'static str) -> Self {
        let key = key.map(ApiKey::new);
        Self {
            missing_variable: key.is_none().then_some(variable),
            key,
            ..self
        }
    }

    pub(crate) fn with_classify(self, classify: Classify) -> Self {
        Self { classify, ..self }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        match (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            (Ok(name), Ok(mut value)) => {
                // Many gateways expect their credentials in their own header.
                value.set_sensitive(true);
                self.headers.insert(name, value);
            }
            _ => {
                self.problem = Some(Error::invalid_argument(format!(
                    "'{name}' is no header for {}, or its value is none that a header may have",
                    self.provider
                )));
            }
        }
        self
    }

    /// Makes [`Service::check`] fail because of a mistake in the settings.
    pub(crate) fn with_problem(self, problem: Error) -> Self {
        let problem = Some(problem);
        Self { problem, ..self }
    }

    /// Sets how long the service may be silent, before its response and within it.
    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.first_byte = timeout;
        self.timeouts.between_bytes = timeout;
        self
    }

    pub(crate) fn with_max_retries(mut self, most: u32) -> Self {
        self.retries.most = most;
        self
    }

    pub(crate) fn with_client(self, client: Client) -> Self {
        Self {
            client: Arc::new(OnceLock::from(client)),
            ..self
        }
    }

    /// Checks the settings before the first request.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` that names the variable of a missing key, `INVALID_ARGUMENT` for an invalid
    /// setting.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        match self.missing_variable {
            Some(variable) if self.key.is_none() && !self.is_local() => {
                Err(Error::failed_precondition(format!(
                    "{} needs an API key: set the environment variable {variable}, or give the key in code",
                    self.provider
                )))
            }
            _ => Ok(()),
        }
    }

    /// Makes a request and waits for the first byte of its response. Failures before that byte are retried
    /// where that can help.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Body> {
        self.check()?;
        let body = call.body.as_ref().map(|body| body.to_string().into_bytes());
        let mut failures = 0;
        loop {
            let failure = match self.attempt(call, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            failures += 1;
            let pause = self.pause(failures, &failure);
            let error = failure.into_error(&self.provider, self.keys(call));
            let Some(pause) = pause else {
                return Err(error);
            };
            // Inside the span of the model call, this is an event of that span.
            tracing::warn!(
                provider = &*self.provider,
                attempt = failures,
                delay_ms = pause.as_millis(),
                status = %error.status(),
                %error,
                "asking the provider again"
            );
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns the pause before the next attempt; `None` if a retry cannot help or there is no time for it.
    fn pause(&self, failures: u32, failure: &Failure) -> Option<Duration> {
        if !failure.is_retryable {
            return None;
        }
        let pause = self
            .retries
            .pause(failures, failure.retry_after, fastrand::f64())?;
        let deadline = Context::current().deadline();
        let is_too_late = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
        (!is_too_late).then_some(pause)
    }

    async fn attempt(&self, call: &Call<'_>, body: Option<Vec<u8>>) -> Result<Body, Box<Failure>> {
        let request = self.request(call, body)?;
        let silent = |_| {
            let message = format!("no answer began within {:?}", self.timeouts.first_byte);
            // Another attempt would take as long.
            Box::new(Failure::new(Status::DeadlineExceeded, false, message))
        };
        let deadline = Instant::now() + self.timeouts.first_byte;
        let sent = timeout_at(deadline, request.send()).await.map_err(silent)?;
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(Box::new(self.refused(response).await));
        }
        let first = timeout_at(deadline, response.chunk()).await.map_err(silent)?;
        let first = first.map_err(|error| self.unreachable(&error))?;
        Ok(Body::new(
            response,
            first,
            self.timeouts.between_bytes,
            &self.provider,
            self.keys(call).cloned().collect(),
        ))
    }

    /// Returns the keys of a request, which errors must not contain.
    fn keys<'a>(&'a self, call: &'a Call<'_>) -> impl Iterator<Item = &'a ApiKey> {
        call.key.iter().chain(&self.key)
    }

    fn request(
        &self,
        call: &Call<'_>,
        body: Option<Vec<u8>>,
    ) -> Result<reqwest::RequestBuilder, Box<Failure>> {
        let client = self.client()?;
        let url = format!("{}{}", self.base_url, call.path);
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut headers = HeaderMap::new();
        if let Some(key) = call.key.as_ref().or(self.key.as_ref()) {
            let header = key.header(&self.key_header);
            let (name, value) = header.ok_or_else(|| {
                let message = "the API key holds characters that no key has";
                Box::new(Failure::new(Status::Unauthenticated, false, message))
            })?;
            headers.insert(name, value);
        }
        headers.extend(trace_headers());
        headers.extend(self.headers.clone());
        headers.extend(call.headers.clone());
        let request = client.request(method, url).headers(headers);
        Ok(match body {
            Some(body) => request.header(CONTENT_TYPE, "application/json").body(body),
            None => request,
        })
    }

    fn client(&self) -> Result<&Client, Box<Failure>> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        everturn_core::install_tls_provider();
        let client = Client::builder()
            .connect_timeout(self.timeouts.connect)
            // A key must not follow a redirect to another origin.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("everturn/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                let message = format!("no HTTP client can be made: {}", body::causes(&error));
                Box::new(Failure::new(Status::Internal, false, message))
            })?;
        Ok(self.client.get_or_init(|| client))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Box<Failure> {
        let message = format!("cannot reach {}: {}", self.origin(), body::causes(error));
        // A request that cannot be built fails on every attempt.
        let is_retryable = !error.is_builder();
        let status = if is_retryable {
            Status::Unavailable
        } else {
            Status::InvalidArgument
        };
        Box::new(Failure::new(status, is_retryable, message))
    }

    /// Returns the address without path and credentials.
    fn origin(&self) -> String {
        Url::parse(&self.base_url).map_or_else(
            |_| self.base_url.to_string(),
            |url| url.origin().ascii_serialization(),
        )
    }

    async fn refused(&self, mut response: Response) -> Failure {
        let mut body = Vec::new();
        // The rest of an error response is read only if it arrives at once.
        while body.len() < MAX_ERROR_BYTES
            && let Ok(Ok(Some(chunk))) = timeout(self.timeouts.connect, response.chunk()).await
        {
            body.extend_from_slice(&chunk);
        }
        Failure::answered(
            response.status().as_u16(),
            response.headers(),
            &body,
            self.classify,
        )
    }

    /// Makes a request whose response is one JSON value.
    ///
    /// # Errors
    /// As [`Service::call`]; `FAILED_PRECONDITION` if the response has another form.
    pub(crate) async fn json<T: DeserializeOwned>(&self, call: &Call<'_>) -> Result<T> {
        let mut body = self.call(call).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = body.chunk().await? {
            if bytes.len() + chunk.len() > MAX_WHOLE_BYTES {
                let message = format!("the answer is larger than {MAX_WHOLE_BYTES} bytes");
                return Err(body.broken(Status::FailedPrecondition, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            if let Ok(value) = serde_json::from_slice::<Value>(&bytes)
                && value.get("error").is_some_and(|error| !error.is_null())
            {
                return self.failure(&value, &body);
            }
            let text = sample(&String::from_utf8_lossy(&bytes));
            let message = format!("the answer is not what was asked for ({error}); it begins: {text}");
            body.broken(Status::FailedPrecondition, message)
        })
    }

    /// Returns the error that a JSON object describes: an event of a stream, or the body of a successful
    /// response.
    pub(crate) fn failure(&self, reported: &Value, body: &Body) -> Error {
        body.failed(Failure::reported(reported, self.classify))
    }
}

// Headers and clients may contain credentials, so they are omitted.
everturn_core::opaque_debug!(Service, provider, key);

/// Removes the version of the API from the end of an address, where the version is part of every path.
pub(crate) fn without_version(base_url: &str, version: &str) -> String {
    let trimmed = base_url.trim().trim_end_matches('/');
    trimmed.strip_suffix(version).unwrap_or(trimmed).to_owned()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare.ends_with(".localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns the headers that identify the span of the call, so that a self-hosted model server can continue
/// the trace.
fn trace_headers() -> HeaderMap {
    let Some(parent) = TraceParent::current() else {
        return HeaderMap::new();
    };
    let text = |value: &str| HeaderValue::from_str(value).ok();
    let named = text(&parent.to_string()).map(|value| (HeaderName::from_static("traceparent"), value));
    let state = parent.state().and_then(text);
    let state = state.map(|value| (HeaderName::from_static("tracestate"), value));
    named.into_iter().chain(state).collect()
}
