//! Starting and ending the export.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use everturn_core::{Error, ListeningToSpans, Result, listen_to_spans};
use opentelemetry_otlp::{LogExporter, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::LogExporter as _;
use opentelemetry_sdk::trace::SpanExporter as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::log_lines::LogLayer;
use crate::queue::Queue;
use crate::span_data::Redaction;
use crate::worker::{Running, Worker};

/// The timeout of a request to the collector.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long shutdown waits for the last spans.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Exports the spans of this process, and its log lines from `INFO` up, until the returned guard is dropped.
///
/// The standard OpenTelemetry variables configure the collector and the service name. If `tracing` has no
/// subscriber yet, this installs one that prints lines to standard error and exports them. A program with its
/// own subscriber adds [`Telemetry::log_layer`] to it.
///
/// # Errors
/// As [`Otlp::start`].
pub fn start() -> Result<Telemetry> {
    let telemetry = Otlp::new().start()?;
    let level = tracing_subscriber::filter::LevelFilter::INFO;
    let printed = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // An existing subscriber stays installed.
    let _ = tracing_subscriber::registry()
        .with(level)
        .with(printed)
        .with(telemetry.log_layer())
        .try_init();
    Ok(telemetry)
}

/// The variable that turns the export of log lines off, by the value `none`.
const LOGS_EXPORTER: &str = "OTEL_LOGS_EXPORTER";

/// The settings of the export; the environment supplies defaults.
///
/// ```no_run
/// use everturn_otlp::Otlp;
///
/// # fn main() -> everturn_core::Result<()> {
/// let _telemetry = Otlp::new()
///     .service("support-desk")
///     .endpoint("http://collector:4318")
///     .content(|_attribute, json| Some(json.replace("hunter2", "…")))
///     .start()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Otlp {
    endpoint: Option<String>,
    service: Option<String>,
    redaction: Option<Redaction>,
    without_logs: bool,
}

impl Otlp {
    /// Creates settings with all defaults from the environment.
    pub fn new() -> Self {
        Self::default()
    }

    everturn_core::setters! {
        /// Sets the address of the collector, without the path: `http://localhost:4318`.
        pub fn endpoint(mut self, url: impl Into<String>) { self.endpoint = Some(url.into()) }

        /// Sets the service name of the program's spans.
        pub fn service(mut self, name: impl Into<String>) { self.service = Some(name.into()) }

        /// Exports the inputs and outputs of calls, which are omitted by default because they contain user
        /// data.
        ///
        /// `redact` receives the name of the attribute (`genkit:input`, `genkit:init`, `genkit:output`,
        /// `genkit:metadata:context`) and its JSON, and returns the text to export; `None` omits it.
        pub fn content(mut self, redact: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
            self.redaction = Some(Arc::new(redact));
        }

        /// Exports no log lines, for collectors that accept only spans, such as Jaeger. The variable
        /// `OTEL_LOGS_EXPORTER=none` does the same.
        pub fn without_logs(mut self) { self.without_logs = true }
    }

    /// Exports the spans of this process until the returned guard is dropped. The subscriber of `tracing` is
    /// not changed.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the collector's address is invalid, `RESOURCE_EXHAUSTED` if no thread can be
    /// started.
    pub fn start(self) -> Result<Telemetry> {
        let unusable = |error: &dyn fmt::Display| {
            Error::invalid_argument(format!("telemetry cannot be exported: {error}"))
        };
        everturn_core::install_tls_provider();
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .build()
            .map_err(|error| unusable(&error))?;
        let resource = match self.service {
            Some(name) => Resource::builder().with_service_name(name).build(),
            None => Resource::builder().build(),
        };
        let base = self.endpoint.as_deref().map(|url| url.trim_end_matches('/'));
        let spans = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone());
        let spans = match base {
            Some(base) => spans.with_endpoint(format!("{base}/v1/traces")),
            None => spans,
        };
        let lines = LogExporter::builder().with_http().with_http_client(client);
        let lines = match base {
            Some(base) => lines.with_endpoint(format!("{base}/v1/logs")),
            None => lines,
        };
        let mut spans = spans.build().map_err(|error| unusable(&error))?;
        let mut lines = lines.build().map_err(|error| unusable(&error))?;
        spans.set_resource(&resource);
        lines.set_resource(&resource);
        let is_off = std::env::var(LOGS_EXPORTER).is_ok_and(|exporter| exporter == "none");
        let (queue, items) = Queue::new(self.redaction.is_some(), !self.without_logs && !is_off);
        let worker = Worker {
            items,
            counts: Arc::clone(queue.counts()),
            spans,
            lines,
            redaction: self.redaction,
        };
        Ok(Telemetry {
            listening: Some(listen_to_spans(Arc::new(queue.clone()))),
            running: worker.start()?,
            queue,
        })
    }
}

everturn_core::opaque_debug!(Otlp, endpoint, service, without_logs);

/// The running export. Dropping it sends the queued items, for at most five seconds, and ends the export.
#[must_use = "dropping it ends the export"]
pub struct Telemetry {
    listening: Option<ListeningToSpans>,
    queue: Queue,
    running: Running,
}

impl Telemetry {
    /// Returns a layer that exports log lines, each with its span.
    pub fn log_layer(&self) -> LogLayer {
        LogLayer(self.queue.clone())
    }

    /// Returns the number of spans and log lines that were not exported because the queue was full or the
    /// collector rejected them.
    pub fn dropped(&self) -> u64 {
        self.queue.counts().dropped()
    }

    /// Waits until everything that ended before was sent or lost.
    pub async fn flush(&self) {
        if let Some(sent) = self.queue.flush().await {
            // The thread ends only when this guard is dropped.
            let _ = sent.await;
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.listening = None;
        self.running.end(LAST_WORDS);
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}
