//! The thread that sends spans and lines. It has its own runtime, so it neither slows down the program's
//! runtime nor ends with it.

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::Duration;

use everturn_core::{Error, LogLine, Result};
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{LogExporter, SpanExporter};
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _};
use opentelemetry_sdk::trace::SpanExporter as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::log_lines::{EXPORTS, Records};
use crate::queue::{Counts, Item};
use crate::span_data::{Redaction, scope, span_data};

/// The maximum size of a batch.
const BATCH: usize = 512;

/// How long an item waits for its batch to fill.
const GATHERING: Duration = Duration::from_millis(200);

/// The interval of reports about losses.
const REPORT_EVERY: Duration = Duration::from_mins(1);

/// The parts that the thread uses.
pub(crate) struct Worker {
    pub(crate) items: mpsc::Receiver<Item>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) spans: SpanExporter,
    pub(crate) lines: LogExporter,
    pub(crate) redaction: Option<Redaction>,
}

/// The running thread.
pub(crate) struct Running {
    thread: Option<JoinHandle<()>>,
    /// Requests that the thread send the queued items and end.
    over: CancellationToken,
    ended: blocking::Receiver<()>,
}

impl Running {
    /// Makes the thread send the queued items and end, and waits for it, but no longer than `patience`.
    pub(crate) fn end(&mut self, patience: Duration) {
        self.over.cancel();
        if let Some(thread) = self.thread.take()
            && self.ended.recv_timeout(patience).is_ok()
        {
            // The thread has announced its end.
            let _ = thread.join();
        }
    }
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the operating system cannot start a thread or the runtime.
    pub(crate) fn start(self) -> Result<Running> {
        let none = |error: std::io::Error| {
            Error::resource_exhausted("no thread can be started to export telemetry").with_source(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(none)?;
        let over = CancellationToken::new();
        let (end, ended) = blocking::channel();
        let cancelled = over.clone();
        let thread = std::thread::Builder::new()
            .name("everturn-otlp".to_owned())
            .spawn(move || {
                EXPORTS.set(true);
                runtime.block_on(self.run(cancelled));
                let _ = end.send(());
            })
            .map_err(none)?;
        Ok(Running {
            thread: Some(thread),
            over,
            ended,
        })
    }

    async fn run(mut self, over: CancellationToken) {
        let mut sending = Sending {
            counts: Arc::clone(&self.counts),
            records: Records::new(),
            scope: scope(),
            reported: None,
            lost_before: 0,
        };
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_over = self.gather(&mut batch, &over).await;
            if batch.is_empty() && is_over {
                break;
            }
            sending.send(&self, &mut batch).await;
        }
        sending.report(true);
    }

    /// Collects a batch until it is full or the delay has passed; returns whether the queue is closed.
    async fn gather(&mut self, batch: &mut Vec<Item>, over: &CancellationToken) -> bool {
        let received = over.run_until_cancelled(self.items.recv_many(batch, BATCH)).await;
        if received.is_none() {
            // The queued items are still sent.
            self.items.close();
        }
        if received != Some(0) && received.is_some() {
            let until = Instant::now() + GATHERING;
            while batch.len() < BATCH && !batch.iter().any(|item| matches!(item, Item::Flush(_))) {
                let room = BATCH - batch.len();
                let more = over.run_until_cancelled(self.items.recv_many(batch, room));
                match tokio::time::timeout_at(until, more).await {
                    Ok(Some(count)) if count > 0 => {}
                    _ => break,
                }
            }
            return false;
        }
        while batch.len() < BATCH
            && let Ok(item) = self.items.try_recv()
        {
            batch.push(item);
        }
        true
    }
}

/// The state of the sender.
struct Sending {
    counts: Arc<Counts>,
    records: Records,
    scope: InstrumentationScope,
    reported: Option<Instant>,
    lost_before: u64,
}

impl Sending {
    /// Sends a batch. A failed batch is lost: the exporters have already retried.
    async fn send(&mut self, worker: &Worker, batch: &mut Vec<Item>) {
        let mut spans = Vec::new();
        let mut lines: Vec<LogLine> = Vec::new();
        let mut flushed: Vec<oneshot::Sender<()>> = Vec::new();
        for item in batch.drain(..) {
            self.counts.left(&item);
            match item {
                Item::Span(span) => spans.push(span_data(&span, worker.redaction.as_ref())),
                Item::Line(line) => lines.push(line),
                Item::Flush(done) => flushed.push(done),
            }
        }
        let (span_count, line_count) = (spans.len(), lines.len());
        if span_count > 0
            && let Err(error) = worker.spans.export(spans).await
        {
            self.lost(span_count, &error);
        }
        if line_count > 0 {
            let records: Vec<_> = lines.into_iter().map(|line| self.records.record(line)).collect();
            let records: Vec<_> = records.iter().map(|record| (record, &self.scope)).collect();
            if let Err(error) = worker.lines.export(LogBatch::new(&records)).await {
                self.lost(line_count, &error);
            }
        }
        for done in flushed {
            let _ = done.send(());
        }
        self.report(false);
    }

    fn lost(&mut self, count: usize, error: &dyn std::fmt::Display) {
        self.counts.lose(count);
        if self.is_due() {
            tracing::warn!(%error, "the collector rejects spans and log lines");
        }
    }

    fn is_due(&self) -> bool {
        self.reported.is_none_or(|last| last.elapsed() >= REPORT_EVERY)
    }

    /// Reports at intervals how many spans and lines were lost since the last report.
    fn report(&mut self, is_last: bool) {
        let lost = self.counts.dropped();
        if lost > self.lost_before && (is_last || self.is_due()) {
            let count = lost - self.lost_before;
            tracing::warn!(count, "spans and log lines were not exported");
            self.lost_before = lost;
            self.reported = Some(Instant::now());
        }
    }
}
