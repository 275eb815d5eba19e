//! The client of the booking service.

use std::time::Duration;

use everturn::prelude::*;
use everturn::serde::de::DeserializeOwned;
use everturn::serde_json;
use reqwest::{Client, RequestBuilder, StatusCode};

/// A booked hotel.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Booking {
    /// The number that the service assigned.
    pub number: u64,
    /// The hotel.
    pub hotel: String,
}

/// The kinds of orders.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Bookings; the record is a [`Booking`].
    Bookings,
    /// Refunds; the record is the number of the booking.
    Refunds,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Bookings => "bookings",
            Self::Refunds => "refunds",
        }
    }
}

/// The booking service. The caller gives each order a reference, by which the service finds it again.
#[derive(Debug, Clone)]
pub struct Bookings {
    client: Client,
    url: String,
}

impl Bookings {
    /// Returns the service at this address. A request fails if it is not answered in this time.
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn new(url: impl Into<String>, timeout: Duration) -> Result<Self> {
        everturn::core::install_tls_provider();
        let client = Client::builder().timeout(timeout).build().map_err(unanswered)?;
        Ok(Self {
            client,
            url: url.into(),
        })
    }

    /// Places an order and returns its record.
    ///
    /// # Errors
    /// An error that states that nothing happened if the service rejects the order. After every other error
    /// the order may have been accepted.
    pub async fn order<T: DeserializeOwned>(&self, kind: Kind, reference: &str, order: &Value) -> Result<T> {
        let request = self.client.put(self.order_url(kind, reference)).json(order);
        match answer(request).await? {
            (StatusCode::OK, record) => Ok(serde_json::from_value(record)?),
            (StatusCode::CONFLICT | StatusCode::GONE, why) => {
                let why = why.as_str().unwrap_or("refused").to_owned();
                Err(Error::failed_precondition(why).nothing_happened().for_model())
            }
            (status, _) => Err(Error::unavailable(format!(
                "the booking service answered {status}"
            ))),
        }
    }

    /// Returns the record of an order, or closes its reference if there is none: the service then rejects an
    /// order that arrives later.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn settle<T: DeserializeOwned>(&self, kind: Kind, reference: &str) -> Result<Option<T>> {
        let url = self.order_url(kind, reference);
        match answer(self.client.post(format!("{url}/settle"))).await? {
            (StatusCode::OK, record) => Ok(serde_json::from_value(record)?),
            (status, _) => Err(Error::unavailable(format!(
                "the booking service answered {status}"
            ))),
        }
    }

    fn order_url(&self, kind: Kind, reference: &str) -> String {
        format!("{}/{}/{reference}", self.url, kind.path())
    }
}

async fn answer(request: RequestBuilder) -> Result<(StatusCode, Value)> {
    let response = request.send().await.map_err(unanswered)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unanswered)?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn unanswered(error: reqwest::Error) -> Error {
    Error::unavailable("the booking service does not answer").with_source(error)
}
