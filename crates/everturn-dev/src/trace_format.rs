//! Spans and log lines in the JSON of the tools' trace server.

use std::time::{SystemTime, UNIX_EPOCH};

use everturn_core::{LogLine, SpanLink, SpanRecord};
use serde_json::{Map, Value, json};

/// Returns the body of a post with spans of one trace.
///
/// The name and times of the whole trace are included only with its outermost span, because they replace the
/// stored ones.
pub(crate) fn trace(spans: &[&SpanRecord]) -> Value {
    let mut body = Map::new();
    if let Some(first) = spans.first() {
        body.insert("traceId".into(), first.ids.trace.to_string().into());
    }
    if let Some(outermost) = spans.iter().find(|span| span.parent.is_none()) {
        body.insert("displayName".into(), outermost.name.clone().into());
        body.insert("startTime".into(), millis(outermost.started_at).into());
        body.insert("endTime".into(), end(outermost).into());
    }
    let spans: Map<_, _> = spans
        .iter()
        .map(|record| (record.ids.span.to_string(), span(record)))
        .collect();
    body.insert("spans".into(), spans.into());
    body.into()
}

/// Returns one span. No field is `null`: the server rejects a post that contains one.
pub(crate) fn span(record: &SpanRecord) -> Value {
    let mut span = json!({
        "spanId": record.ids.span.to_string(),
        "traceId": record.ids.trace.to_string(),
        "startTime": millis(record.started_at),
        "endTime": end(record),
        "displayName": record.name,
        "spanKind": "INTERNAL",
        "attributes": record.attributes,
        "links": record.links.iter().map(link).collect::<Vec<_>>(),
        "sameProcessAsParentSpan": { "value": true },
        "status": { "code": 0 },
        "timeEvents": { "timeEvent": time_events(record) },
        "instrumentationLibrary": { "name": "genkit-tracer", "version": "v1" },
    });
    if let Some(parent) = record.parent {
        span["parentSpanId"] = parent.to_string().into();
    }
    if let Some(failure) = &record.failure {
        span["status"] = json!({ "code": 2, "message": failure });
    }
    span
}

/// Returns the events of the span, and its failure as the last one.
fn time_events(record: &SpanRecord) -> Vec<Value> {
    let happened = record.events.iter().map(|event| {
        let annotation = json!({ "description": event.name, "attributes": event.attributes });
        json!({ "time": millis(event.at), "annotation": annotation })
    });
    let failed = record.failure.iter().map(|failure| {
        json!({
            "time": end(record),
            "annotation": {
                "description": "exception",
                "attributes": {
                    "exception.type": "Error",
                    "exception.message": failure,
                    "exception.stacktrace": failure,
                },
            },
        })
    });
    happened.chain(failed).collect()
}

fn link(link: &SpanLink) -> Value {
    let ids = link.to.ids();
    json!({
        "context": {
            "traceId": ids.trace.to_string(),
            "spanId": ids.span.to_string(),
            "isRemote": true,
            "traceFlags": u8::from(link.to.is_sampled()),
        },
        "attributes": { "relation": link.relation },
    })
}

/// Returns the body of a post with log lines, in OTLP's JSON format.
pub(crate) fn logs(lines: &[LogLine]) -> Value {
    let records: Vec<_> = lines.iter().map(log).collect();
    json!({ "resourceLogs": [{
        "resource": { "attributes": [], "droppedAttributesCount": 0 },
        "scopeLogs": [{ "scope": { "name": "genkit-logger", "version": "" }, "logRecords": records }],
    }] })
}

fn log(line: &LogLine) -> Value {
    let (severity, name) = match line.level {
        tracing::Level::TRACE => (1, "TRACE"),
        tracing::Level::DEBUG => (5, "DEBUG"),
        tracing::Level::INFO => (9, "INFO"),
        tracing::Level::WARN => (13, "WARN"),
        tracing::Level::ERROR => (17, "ERROR"),
    };
    let attributes = line.fields.iter();
    let attributes: Vec<_> = attributes
        .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }))
        .collect();
    let nanos = line.at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut record = json!({
        "timeUnixNano": nanos.to_string(),
        "severityNumber": severity,
        "severityText": name,
        "body": { "stringValue": line.text },
        "attributes": attributes,
    });
    if let Some(ids) = line.ids {
        record["traceId"] = ids.trace.to_string().into();
        record["spanId"] = ids.span.to_string().into();
    }
    record
}

/// Zero while the span is open.
fn end(record: &SpanRecord) -> f64 {
    record.ended_at.map_or(0.0, millis)
}

/// Milliseconds since 1970, with fractions.
fn millis(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1000.0
}
