//! The client of the booking service, which neither recognises repeated requests nor always answers.

use std::time::Duration;

use everturn::prelude::*;
use reqwest::{Client, RequestBuilder, StatusCode};

/// How long the service may take to answer.
const TIMEOUT: Duration = Duration::from_millis(400);

/// A booked hotel.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Booking {
    /// The number that the service gave it.
    pub number: u64,
    /// The hotel.
    pub hotel: String,
}

/// The booking service. Each request carries a reference of the caller's, by which the service finds it again.
#[derive(Debug, Clone)]
pub struct BookingService {
    client: Client,
    url: String,
}

impl BookingService {
    /// Returns the service at this address.
    ///
    /// # Errors
    /// If the HTTP client cannot be created.
    pub fn new(url: impl Into<String>) -> Result<Self> {
        let client = Client::builder().timeout(TIMEOUT).build().map_err(unreachable)?;
        Ok(Self {
            client,
            url: url.into(),
        })
    }

    /// Books a hotel.
    ///
    /// # Errors
    /// If the service rejects the request, an error that states that nothing happened. After every other error the hotel may
    /// be booked.
    pub async fn book(&self, reference: &str, hotel: &str) -> Result<Booking> {
        let order = json!({"reference": reference, "hotel": hotel});
        self.order("bookings", &order).await
    }

    /// Returns the booking with this reference, if there is one.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn find_booking(&self, reference: &str) -> Result<Option<Booking>> {
        self.find("bookings", reference).await
    }

    /// Refunds a booking; errors as of [`BookingService::book`].
    ///
    /// # Errors
    /// See there.
    pub async fn refund(&self, reference: &str, number: u64) -> Result<u64> {
        let order = json!({"reference": reference, "number": number});
        self.order("refunds", &order).await
    }

    /// Returns the number of the booking whose refund has this reference, if there is one.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn find_refund(&self, reference: &str) -> Result<Option<u64>> {
        self.find("refunds", reference).await
    }

    async fn order<T: everturn::serde::de::DeserializeOwned>(&self, what: &str, order: &Value) -> Result<T> {
        let (status, body) = answer(self.client.post(format!("{}/{what}", self.url)).json(order)).await?;
        match status {
            StatusCode::OK => Ok(everturn::serde_json::from_value(body)?),
            StatusCode::CONFLICT => Err(Error::failed_precondition("the hotel is full")
                .nothing_happened()
                .for_model()),
            other => Err(Error::unavailable(format!("the booking service answered {other}"))),
        }
    }

    async fn find<T: everturn::serde::de::DeserializeOwned>(
        &self,
        what: &str,
        reference: &str,
    ) -> Result<Option<T>> {
        let (status, body) = answer(self.client.get(format!("{}/{what}/{reference}", self.url))).await?;
        match status {
            StatusCode::OK => Ok(Some(everturn::serde_json::from_value(body)?)),
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(Error::unavailable(format!("the booking service answered {other}"))),
        }
    }
}

async fn answer(request: RequestBuilder) -> Result<(StatusCode, Value)> {
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unreachable)?;
    Ok((status, everturn::serde_json::from_slice(&body).unwrap_or_default()))
}

fn unreachable(error: reqwest::Error) -> Error {
    Error::unavailable("the booking service does not answer").with_source(error)
}
