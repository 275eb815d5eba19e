//! The shop's orders, and its refunds.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use everturn::prelude::*;

/// An order.
#[payload]
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The number on the receipt.
    pub number: u32,
    /// The customer.
    pub customer: String,
    /// The ordered item.
    pub goods: String,
    /// The price.
    pub cents: u32,
}

/// The orders of the shop. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Orders {
    orders: Arc<BTreeMap<u32, Order>>,
    /// A line for each refund: its key and the order's number.
    refunds: PathBuf,
}

impl Orders {
    /// Returns the orders of the demonstration, whose refunds are written to a file.
    pub fn demonstration(refunds: PathBuf) -> Self {
        let known = [
            (7, "ann", "a kettle", 3_900),
            (8, "ann", "a lamp", 12_000),
            (9, "ben", "a chair", 8_500),
        ];
        let orders = known.map(|(number, customer, goods, cents)| {
            let (customer, goods) = (customer.to_owned(), goods.to_owned());
            let order = Order {
                number,
                customer,
                goods,
                cents,
            };
            (number, order)
        });
        Self {
            orders: Arc::new(BTreeMap::from(orders)),
            refunds,
        }
    }

    /// Returns a customer's order.
    ///
    /// # Errors
    /// `NOT_FOUND`, which the model reads, if the order does not exist or belongs to another customer.
    pub fn find(&self, customer: &str, number: u32) -> Result<&Order> {
        let order = self.orders.get(&number);
        order.filter(|order| order.customer == customer).ok_or_else(|| {
            Error::not_found(format!(
                "there is no order {number} of this customer: ask for the number on the receipt"
            ))
            .for_model()
        })
    }

    /// Refunds an order, once for each key.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn refund(&self, key: &str, order: &Order) -> Result<()> {
        if self.refunds()?.lines().any(|line| line.starts_with(key)) {
            return Ok(());
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.refunds)?;
        writeln!(file, "{key} {} {}", order.number, order.cents)?;
        Ok(file.sync_all()?)
    }

    /// Returns the refunds so far, one per line.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn refunds(&self) -> Result<String> {
        match fs::read_to_string(&self.refunds) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => Ok(read?),
        }
    }
}
