//! The booking service: a program of another company, which fails at random points. Its records are the truth
//! about what was booked and refunded.
//!
//! | request | response |
//! |---|---|
//! | `PUT /bookings/{reference}` with `{"hotel": …}` | the booking; 409 if full, 410 if closed |
//! | `PUT /refunds/{reference}` with `{"number": …}` | the number of the booking; the same failures |
//! | `POST /{kind}/{reference}/settle` | the record of the order, or `null`, which closes the reference |

use std::collections::HashSet;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use everturn::prelude::*;
use everturn::serde_json;
use everturn::server::axum::body::Bytes;
use everturn::server::axum::extract::{Path, State};
use everturn::server::axum::http::StatusCode;
use everturn::server::axum::routing::{post, put};
use everturn::server::axum::{self, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The service, which is served until this is dropped.
#[derive(Debug)]
pub struct BookingService {
    url: String,
    records: Arc<Mutex<Records>>,
    serving: JoinHandle<()>,
}

/// An accepted order.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// `bookings` or `refunds`.
    pub kind: String,
    /// The reference that the caller gave it.
    pub reference: String,
    /// The booking, or the number of the booking that is refunded.
    pub record: Value,
}

#[derive(Debug)]
struct Records {
    orders: Vec<Order>,
    /// The orders that were settled before they arrived, by kind and reference.
    closed: HashSet<(String, String)>,
    /// The source of faults; `None` if the service is reliable.
    faults: Option<fastrand::Rng>,
    /// The number of requests without a response.
    unanswered: usize,
}

/// A fault of the service in one request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The request is handled, and the response is lost.
    LosesResponse,
    /// The request is handled, and the response reports a failure.
    ReportsFailure,
    /// The request is not handled, and no response is sent.
    Hangs,
    /// The request is not handled, and the response reports a failure.
    Fails,
}

type Response = (StatusCode, String);

impl BookingService {
    /// Serves at this address. The seed determines the faults.
    ///
    /// # Errors
    /// If the address is in use.
    pub async fn start(address: &str, seed: u64) -> Result<Self> {
        let records = Arc::new(Mutex::new(Records {
            orders: Vec::new(),
            closed: HashSet::new(),
            faults: Some(fastrand::Rng::with_seed(seed)),
            unanswered: 0,
        }));
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new()
            .route("/{kind}/{reference}", put(order))
            .route("/{kind}/{reference}/settle", post(settle))
            .with_state(Arc::clone(&records));
        // An error of the listener ends the service, as it would end its process.
        let serving = tokio::spawn(async { drop(axum::serve(listener, router).await) });
        Ok(Self {
            url,
            records,
            serving,
        })
    }

    /// Returns the address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the accepted orders of a kind, oldest first.
    pub fn orders(&self, kind: &str) -> Vec<Order> {
        with(&self.records, |records| {
            let orders = records.orders.iter().filter(|order| order.kind == kind);
            orders.cloned().collect()
        })
    }

    /// Returns how many requests got no response, which is a timeout for their callers.
    pub fn unanswered(&self) -> usize {
        with(&self.records, |records| records.unanswered)
    }

    /// Ends all faults.
    pub fn recover(&self) {
        with(&self.records, |records| records.faults = None);
    }
}

impl Drop for BookingService {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Records {
    fn fault(&mut self) -> Option<Fault> {
        match self.faults.as_mut()?.u8(..16) {
            0 => Some(Fault::LosesResponse),
            1 => Some(Fault::ReportsFailure),
            2 => Some(Fault::Hangs),
            3 => Some(Fault::Fails),
            _ => None,
        }
    }

    fn is_full(&mut self) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.u8(..16) == 0)
    }

    fn order(&mut self, kind: String, reference: String, order: &Value) -> Response {
        if self.is_full() {
            return (StatusCode::CONFLICT, json!("the hotel is full").to_string());
        }
        let key = (kind, reference);
        if self.closed.contains(&key) {
            return (StatusCode::GONE, json!("the reference is closed").to_string());
        }
        let (kind, reference) = key;
        let record = match kind.as_str() {
            "bookings" => json!({"number": self.orders.len() + 1, "hotel": order["hotel"]}),
            _ => order["number"].clone(),
        };
        // The service does not recognise a repeated order: it would be accepted twice.
        self.orders.push(Order {
            kind,
            reference,
            record: record.clone(),
        });
        (StatusCode::OK, record.to_string())
    }

    fn settle(&mut self, kind: String, reference: String) -> Response {
        let is_meant = |order: &&Order| order.kind == kind && order.reference == reference;
        let found = self.orders.iter().find(is_meant);
        let record = found.map(|order| order.record.clone()).unwrap_or_default();
        if record.is_null() {
            self.closed.insert((kind, reference));
        }
        (StatusCode::OK, record.to_string())
    }
}

fn with<T>(records: &Mutex<Records>, use_them: impl FnOnce(&mut Records) -> T) -> T {
    use_them(&mut records.lock().unwrap_or_else(PoisonError::into_inner))
}

async fn order(
    State(records): State<Arc<Mutex<Records>>>,
    Path((kind, reference)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let order: Value = serde_json::from_slice(&body).unwrap_or_default();
    respond(&records, |records| records.order(kind, reference, &order)).await
}

async fn settle(
    State(records): State<Arc<Mutex<Records>>>,
    Path((kind, reference)): Path<(String, String)>,
) -> Response {
    respond(&records, |records| records.settle(kind, reference)).await
}

/// Handles a request, unless a fault prevents it.
async fn respond(records: &Mutex<Records>, handle: impl FnOnce(&mut Records) -> Response) -> Response {
    let (fault, response) = with(records, |records| {
        let fault = records.fault();
        let is_lost = matches!(fault, Some(Fault::LosesResponse | Fault::Hangs));
        records.unanswered += usize::from(is_lost);
        let is_handled = !matches!(fault, Some(Fault::Hangs | Fault::Fails));
        (fault, is_handled.then(|| handle(records)))
    });
    match (fault, response) {
        (Some(Fault::LosesResponse | Fault::Hangs), _) => pending().await,
        (None, Some(response)) => response,
        (Some(_), _) | (None, None) => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
    }
}
