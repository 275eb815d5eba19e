//! A booking service that fails at random points. Its records are the truth about what was booked and refunded.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use everturn::prelude::{Value, json};
use everturn::serde_json;
use everturn::server::axum::body::Bytes;
use everturn::server::axum::extract::{Path, State};
use everturn::server::axum::http::StatusCode;
use everturn::server::axum::routing::{get, post};
use everturn::server::axum::{self, Router};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One accepted order: the caller's reference and the record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    pub(crate) reference: String,
    pub(crate) record: Value,
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) bookings: Mutex<Vec<Order>>,
    pub(crate) refunds: Mutex<Vec<Order>>,
    next: AtomicU64,
    is_reliable: AtomicBool,
}

impl Records {
    fn table(&self, name: &str) -> &Mutex<Vec<Order>> {
        if name == "bookings" { &self.bookings } else { &self.refunds }
    }

    fn accept(&self, table: &str, order: &Value) -> Value {
        let record = if table == "bookings" {
            json!({"number": self.next.fetch_add(1, Ordering::SeqCst), "hotel": order["hotel"]})
        } else {
            order["number"].clone()
        };
        self.table(table).lock().unwrap().push(Order {
            reference: order["reference"].as_str().unwrap().to_owned(),
            record: record.clone(),
        });
        record
    }

    /// Ends all faults.
    pub(crate) fn recover(&self) {
        self.is_reliable.store(true, Ordering::SeqCst);
    }
}

/// The service, served on loopback until it is dropped.
pub(crate) struct FlakyService {
    pub(crate) url: String,
    pub(crate) records: Arc<Records>,
    serving: JoinHandle<()>,
}

impl FlakyService {
    pub(crate) async fn start() -> Self {
        let records = Arc::<Records>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/{table}", post(order))
            .route("/{table}/{reference}", get(find))
            .with_state(Arc::clone(&records));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            records,
            serving,
        }
    }
}

impl Drop for FlakyService {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn order(
    State(records): State<Arc<Records>>,
    Path(table): Path<String>,
    body: Bytes,
) -> (StatusCode, String) {
    let order: Value = serde_json::from_slice(&body).unwrap();
    let accept = || (StatusCode::OK, records.accept(&table, &order).to_string());
    let is_reliable = records.is_reliable.load(Ordering::SeqCst);
    match fastrand::u8(..10) {
        _ if is_reliable => accept(),
        // Accepts, and never answers.
        0 => {
            accept();
            pending().await
        }
        // Accepts, and reports a failure.
        1 => {
            accept();
            (StatusCode::INTERNAL_SERVER_ERROR, String::new())
        }
        // Neither accepts nor answers.
        2 => pending().await,
        3 => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        4 => (StatusCode::CONFLICT, String::new()),
        // Lets other things happen before it accepts, and before it answers.
        5 | 6 => {
            tokio::task::yield_now().await;
            let accepted = accept();
            tokio::task::yield_now().await;
            accepted
        }
        _ => accept(),
    }
}

async fn find(
    State(records): State<Arc<Records>>,
    Path((table, reference)): Path<(String, String)>,
) -> (StatusCode, String) {
    let is_reliable = records.is_reliable.load(Ordering::SeqCst);
    if !is_reliable && fastrand::u8(..4) == 0 {
        return (StatusCode::SERVICE_UNAVAILABLE, String::new());
    }
    let orders = records.table(&table).lock().unwrap();
    match orders.iter().find(|order| order.reference == reference) {
        Some(order) => (StatusCode::OK, order.record.to_string()),
        None => (StatusCode::NOT_FOUND, String::new()),
    }
}
